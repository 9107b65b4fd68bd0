"""The history's buffer against a list."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pbodl.baselines.buffer import Buffer, SampleHistory, check_columns
from pbodl.errors import InputError

SAMPLES = st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0.0, 0.5, 2.0]), st.integers(0, 5)), max_size=30)


def as_history(samples: list[tuple[int, float, int]], first: int) -> SampleHistory:
    lengths = [length for length, _, _ in samples]
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    rows = np.arange(first, first + indptr[-1]).astype(np.int32)
    n = len(samples)
    weights = np.array([weight for _, weight, _ in samples], np.float32)
    return SampleHistory(indptr, rows, rows.astype(np.float32), np.arange(n, dtype=np.float32) % 2, weights)


@given(chunks=st.lists(SAMPLES, max_size=8), most_rows=st.sampled_from([None, 1, 7]), longest=st.sampled_from([None, 0.5, 10.0]))
def test_it_is_a_list_cut_at_its_start(chunks, most_rows, longest):
    comp = Buffer(most_rows, longest)
    ref: list[tuple] = []
    now, first = 0.0, 0
    for chunk in chunks:
        times = now + np.cumsum([wait for _, _, wait in chunk], dtype=np.float64) if chunk else np.zeros(0)
        history = as_history(chunk, first)
        comp.append(history, times)
        for i, (length, weight, _) in enumerate(chunk):
            begin = first + int(history.indptr[i])
            if weight > 0:
                ref.append((times[i], weight, float(i % 2), list(range(begin, begin + length))))
        now, first = (times[-1] if chunk else now), first + int(history.indptr[-1])
        if most_rows is not None:
            ref = ref[-most_rows:]
        if longest is not None and ref:
            ref = [sample for sample in ref if sample[0] >= ref[-1][0] - longest]
    found = comp.history()
    assert len(comp) == len(ref) == len(found.clicks)
    assert found.weights.tolist() == [sample[1] for sample in ref]
    assert found.clicks.tolist() == [sample[2] for sample in ref]
    for i, sample in enumerate(ref):
        assert found.rows[found.indptr[i] : found.indptr[i + 1]].tolist() == sample[3]
        assert found.part(i, i + 1).values.tolist() == sample[3]
    again = Buffer(most_rows, longest)
    again.append(as_history([(2, 1.0, 1)], 0), np.ones(1))
    again.load_state(comp.state())
    for name, column in comp.state().items():
        np.testing.assert_array_equal(again.state()[name], column)


def test_damaged_columns_are_refused():
    buffer = Buffer(None, None)
    buffer.append(as_history([(2, 1.0, 1), (1, 1.0, 1)], 0), np.ones(2))
    good = buffer.state()
    check_columns(good, table_size=3)
    too_long, negative = np.array([2, 2], np.int32), np.array([4, -1], np.int32)
    for name, bad in (("lengths", too_long), ("lengths", negative), ("clicks", np.zeros(3, np.float32))):
        with pytest.raises(InputError, match="do not fit"):
            check_columns(good | {name: bad}, table_size=3)
    with pytest.raises(InputError, match="rows that its table does not have"):
        check_columns(good, table_size=2)
