"""Detects abnormal data: compares each stretch of the stream with what the model expects, and holds publishing if it is far off.

For rows with predicted CTRs p, the clicks have mean Σ p and variance Σ p(1-p); the log loss has mean Σ H(p), H the entropy, and
variance Σ p(1-p) log²(p/(1-p)). That is chance. But no model is exactly calibrated, and the world drifts. So the surprise of the
loss, in units of chance, is compared with the usual surprises of this stream, and clicks must also be off by a factor.

A model learns new odds within about fifty rows, and then expects what it sees. So a stretch's CTR is also compared with that of the
stretches before, a slowly changing mean, and so is the share of rows without a field. Factors compare odds: clicks that become the
rule are as abnormal as clicks that stop.

A row counts at the first age at which it is judged: whether its click came by then, and what the model expected of that, p F. So a
young impression is no non-click.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl.data.batch import Batch
from pbodl.data.hashing import hash_value
from pbodl.models.contract import Model

STRETCH = 2000  # rows that are judged together
LEARNING = 20  # stretches at the start that are not judged: a new model does not know what to expect
SIGMAS = 6.0  # standard deviations of chance
LOSS_SPREADS = 15.0  # times the usual surprise, which is at least that of chance
CLICK_FACTOR = 2.5  # times the odds of a click that the model expected
CTR_FACTOR = 3.0  # times the odds of a click in the stretches before
MISSING_SHARE = 0.3  # more rows without a field than before
MEMORY = 0.02  # weight of the newest stretch in the means
OUTLIER = 3.0  # cap of a surprise in the mean, in usual surprises
ENOUGH = 200  # rows that suffice to doubt a stretch before its end
# What a snapshot keeps, by name: the attributes with plain data, and those with arrays.
FACTS = {name: name for name in ("held", "stretches", "alarms")}
FACTS |= {name: f"_{name}" for name in ("learned", "usual_ctr", "usual_surprise", "last_ctr")}
ARRAYS = ("sums", "missing", "usual_missing", "last_missing")
SUMS = ("rows", "clicks", "expected", "click_variance", "loss", "expected_loss", "loss_variance")


class StretchEvidence(NamedTuple):
    """What some rows of a stretch say; that of several workers adds up."""

    sums: NDArray[np.float64]  # by SUMS
    missing: NDArray[np.float64]  # rows without each field
    rows: int


class Watchdog:
    """Judges the rows that a model learns, a stretch at a time.

    held  why publishing is held; None while it is not
    """

    def __init__(self, model: Model, stretch: int = STRETCH) -> None:
        fields = [field.name for field in model.schema.fields]
        self._names = fields
        self._missing_keys = np.array([hash_value(field.key_name, None) for field in model.schema.fields], np.uint64)
        self.stretch, self._rate = stretch, model.negative_rate
        self._sums = np.zeros(len(SUMS))
        self._missing = np.zeros(len(fields))
        self._usual_missing = np.zeros(len(fields))
        self._usual_ctr = 0.0
        self._usual_surprise = 1.0
        self._last_ctr, self._last_missing = 0.0, np.zeros(len(fields))  # in the last stretch
        self._learned = 0  # rows of this stretch
        self.stretches = 0  # judged so far
        self.alarms = 0
        self.held: str | None = None

    @property
    def room(self) -> int:
        """How many rows are left in this stretch."""
        return self.stretch - self._learned

    def after(self, batch: Batch, predicted: NDArray[np.float64]) -> str | None:
        """Count learned rows with the probability predicted of each click; at the end of a stretch, returns what is abnormal."""
        self.count(batch, predicted)
        return self._end()

    def gather(self, others: "StretchEvidence") -> str | None:
        """As `after`, for rows that others have counted; a stretch then ends with the first evidence that fills it."""
        self._sums += others.sums
        self._missing += others.missing
        self._learned += others.rows
        return self._end()

    def evidence(self) -> "StretchEvidence":
        """What was counted in this stretch so far, for the watchdog of a cluster (`gather`)."""
        return StretchEvidence(self._sums.copy(), self._missing.copy(), self._learned)

    def _end(self) -> str | None:
        """Judge the stretch, if it is full."""
        if self._learned < self.stretch:
            return None
        reason = self._judge()
        self.stretches += 1
        self._last_ctr, self._last_missing = self._sums[1] / max(self._sums[0], 1.0), self._missing / self._learned
        self._learned = 0
        if reason is not None:
            self.alarms += 1
            self.held = self.held or reason
        else:
            self._remember()
        self._sums[:] = 0.0
        self._missing[:] = 0.0
        return reason

    def count(self, batch: Batch, predicted: NDArray[np.float64]) -> None:
        """Count learned rows, and judge nothing."""
        assert batch.clicks is not None
        p, clicked = np.clip(predicted, 1e-15, 1.0 - 1e-15), batch.clicks > 0
        yes, no = -np.log(p), -np.log1p(-p)
        share = p / (p + (1.0 - p) * self._rate)  # of clicks, if only a share of non-clicks is kept
        chance = share * (1.0 - share)
        self._sums += (
            len(p), clicked.sum(), share.sum(), chance.sum(), np.where(clicked, yes, no).sum(),
            (share * yes + (1.0 - share) * no).sum(), (chance * (yes - no) ** 2).sum(),
        )  # fmt: skip
        missing = batch.keys == self._missing_keys[batch.fields]
        self._missing += np.bincount(batch.fields[missing], minlength=len(self._names))
        self._learned += len(batch)

    @property
    def doubt(self) -> str | None:
        """What is abnormal in this unfinished stretch; until its end, nothing should be published."""
        return self._judge() if self._learned >= ENOUGH else None

    def _judge(self) -> str | None:
        rows, clicks, expected, click_variance, loss, expected_loss, _ = self._sums.tolist()
        if self.stretches < LEARNING or rows <= 0:
            return None
        missing = self._missing / self._learned
        worst = int(np.argmax(missing - self._usual_missing))
        if missing[worst] - self._usual_missing[worst] > MISSING_SHARE:
            return (
                f"the field {self._names[worst]!r} is missing in {missing[worst]:.0%} of the rows; before, it was "
                f"missing in {self._usual_missing[worst]:.0%}"
            )
        if self._surprise() > LOSS_SPREADS * self._usual_surprise:
            return f"the log loss is {loss / rows:.4f}; the model expected {expected_loss / rows:.4f}"
        if abs(clicks - expected) > SIGMAS * click_variance**0.5 and odds_ratio(clicks, expected, rows) > CLICK_FACTOR:
            return f"there are {clicks:,.0f} clicks in {rows:,.0f} rows; the model expected {expected:,.0f}"
        usual = self._usual_ctr * rows
        if abs(clicks - usual) > SIGMAS * (usual * (1 - self._usual_ctr)) ** 0.5 and odds_ratio(clicks, usual, rows) > CTR_FACTOR:
            return f"the CTR of the learned rows is {clicks / rows:.4f}; before, it was {self._usual_ctr:.4f}"
        return None

    def _surprise(self) -> float:
        """How many standard deviations of chance the log loss is above its expected value."""
        _, _, _, _, loss, expected_loss, variance = self._sums.tolist()
        return (loss - expected_loss) / max(variance, 1e-12) ** 0.5

    def _remember(self) -> None:
        weight = max(MEMORY, 1.0 / max(self.stretches, 1))
        self._usual_missing += weight * (self._last_missing - self._usual_missing)
        self._usual_ctr += weight * (self._last_ctr - self._usual_ctr)
        surprise = min(abs(self._surprise()), OUTLIER * self._usual_surprise)
        self._usual_surprise = max(1.0, (self._usual_surprise**2 * (1 - MEMORY) + MEMORY * surprise**2) ** 0.5)

    def accept(self) -> None:
        """Continue publishing: a person says that the data is right, so the latest stretch is the new normal."""
        if self.held is not None:
            self._usual_ctr, self._usual_missing = self._last_ctr, self._last_missing
        self.held = None

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        """The state, as plain data and arrays."""
        facts = {name: getattr(self, own) for name, own in FACTS.items()}
        return facts, {name: getattr(self, f"_{name}").copy() for name in ARRAYS}

    def load_state(self, facts: Mapping[str, Any], arrays: Mapping[str, NDArray]) -> None:
        """Continue from a `state()`."""
        for name, own in FACTS.items():
            setattr(self, own, facts[name])
        for name in ARRAYS:
            setattr(self, f"_{name}", np.array(arrays[name]))


def odds_ratio(clicks: float, expected: float, rows: float) -> float:
    """The factor, at least 1, between the odds of a click; half a click added keeps it finite."""
    ratio = (clicks + 0.5) / (rows - clicks + 0.5) * (rows - expected + 0.5) / (expected + 0.5)
    return max(ratio, 1.0 / ratio)
