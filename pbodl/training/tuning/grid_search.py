"""A search through a grid in few steps, for functions that are expensive to evaluate and have roughly one minimum."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import numpy as np

AT_A_TIME = 2  # proposals
Point = tuple[int, ...]  # an index on each axis of the grid


class GridSearch:
    """Proposes what to try next: the neighbours of the best point along one axis, then along the next; when no neighbour is left,
    random points that differ from the best by a step on a few axes."""

    def __init__(self, sizes: Sequence[int], start: Point) -> None:
        self.start = self._best = start
        self._sizes = sizes
        self._least = np.inf
        self._tried: set[Point] = set()
        self._axis = 0
        self._rng = np.random.default_rng(0)

    def proposals(self) -> list[Point]:
        """Up to two untried points, preceded by the start at first; none when the grid is exhausted."""
        if not self._tried:
            return [self.start, *self._neighbours(0)] if self._sizes else [self.start]
        for _ in self._sizes:
            points = self._neighbours(self._axis)
            if points:
                return points
            self._axis = (self._axis + 1) % len(self._sizes)
        return self._nearby()

    def tell(self, points: Sequence[Point], losses: Sequence[float]) -> None:
        """Take in the losses of the proposals."""
        self._tried.update(points)
        improved = False
        for point, loss in zip(points, losses, strict=True):
            if loss < self._least:
                improved = point != self.start
                self._best, self._least = point, loss
        if not improved and self._sizes:
            self._axis = (self._axis + 1) % len(self._sizes)

    def run(self, trials: int, loss: Callable[[Point], float], threads: int = AT_A_TIME) -> None:
        """Try up to `trials` points, the start first; `loss` is called from several threads."""
        with ThreadPoolExecutor(threads) as pool:
            # Finish a round before the next: the order of trials must not depend on which thread is faster.
            while points := self.proposals()[: trials - len(self._tried)]:
                self.tell(points, list(pool.map(loss, points)))

    def _neighbours(self, axis: int) -> list[Point]:
        points = []
        for step in (1, -1):
            index = self._best[axis] + step
            point = (*self._best[:axis], index, *self._best[axis + 1 :])
            if 0 <= index < self._sizes[axis] and point not in self._tried:
                points.append(point)
        return points

    def _nearby(self) -> list[Point]:
        reach = 1
        while reach < max(self._sizes, default=0):
            around = [range(max(0, b - reach), min(n, b + reach + 1)) for b, n in zip(self._best, self._sizes, strict=True)]
            points = [point for point in product(*around) if point not in self._tried]
            if points:
                chosen = self._rng.permutation(len(points))[:AT_A_TIME]
                return [points[index] for index in chosen]
            reach += 1
        return []
