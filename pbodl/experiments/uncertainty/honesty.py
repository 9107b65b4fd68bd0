"""Figures about an uncertainty: how far latent Gaussians N(m, v) agree with what happened.

Coverage needs the true click probabilities: the share of true latents Φ⁻¹(p) within the central 50, 80 and 95 % of N(m, v).
The martingale check (`training.martingale`) needs no truth.
"""

from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
LEVELS = (50, 80, 95)
BOUNDS = tuple(NormalDist().inv_cdf(0.5 + level / 200) for level in LEVELS)
CLIP = 1e-9
GROUPS = 20  # of rows with similar predictions, in a reliability curve
FREQUENCIES = ((0, 1, "never seen"), (1, 100, "seen 1 to 99 times"), (100, 1000, "100 to 999"), (1000, 2**62, "1,000 or more"))


def latent(probability: Floats) -> Floats:
    """Φ⁻¹(p)."""
    known = np.clip(probability, CLIP, 1.0 - CLIP)
    points, index = np.unique(known, return_inverse=True)
    return np.array([NormalDist().inv_cdf(p) for p in points])[index]


def coverage(mean: Floats, deviation: Floats, truth: Floats) -> dict[str, Any]:
    """How well intervals of N(m, v) cover true latents, and whether the deviation says where the errors are.

    Even errors that are exactly normal, with exactly these deviations, have a rank correlation with them far below 1, because a
    single error says little about its scale: `rank_ceiling` is that of such errors.
    """
    error = np.abs(truth - mean)
    normal = np.abs(np.random.default_rng(0).standard_normal(len(deviation))) * deviation
    inside = {str(level): float(np.mean(error <= bound * deviation)) for level, bound in zip(LEVELS, BOUNDS, strict=True)}
    return {
        "inside": inside,
        "deviation": float(np.sqrt(np.mean(deviation**2))),
        "error": float(np.sqrt(np.mean(error**2))),
        "rank_correlation": _correlation(_ranks(deviation), _ranks(error)),
        "rank_ceiling": _correlation(_ranks(deviation), _ranks(normal)),
    }


def reliability(ctr: Floats, clicks: NDArray[np.float32]) -> list[tuple[float, float, float]]:
    """Weight, mean prediction and share of clicks of groups of rows with similar predictions, equally many in each."""
    order = np.argsort(ctr, kind="stable")
    parts = [part for part in np.array_split(order, GROUPS) if len(part)]
    return [(float(len(part)), float(ctr[part].mean()), float(clicks[part].mean())) for part in parts]


class Occurrences:
    """Counts how often each key came before."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}

    def before(self, keys: NDArray[np.uint64]) -> NDArray[np.int64]:
        """How often the key of each row came in earlier rows; counts these rows."""
        values, inverse, counts = np.unique(keys, return_inverse=True, return_counts=True)
        starts = np.array([self._counts.get(key, 0) for key in values.tolist()], np.int64)
        order = np.argsort(inverse, kind="stable")
        within = np.empty(len(keys), np.int64)
        within[order] = np.arange(len(keys)) - np.repeat(np.cumsum(counts) - counts, counts)
        self._counts |= dict(zip(values.tolist(), (starts + counts).tolist(), strict=True))
        return starts[inverse] + within


def _ranks(values: Floats) -> Floats:
    """Ranks; equal values share theirs."""
    return np.unique(values, return_inverse=True)[1].astype(np.float64)


def _correlation(a: Floats, b: Floats) -> float | None:
    if a.std() == 0.0 or b.std() == 0.0:
        return None
    return float(np.corrcoef(a, b)[0, 1])
