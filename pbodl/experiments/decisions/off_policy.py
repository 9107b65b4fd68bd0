"""Off-policy estimators: the value of a policy, from impressions that another policy chose.

Letters, for the impression in slot k of request j: r its reward, p the probability with which it was put there (its propensity), π
the probability with which the new policy puts the same candidate there, w = π/p, q the reward that a model predicts for it, and b
the reward that the model predicts for the new policy in this slot, Σ_a π(a) q(a).

    IPS    (1/R) Σ w r                            unbiased, if all that the new policy shows had a chance to be shown
    SNIPS  for each slot Σ w r / Σ w              less noisy; divides by the weights that there are, not by those expected
    DR     (1/R) Σ (b + w (r - q))                doubly robust: right if the propensities are, less noisy if the model is good

A value is the expected sum of rewards of a request, and what a slot earns is supposed to depend on its own candidate alone. With
one slot these are the usual estimators. Intervals are normal ones, corrected for skewness. Their errors come from the spread
between requests, so slots of one request need not be independent.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Z = 1.959963984540054  # of a 95 % interval
LITTLE = 0.05  # effective sample size over requests below which a warning is due ...
FEW = 100  # ... and effective requests
FAR = 4.0  # standard errors by which the mean weight may be below 1
Floats = NDArray[np.float64]


class LoggedRows(NamedTuple):
    """Impressions, [n] each."""

    reward: Floats
    propensity: Floats
    target: Floats  # probability under the new policy, of the same candidate in the same slot
    predicted: Floats  # reward of this impression, by a model
    baseline: Floats  # reward of the new policy in this slot, by the model
    request: NDArray[np.int64]  # 0, 1, 2, ...
    slot: NDArray[np.int64]

    @property
    def requests(self) -> int:
        return int(self.request.max()) + 1 if len(self.request) else 0

    @property
    def weight(self) -> Floats:
        return self.target / self.propensity


class PolicyValue(NamedTuple):
    """An estimate with its standard error and its 95 % interval."""

    value: float
    error: float
    low: float
    high: float


def _estimate(value: float, parts: Floats, rows: LoggedRows) -> PolicyValue:
    """An estimate that is, up to a constant, the mean over requests of the sums of these parts of impressions."""
    sums = np.bincount(rows.request, parts, rows.requests)
    n = len(sums)
    spread = float(sums.std(ddof=1)) if n > 1 else float("inf")
    if not 0.0 < spread < float("inf"):
        return PolicyValue(value, spread, value - spread, value + spread)
    error, skewness = spread / np.sqrt(n), float((((sums - sums.mean()) / spread) ** 3).mean())
    low, high = (error * _unskewed(quantile, skewness / np.sqrt(n)) for quantile in (Z, -Z))
    return PolicyValue(value, error, value - low, value - high)


def _unskewed(quantile: float, skewness: float) -> float:
    """The quantile of a studentised mean whose terms are skewed, from that of the normal distribution (Hall 1992).

    Few weighted clicks among many zeros are far from normal: the ordinary interval would miss the truth too often on its upper
    side.
    """
    if abs(skewness) < 1e-9:
        return quantile
    return 3.0 / skewness * (float(np.cbrt(1.0 + skewness * (quantile - skewness / 6.0))) - 1.0)


def logged_value(rows: LoggedRows) -> PolicyValue:
    """The value of the policy that made the log."""
    return _estimate(float(rows.reward.sum() / rows.requests), rows.reward, rows)


def ips(rows: LoggedRows) -> PolicyValue:
    """Inverse propensity scoring."""
    parts = rows.weight * rows.reward
    return _estimate(float(parts.sum() / rows.requests), parts, rows)


def snips(rows: LoggedRows) -> PolicyValue:
    """Self-normalised inverse propensity scoring, slot by slot."""
    weight, value, parts = rows.weight, 0.0, np.zeros(len(rows.reward))
    for slot in np.unique(rows.slot):
        mine = rows.slot == slot
        total = weight[mine].sum()
        if total > 0.0:
            mean = float((weight[mine] * rows.reward[mine]).sum() / total)
            share = mine.sum() / rows.requests
            value += share * mean
            parts[mine] = weight[mine] * (rows.reward[mine] - mean) / (total / mine.sum())
    return _estimate(value, parts, rows)


def doubly_robust(rows: LoggedRows) -> PolicyValue:
    """The model's value of the new policy, corrected by the weighted errors of the model."""
    parts = rows.baseline + rows.weight * (rows.reward - rows.predicted)
    return _estimate(float(parts.sum() / rows.requests), parts, rows)


ESTIMATORS = {"ips": ips, "snips": snips, "dr": doubly_robust}


def effective_size(weight: Floats) -> float:
    """(Σ w)²/Σ w²: how many impressions of the new policy's own the weighted ones are worth."""
    squares = float((weight**2).sum())
    return float(weight.sum()) ** 2 / squares if squares > 0.0 else 0.0


def support_warnings(rows: LoggedRows, unsupported: Floats) -> list[str]:
    """What the log cannot tell about the new policy.

    unsupported  for each impression, the probability with which the new policy fills the slot with what could not be in the log
    """
    told = []
    lost = float(unsupported.mean()) if len(unsupported) else 0.0
    if lost > 1e-9:
        told.append(
            f"support is missing: in {lost:.1%} of its choices the new policy shows what the logged policy never shows; no "
            "estimate knows what these would earn, and IPS counts them as 0. Log with a policy that explores"
        )
    weight, requests = rows.weight, rows.requests
    mean = _estimate(float(weight.mean()), weight, rows._replace(request=np.arange(len(weight))))
    if lost <= 1e-9 and mean.value + FAR * mean.error < 1.0:
        told.append(
            f"support is thin: the weights have a mean of {mean.value:.3f} ± {mean.error:.3f} instead of 1, so some of what the "
            "new policy shows was too improbable to be in the log"
        )
    size = effective_size(weight)
    slots = len(weight) / max(requests, 1)
    if size / slots < FEW or size < LITTLE * len(weight):
        told.append(
            f"the effective sample size is {size / slots:,.0f} of {requests:,} requests: a few impressions decide; the "
            "intervals may be too short"
        )
    return told
