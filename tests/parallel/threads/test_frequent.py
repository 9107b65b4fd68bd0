"""Which rows threads have copies of."""

from collections import Counter

import numpy as np
import pytest

from pbodl.kernels.arguments import Features
from pbodl.parallel.threads.frequent import FREQUENT, MOST, SLOTS, frequent_rows


def zipf_log(samples: int, seed: int, fields: int = 5) -> Features:
    """Samples of 0 to `fields` features, few of which are frequent; a row's field is its remainder."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, fields + 1, samples)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    rows = (rng.zipf(1.3, indptr[-1]) % 50_000).astype(np.int32)
    return Features(indptr, rows, rows.astype(np.uint64), np.ones(len(rows), np.float32), rows % np.int32(fields))


@pytest.mark.nojit
@pytest.mark.parametrize(("samples", "seed"), [(250, 0), (250, 1), (40, 2)])  # all of them are asked
def test_rows_are_counted_as_one_would_by_hand(samples, seed):
    features = zipf_log(samples, seed)
    copied, share = frequent_rows(features)
    counted = Counter(features.rows.tolist())
    np.testing.assert_array_equal(share, [counted[row] / samples for row in copied.rows.tolist()])
    np.testing.assert_array_equal(copied.fields, copied.rows % 5)
    assert (np.diff(share) <= 0).all()
    wanted = {row for row, times in counted.items() if times >= FREQUENT}
    assert set(copied.rows.tolist()) <= wanted
    # What is left out had to make way: for one of its slot, or because there are too many.
    slots = set((copied.rows % SLOTS).tolist())
    for row in wanted - set(copied.rows.tolist()):
        assert row % SLOTS in slots or len(copied.rows) == MOST
    for place, row in enumerate(copied.rows.tolist()):
        assert copied.slots[row % SLOTS].tolist() == [row, place]
    assert (copied.slots[:, 0] >= 0).sum() == len(copied.rows)


@pytest.mark.nojit
def test_of_a_long_batch_all_parts_are_asked():
    rows = np.repeat(np.arange(8, dtype=np.int32), 1000)
    features = Features(np.arange(8001), rows, rows.astype(np.uint64), np.ones(8000, np.float32), rows * np.int32(0))
    copied, share = frequent_rows(features)
    assert sorted(copied.rows.tolist()) == list(range(8))
    np.testing.assert_allclose(share, 1 / 8)


@pytest.mark.nojit
def test_samples_without_features_have_nothing_frequent():
    none = np.zeros(0, np.int32)
    found = frequent_rows(Features(np.zeros(9, np.int64), none, none.astype(np.uint64), none.astype(np.float32), none))
    assert len(found.copied.rows) == len(found.share) == found.copied.often == 0
