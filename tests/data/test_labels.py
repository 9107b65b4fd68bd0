"""Labels and weights: what is taken, and what is refused with the number of its row."""

import numpy as np
import pyarrow as pa
import pytest

from pbodl.data.labels import check_label, check_weight, parse_labels, parse_weights
from pbodl.errors import InputError

GOOD = [pa.array([0, 1, 1]), pa.array([0.0, 1.0, 1.0]), pa.array([False, True, True]), pa.array([0, 1, 1]).dictionary_encode()]


@pytest.mark.parametrize("column", GOOD, ids=lambda column: str(column.type))
def test_labels_of_every_type(column):
    labels = parse_labels(column, "click")
    assert labels.dtype == np.float32
    np.testing.assert_array_equal(labels, [0, 1, 1])


@pytest.mark.parametrize(
    "bad", [pa.array([1, 2, 0]), pa.array([1, None, 0]), pa.array([1.0, float("nan"), 0.0]), pa.array([0.0, 0.5])]
)
def test_a_bad_label_is_named_with_its_row(bad):
    with pytest.raises(InputError, match="row 1: label 'click'"):
        parse_labels(bad, "click")


def test_words_are_labels():
    assert parse_labels(pa.array(["1", "False", "yes", " no "]), "click").tolist() == [1, 0, 1, 0]
    assert parse_labels(pa.array(["t", "f"]).dictionary_encode(), "click").tolist() == [1, 0]
    with pytest.raises(InputError, match="row 1: label 'click' holds 'maybe'; it must be 0 or 1"):
        parse_labels(pa.array(["1", "maybe"]), "click")


@pytest.mark.parametrize("value", [0, 1, True, False, 1.0, np.float32(0), np.int8(1), np.bool_(True)])
def test_one_label(value):
    assert check_label(value, 0, "click") == float(value)


@pytest.mark.parametrize("value", [2, -1, 0.5, float("nan"), None, "maybe", [1]])
def test_one_bad_label(value):
    with pytest.raises(InputError, match="row 7: label 'click'"):
        check_label(value, 7, "click")


def test_weights():
    np.testing.assert_array_equal(parse_weights(pa.array([0.0, 2.5, 3e38]), "weight"), np.array([0.0, 2.5, 3e38], np.float32))


@pytest.mark.parametrize("bad", [-0.1, float("inf"), float("nan"), None, 1e39])
def test_a_bad_weight_is_named_with_its_row(bad):
    with pytest.raises(InputError, match="row 1: weight 'weight'"):
        parse_weights(pa.array([1.0, bad]), "weight")
    with pytest.raises(InputError, match="row 4: weight 'weight'"):
        check_weight(bad, 4, "weight")
