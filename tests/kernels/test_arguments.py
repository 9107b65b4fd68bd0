"""The bundles: parts of a batch are the same samples, in the same memory."""

import numpy as np
import pytest

from pbodl.kernels.arguments import Features, LabelledSamples, Outputs, most_features, outputs_between, samples_between

F32 = np.float32
INDPTR = np.array([0, 2, 2, 5, 6])


def batch():
    rows = np.arange(10, 16, dtype=np.int32)
    features = Features(INDPTR, rows, rows.astype(np.uint64), rows.astype(F32), (rows % 3).astype(np.int32))
    return LabelledSamples(
        features, np.array([0, 1, 0, 1], F32), np.ones(4, F32), np.arange(4.0), np.zeros(4, F32), np.ones(4, F32)
    )


@pytest.mark.nojit
@pytest.mark.parametrize(("start", "stop"), [(0, 4), (1, 3), (2, 4), (1, 2), (3, 3)])
def test_a_part_has_the_entries_of_its_samples(start, stop):
    samples = batch()
    part = samples_between(samples, start, stop)
    for own, sample in enumerate(range(start, stop)):
        ref = slice(INDPTR[sample], INDPTR[sample + 1])
        comp = slice(part.features.indptr[own], part.features.indptr[own + 1])
        for name in ("rows", "keys", "values", "fields"):
            np.testing.assert_array_equal(getattr(part.features, name)[comp], getattr(samples.features, name)[ref])
    np.testing.assert_array_equal(part.clicks, samples.clicks[start:stop])
    np.testing.assert_array_equal(part.clock, samples.clock[start:stop])
    assert len(part.powers) == stop - start


@pytest.mark.nojit
def test_parts_share_memory_with_the_batch():
    samples, outputs = batch(), Outputs(np.zeros(4), np.zeros(4), np.zeros(6, np.int64))
    samples_between(samples, 2, 4).features.rows[0] = 99
    assert samples.features.rows[2] == 99
    part = outputs_between(outputs, 1, 3)
    part.mean[:], part.rejected[0] = 7.0, 5
    assert outputs.mean.tolist() == [0.0, 7.0, 7.0, 0.0] and outputs.rejected[0] == 5


@pytest.mark.nojit
def test_most_features():
    assert most_features(INDPTR) == 3
    assert most_features(np.array([0, 0])) == 1
