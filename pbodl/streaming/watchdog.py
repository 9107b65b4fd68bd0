"""Abnormal data: each stretch of the stream is compared with what the model expected of it, and far outside, publishing is held.

The model's own predictions say what is to be expected. Of rows with predicted CTRs p, clicks have the mean Σ p and the variance
Σ p(1-p); the log loss has the mean Σ H(p), H the entropy, and the variance Σ p(1-p) log²(p/(1-p)). A stretch is abnormal if it is
both beyond chance (SIGMAS of these) and a matter of substance (the factors below): a model that learns is never exactly calibrated,
and over thousands of rows the smallest error is beyond chance. Stretches are short, since the model adapts within hundreds of rows,
and then expects what it sees. A field that goes missing costs little log loss at first; it is
seen by the share of rows without it, against the stretches before.

The rows are compared as they are learned: clicks at once, non-clicks after their window. A sudden change of traffic therefore
shifts the balance of the two for a window's length; the factors leave room for traffic that doubles.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pbodl.data.arrays import Batch
from pbodl.data.hashing import hash_value
from pbodl.models.deep_probit import DeepProbit
from pbodl.streaming.join_rules import TAKE_BACK

STRETCH = 2000  # rows that are judged together
LEARNING = 20  # stretches at the start that are not judged: a new model expects little
SIGMAS = 6.0
LOSS_FACTOR = 1.4  # of the expected log loss; where ads change at midnight, 1.3 is ordinary
CLICK_FACTOR = 2.2  # of the expected clicks, or the expected clicks of them
CTR_FACTOR = 3.0  # of the CTR of the stretches before
MISSING_SHARE = 0.3  # more rows without a field than before
MEMORY = 0.02  # weight of the newest stretch in what was before
SUMS = ("rows", "clicks", "expected", "click_variance", "loss", "expected_loss", "loss_variance")


class Watchdog:
    """Judges the rows that a model learns, a stretch at a time.

    held  why publishing is held; None while all is well
    """

    def __init__(self, model: DeepProbit, stretch: int = STRETCH) -> None:
        fields = [field.name for field in model.schema.fields]
        self._names = fields
        self._missing_keys = np.array([hash_value(name, None) for name in fields], np.uint64)
        self.stretch, self._rate = stretch, model.negative_rate
        self._sums = np.zeros(len(SUMS))
        self._missing = np.zeros(len(fields))
        self._usual_missing = np.zeros(len(fields))
        self._usual_ctr = 0.0
        self._learned = 0  # rows of this stretch, those taken back too
        self.stretches = 0  # judged so far
        self.alarms = 0
        self.held: str | None = None

    @property
    def room(self) -> int:
        """How many rows this stretch still takes."""
        return self.stretch - self._learned

    def after(self, batch: Batch, roles: NDArray[np.int8], predicted: NDArray[np.float64]) -> str | None:
        """Count rows that were learned, with the CTR predicted for each before; at the end of a stretch, says what is abnormal."""
        self._count(batch, roles, predicted)
        self._learned += len(batch)
        if self._learned < self.stretch:
            return None
        reason = self._judge()
        self.stretches += 1
        self._learned = 0
        if reason is not None:
            self.alarms += 1
            self.held = self.held or reason
        else:
            self._remember()
        self._sums[:] = 0.0
        self._missing[:] = 0.0
        return reason

    def _count(self, batch: Batch, roles: NDArray[np.int8], predicted: NDArray[np.float64]) -> None:
        assert batch.clicks is not None
        fresh = roles != TAKE_BACK
        p, clicked = np.clip(predicted[fresh], 1e-15, 1.0 - 1e-15), batch.clicks[fresh] > 0
        yes, no = -np.log(p), -np.log1p(-p)
        share = p / (p + (1.0 - p) * self._rate)  # of clicks, where only a share of the others is kept
        chance = share * (1.0 - share)
        self._sums += (
            fresh.sum(), clicked.sum(), share.sum(), chance.sum(), np.where(clicked, yes, no).sum(),
            (share * yes + (1.0 - share) * no).sum(), (chance * (yes - no) ** 2).sum(),
        )  # fmt: skip
        missing = batch.keys == self._missing_keys[batch.fields]
        self._missing += np.bincount(batch.fields[missing], minlength=len(self._names))

    def _judge(self) -> str | None:
        rows, clicks, expected, click_variance, loss, expected_loss, loss_variance = self._sums.tolist()
        if self.stretches < LEARNING or not rows:
            return None
        missing = self._missing / self._learned
        worst = int(np.argmax(missing - self._usual_missing))
        if missing[worst] - self._usual_missing[worst] > MISSING_SHARE:
            return (
                f"the field {self._names[worst]!r} is missing in {missing[worst]:.0%} of the rows, before in "
                f"{self._usual_missing[worst]:.0%}"
            )
        if loss - expected_loss > SIGMAS * loss_variance**0.5 and loss > LOSS_FACTOR * expected_loss:
            return f"the log loss is {loss / rows:.4f}, and the model expected {expected_loss / rows:.4f}"
        surprising = abs(clicks - expected) > SIGMAS * click_variance**0.5
        if surprising and max(clicks, expected) > CLICK_FACTOR * min(clicks, expected):
            return f"there are {clicks:,.0f} clicks in {rows:,.0f} rows, and the model expected {expected:,.0f}"
        ctr, usual = clicks / rows, self._usual_ctr
        if abs(ctr - usual) > SIGMAS * (usual * (1 - usual) / rows) ** 0.5 and max(ctr, usual) > CTR_FACTOR * min(ctr, usual):
            return f"the CTR of the learned rows is {ctr:.4f}, before {usual:.4f}"
        return None

    def _remember(self) -> None:
        rows, clicks = self._sums[:2]
        weight = max(MEMORY, 1.0 / max(self.stretches, 1))
        self._usual_missing += weight * (self._missing / self.stretch - self._usual_missing)
        self._usual_ctr += weight * (clicks / max(rows, 1.0) - self._usual_ctr)

    def release(self) -> None:
        """All is well again, a person says: publishing goes on."""
        self.held = None

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        """What it needs to go on: plain data, and arrays."""
        facts = {"held": self.held, "stretches": self.stretches, "alarms": self.alarms, "learned": self._learned}
        arrays = {"sums": self._sums.copy(), "missing": self._missing.copy(), "usual_missing": self._usual_missing.copy()}
        return facts | {"usual_ctr": self._usual_ctr}, arrays

    def load_state(self, facts: Mapping[str, Any], arrays: Mapping[str, NDArray]) -> None:
        """Go on from a `state()`."""
        self.held, self.stretches, self.alarms = facts["held"], facts["stretches"], facts["alarms"]
        self._learned, self._usual_ctr = facts["learned"], facts["usual_ctr"]
        self._sums[:], self._missing[:] = arrays["sums"], arrays["missing"]
        self._usual_missing[:] = arrays["usual_missing"]

