"""The figures of an arm: sums over impressions by user and by day, and the ratios, lifts and intervals computed from them.

A user's impressions are not independent, so the intervals come from resampling users, each with a Poisson(1) weight. The users of
different seeds are different users; their sums are concatenated.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl.experiments.ab.ad_market import DAY
from pbodl.experiments.ab.ad_world import AdWorld
from pbodl.experiments.ab.arm import ShownAds

REPLICATES = 1000
AT_A_TIME = 100  # replicates whose weights are held at once
COLUMNS = (
    "impressions", "clicks", "chances", "revenue", "value", "best", "predicted",
    "new", "new_clicks", "new_chances", "new_predicted", "value_best_new", "best_new",
)  # fmt: skip
Sums = NDArray[np.float64]  # [..., len(COLUMNS)]
Figure = Callable[[Sums], NDArray[np.float64]]


def contributions(shown: ShownAds, world: AdWorld) -> Sums:
    """The contribution of each impression to the sums, [n, len(COLUMNS)]."""
    bid = world.ads.bid[shown.ad]
    best_is_new = shown.requests.time - world.ads.start[shown.best_ad] < DAY
    one = np.ones(len(bid))
    return np.stack([
        one, shown.click, shown.probability, bid * shown.click, shown.value, shown.best, shown.predicted,
        shown.new, shown.new * shown.click, shown.new * shown.probability, shown.new * shown.predicted,
        best_is_new * shown.value, best_is_new * shown.best,
    ], axis=1)  # fmt: skip


def _ratio(above: str, below: str) -> Figure:
    a, b = COLUMNS.index(above), COLUMNS.index(below)

    def figure(sums: Sums) -> NDArray[np.float64]:
        with np.errstate(divide="ignore", invalid="ignore"):
            return sums[..., a] / sums[..., b]

    return figure


def _lost(got: str, best: str) -> Figure:
    kept = _ratio(got, best)
    return lambda sums: 1.0 - kept(sums)


FIGURES: dict[str, Figure] = {
    "ctr": _ratio("clicks", "impressions"),
    "true_ctr": _ratio("chances", "impressions"),  # from the true probabilities, without the luck of the clicks
    "cpm": _ratio("revenue", "impressions"),
    "value": _ratio("value", "best"),  # as a share of the best possible
    "regret": _lost("value", "best"),
    "best": _ratio("best", "impressions"),  # depends on the arm's users alone
    "calibration": _ratio("predicted", "chances"),
    "new_ctr": _ratio("new_clicks", "new"),
    "new_true_ctr": _ratio("new_chances", "new"),
    "new_share": _ratio("new", "impressions"),
    "new_calibration": _ratio("new_predicted", "new_chances"),
    "new_regret": _lost("value_best_new", "best_new"),  # where the best ad entered the market less than a day ago
}


class Estimate(NamedTuple):
    """A figure with its 95 % interval under resampling of users."""

    value: float
    low: float
    high: float


class Resampled(NamedTuple):
    """An arm's sums over all users, and over the users of each replicate."""

    total: Sums
    replicates: Sums  # [REPLICATES, len(COLUMNS)]

    def figure(self, name: str) -> Estimate:
        figure = FIGURES[name]
        return _estimate(float(figure(self.total)), figure(self.replicates))

    def lift(self, name: str, base: "Resampled") -> Estimate:
        """The relative difference to the base."""
        figure = FIGURES[name]
        with np.errstate(divide="ignore", invalid="ignore"):  # a replicate of few users may have no click
            drawn = figure(self.replicates) / figure(base.replicates) - 1.0
            return _estimate(float(figure(self.total) / figure(base.total)) - 1.0, drawn)

    def difference(self, name: str, base: "Resampled") -> Estimate:
        figure = FIGURES[name]
        return _estimate(float(figure(self.total) - figure(base.total)), figure(self.replicates) - figure(base.replicates))


def resample(users: Sequence[Sums], seed: int) -> Resampled:
    """Resample an arm's users, given by seed of the world; arms without common users need different seeds."""
    rng = np.random.default_rng(seed)
    rows = np.concatenate(users)
    replicates = [rng.poisson(1.0, (AT_A_TIME, len(rows))) @ rows for _ in range(REPLICATES // AT_A_TIME)]
    return Resampled(rows.sum(axis=0), np.concatenate(replicates))


def _estimate(value: float, drawn: NDArray[np.float64]) -> Estimate:
    known = drawn[np.isfinite(drawn)]
    low, high = np.quantile(known, [0.025, 0.975]) if len(known) else (np.nan, np.nan)
    return Estimate(value, float(low), float(high))
