"""Minibatches: what is laid out in slots is what was in the history."""

import numpy as np

from pbodl.baselines.buffer import SampleHistory
from pbodl.baselines.minibatch import MinibatchLayout

FIELD_OF_ROW = np.array([0, 0, 1, 1, 1, 2, 2], np.uint16)
SAMPLES = [[0, 2, 3, 5], [1, 6], [], [0, 2, 3, 4, 6]]  # field 1 holds a list


def history() -> SampleHistory:
    indptr = np.concatenate([[0], np.cumsum([len(rows) for rows in SAMPLES])]).astype(np.int64)
    rows = np.array([row for rows in SAMPLES for row in rows], np.int32)
    values = 1.0 + np.arange(len(rows), dtype=np.float32)
    return SampleHistory(indptr, rows, values, np.array([1, 0, 0, 1], np.float32), np.full(4, 0.5, np.float32))


def test_slots_hold_the_samples():
    layout = MinibatchLayout(history(), FIELD_OF_ROW, 3, batch_size=3)
    assert layout.slot_fields == (0, 1, 1, 1, 1, 2)  # three values at most, rounded up to four slots
    for samples in ([3, 0, 1], [2, 0], [1]):
        distinct, places, values, clicks, weights = layout.minibatch(np.array(samples), beyond=64)
        assert places.shape == values.shape == (3, 6)
        assert len(distinct) == len(set(distinct.tolist())) == 18
        for i, sample in enumerate(samples):
            slots = np.flatnonzero(values[i])
            rows = distinct[places[i, slots]]
            assert rows.tolist() == SAMPLES[sample]
            assert [layout.slot_fields[slot] for slot in slots] == FIELD_OF_ROW[rows].tolist()
            first = history().indptr[sample]
            assert values[i, slots].tolist() == history().values[first : first + len(rows)].tolist()
            assert (clicks[i], weights[i]) == (history().clicks[sample], 0.5)
        assert not values[len(samples) :].any()
        assert not weights[len(samples) :].any()
        used = {row for sample in samples for row in SAMPLES[sample]}
        assert set(distinct[distinct < 64].tolist()) == used
