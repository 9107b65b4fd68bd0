"""How often each candidate gets each slot, by definition: rank again and again, and count."""

import numpy as np


def count_placements(decide, candidates: int, slots: int, times: int) -> np.ndarray:
    """`decide(n)` gives the n-th ranking; returns the share of rankings with each candidate in each slot."""
    counts = np.zeros((candidates, slots))
    for n in range(times):
        for slot, candidate in enumerate(decide(n)):
            counts[candidate, slot] += 1
    return counts / times


def best_first(worth: np.ndarray) -> list[int]:
    """Candidates by descending worth, the first given among equals, by repeated search for the largest."""
    left, order = list(range(len(worth))), []
    while left:
        best = left[0]
        for candidate in left:
            if worth[candidate] > worth[best]:
                best = candidate
        left.remove(best)
        order.append(best)
    return order
