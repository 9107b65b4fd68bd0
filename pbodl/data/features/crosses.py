"""Crosses: a field whose value is the combination of the values of other fields.

The key of a combination is a hash of the keys of its parts, so that every way to the parts' keys is a way to the cross.
"""

import functools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pbodl._jit import jit
from pbodl.data.hashing import field_seed, hash_keys, wrapping
from pbodl.data.schema import Schema


@functools.lru_cache(maxsize=256)
def crosses_of(schema: Schema) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """The crosses of a schema: the index of each, and the indices of its parts."""
    return tuple(
        (place, tuple(schema.field_index(name) for name in field.cross)) for place, field in enumerate(schema.fields) if field.cross
    )


@jit
def _cross(parts, seed, keys):
    """MODIFIES: keys."""
    for i in range(len(keys)):
        keys[i] = hash_keys(parts[:, i], seed)


def cross_keys(name: str, parts: Sequence[NDArray[np.uint64]]) -> NDArray[np.uint64]:
    """The keys of the cross `name`, from the keys of its parts, sample by sample."""
    keys = np.empty(len(parts[0]), np.uint64)
    with wrapping():
        _cross(np.stack(parts), field_seed(name), keys)
    return keys
