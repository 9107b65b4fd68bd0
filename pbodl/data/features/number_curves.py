"""Numbers on a curve: the features of the two edges that each number lies between, with its shares of them."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl.data.hashing import field_seed, hash_integers, hash_value
from pbodl.data.numbers import curve
from pbodl.data.schema import Field

SLOTS = 2  # features of a number, at most


class CurveFeatures(NamedTuple):
    """The features of numbers; a number that is missing, on an edge or beyond the edges has one."""

    keys: NDArray[np.uint64]  # (numbers, SLOTS)
    shares: NDArray[np.float32]  # (numbers, SLOTS)
    filled: NDArray[np.bool_]  # (numbers, SLOTS)


def curve_features(field: Field, numbers: NDArray[np.float64]) -> CurveFeatures:
    """The features of a column of numbers; NaN is missing."""
    missing = np.isnan(numbers)
    left, share = curve(np.where(missing, field.edges[0], numbers), field.edges)
    knots = hash_integers(np.arange(len(field.edges)), field_seed(field.key_name))
    keys = knots[left[:, None] + np.arange(SLOTS)]
    shares = np.stack([(1.0 - share.astype(np.float64)).astype(np.float32), share], axis=1)
    keys[missing, 0] = hash_value(field.key_name, None)
    return CurveFeatures(keys, shares, shares > 0.0)
