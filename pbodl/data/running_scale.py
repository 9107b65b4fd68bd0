"""Number fields with transform="scale" or "log", and the components of vectors: standardised by the running moments of the stream;
and lists, which count as much as a category.

A sample is standardised by the moments *before* it, and then counted, so that `learn` and `predict` see the same features. Until
two different numbers were seen, a number counts as the mean of its field: it is 0. Nothing else is assumed about the location or
scale of a field, since an assumption that is far off (a year, assumed to be around 0) would take a million rows to wear away.

A vector's components are divided by √length as well: its squared length is then about 1, as that of a category.

The values of a list are multiplied by √(SHORT/length), where its field's usual length is above SHORT: what the prior of its
values says about z then does not grow with its length. It is the mean length of the field's lists before the row, not that of the
row, because effects of values add up: a list that is twice as long as others says more. But where a list is more than UNUSUAL times
as long, its own length counts, divided by UNUSUAL. Missing and empty lists do not take part.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from pbodl._jit import inlined, jit
from pbodl.data.batch import Batch
from pbodl.data.features.vectors import component_keys
from pbodl.data.hashing import SCALE_TEXT, hash_value
from pbodl.data.schema import Schema

SHORT, UNUSUAL = 2.0, 4.0
# The sum of squared deviations of a field of lists before the first one. It is 0 in snapshots of releases in which every value of a
# list counted 1: there it goes on to do so.
EVENED = 1.0
FARTHEST = 10.0  # standard deviations: an outlier must not throw the whole model


@inlined
def _standardised(x, moments, slot, share, learning):
    """A number by the moments before it, times `share`. MODIFIES: when learning, moments."""
    count, mean, squares = moments[slot, 0], moments[slot, 1], moments[slot, 2]
    scaled = np.float32(0.0)
    if squares > 0.0:
        # The deviation of the next number: that of the sample, and that of its mean, which is uncertain after few numbers.
        deviation = np.sqrt(squares / (count - 1.0) * (1.0 + 1.0 / count))
        scaled = np.float32(min(max((x - mean) / deviation, -FARTHEST), FARTHEST) * share)
    if learning:
        moments[slot, 0] = count + 1.0
        moments[slot, 1] = mean + (x - mean) / (count + 1.0)
        moments[slot, 2] = squares + (x - mean) * (x - moments[slot, 1])
    return scaled


@jit
def _standardise(values, keys, fields, lengths, first, scale_keys, moments, learning, scaled):
    """Field f has lengths[f] scaled features, whose keys and moments are those from first[f] on. A vector's stand in this order.

    learning[j] says whether entry j is counted. MODIFIES: scaled; moments (features, 3): count, mean, sum of squared deviations.
    """
    place = np.int64(0)  # in the vector
    for j in range(len(values)):
        f = fields[j]
        length = lengths[f]
        if place >= length or (j > 0 and fields[j - 1] != f):
            place = np.int64(0)
        slot = first[f] + place
        if length == 0 or keys[j] != scale_keys[slot]:
            scaled[j] = values[j]  # a category, or missing
            place = np.int64(0)
            continue
        share = 1.0 if length == 1 else 1.0 / np.sqrt(np.float64(length))
        scaled[j] = _standardised(np.float64(values[j]), moments, slot, share, learning[j])
        place += 1


@jit
def _even_lists(keys, fields, indptr, missing, counted, moments, values):
    """Make lists count like categories; missing[f] is the key of field f's missing list, 0 where a field has no lists.

    MODIFIES: values; and, for samples that count, moments, in which a list's number is the sum of the squares of its values.
    """
    for s in range(len(indptr) - 1):
        j = indptr[s]
        while j < indptr[s + 1]:
            f, own, end = fields[j], 0.0, j
            while end < indptr[s + 1] and fields[end] == f:
                own += np.float64(values[end]) ** 2
                end += 1
            count, mean = moments[f, 0], moments[f, 1]
            if missing[f] != 0 and keys[j] != missing[f] and own > 0.0 and (count > 0.0 or moments[f, 2] > 0.0):
                length = max(mean, own / UNUSUAL) if count > 0.0 else own
                if length > SHORT:
                    share = np.float32(np.sqrt(SHORT / length))
                    for i in range(j, end):
                        values[i] *= share
                if counted[s]:
                    moments[f, 0] = count + 1.0
                    moments[f, 1] = mean + (own - mean) / (count + 1.0)
                    moments[f, 2] += (own - mean) * (own - moments[f, 1])
            j = end


class RunningScale:
    """The running moments of a schema's scaled fields: one line for each field, and then one for each component of its vectors."""

    def __init__(self, schema: Schema) -> None:
        fields = schema.fields
        self._lengths = np.array([field.length or int(field.is_scaled) for field in fields], np.int64)
        vectors = [field for field in fields if field.length]
        self._any = bool(self._lengths.any())
        keys = [np.array([hash_value(field.key_name, SCALE_TEXT) for field in fields], np.uint64), *map(component_keys, vectors)]
        self._keys = np.concatenate(keys)
        self._first = np.arange(len(fields), dtype=np.int64)
        of_vectors = [place for place, field in enumerate(fields) if field.length]
        self._first[of_vectors] = len(fields) + np.cumsum([0, *(field.length for field in vectors)])[:-1]
        self.moments = np.zeros((len(self._keys), 3))
        self._lists = np.array([hash_value(field.key_name, None) if field.kind == "multi" else 0 for field in fields], np.uint64)
        self._any_lists = bool(self._lists.any())
        self.moments[: len(fields)][self._lists > 0, 2] = EVENED

    def learn(self, batch: Batch) -> NDArray[np.float32]:
        """The batch's values, standardised; numbers of samples that count (`Batch.counted`) are counted, one by one."""
        return self._apply(batch, batch.counted)

    def peek(self, batch: Batch) -> NDArray[np.float32]:
        """The batch's values, standardised; nothing changes."""
        return self._apply(batch, np.zeros(len(batch), np.bool_))

    def _apply(self, batch: Batch, counted: NDArray[np.bool_]) -> NDArray[np.float32]:
        scaled = batch.values
        if self._any:
            scaled, learning = np.empty_like(batch.values), np.repeat(counted, np.diff(batch.indptr))
            lengths, first, moments = self._lengths, self._first, self.moments
            _standardise(batch.values, batch.keys, batch.fields, lengths, first, self._keys, moments, learning, scaled)
        if self._any_lists:
            scaled = batch.values.copy() if scaled is batch.values else scaled
            _even_lists(batch.keys, batch.fields, batch.indptr, self._lists, counted, self.moments, scaled)
        return scaled

    def load(self, state: Mapping[str, NDArray]) -> None:
        """Take the moments from a state that was checked."""
        self.moments = np.array(state["scale.moments"])
