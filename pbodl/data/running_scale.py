"""Number fields with transform="scale" or "log": standardised by the running moments of the stream.

A sample is standardised by the moments *before* it, and then counted, so that `learn` and `predict` see the same features. Until
two different numbers were seen, a number counts as the mean of its field: it is 0. Nothing else is assumed about the location or
scale of a field, since an assumption that is far off (a year, assumed to be around 0) would take a million rows to wear away.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from pbodl._jit import jit
from pbodl.data.convert import Batch
from pbodl.data.hashing import SCALE_TEXT, hash_value
from pbodl.data.schema import Schema

FARTHEST = 10.0  # standard deviations: an outlier must not throw the whole model


@jit
def _standardise(values, keys, fields, scale_keys, moments, learning, scaled):
    """MODIFIES: scaled; and, when learning, moments (fields, 3): count, mean, sum of squared deviations."""
    for j in range(len(values)):
        f = fields[j]
        if scale_keys[f, 0] == 0 or keys[j] != scale_keys[f, 1]:
            scaled[j] = values[j]
            continue
        x = np.float64(values[j])
        count, mean, squares = moments[f, 0], moments[f, 1], moments[f, 2]
        scaled[j] = np.float32(0.0)
        if squares > 0.0:
            # The deviation of the next number: that of the sample, and that of its mean, which is uncertain after few numbers.
            deviation = np.sqrt(squares / (count - 1.0) * (1.0 + 1.0 / count))
            scaled[j] = np.float32(min(max((x - mean) / deviation, -FARTHEST), FARTHEST))
        if learning:
            moments[f, 0] = count + 1.0
            moments[f, 1] = mean + (x - mean) / (count + 1.0)
            moments[f, 2] = squares + (x - mean) * (x - moments[f, 1])


class RunningScale:
    """The running moments of a schema's scaled fields."""

    def __init__(self, schema: Schema) -> None:
        scaled = [field.is_scaled for field in schema.fields]
        keys = [hash_value(field.name, SCALE_TEXT) for field in schema.fields]
        self._keys = np.array(list(zip(scaled, keys, strict=True)), dtype=np.uint64).reshape(-1, 2)
        self._any = any(scaled)
        self.moments = np.zeros((len(scaled), 3))

    def learn(self, batch: Batch) -> NDArray[np.float32]:
        """The batch's values, standardised; its numbers are counted."""
        return self._apply(batch, True)

    def peek(self, batch: Batch) -> NDArray[np.float32]:
        """The batch's values, standardised; nothing changes."""
        return self._apply(batch, False)

    def _apply(self, batch: Batch, learning: bool) -> NDArray[np.float32]:
        if not self._any:
            return batch.values
        scaled = np.empty_like(batch.values)
        _standardise(batch.values, batch.keys, batch.fields, self._keys, self.moments, learning, scaled)
        return scaled

    def load(self, state: Mapping[str, NDArray]) -> None:
        """Take the moments from a state that was checked."""
        self.moments = np.array(state["scale.moments"])
