"""Other buckets for a number: from each new bucket to the old one around its middle."""

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pbodl.data.hashing import field_seed, hash_integers
from pbodl.data.numbers import bucket
from pbodl.data.schema import Field

FAR = 1e18  # where the outermost buckets of a range end


def key_map(before: Field, field: Field) -> dict[int, int]:
    """The old bucket's key for every new bucket's."""
    old, new = [], []
    for index in _buckets(field):
        low, high = _range(field, index)
        old.append(bucket(_middle(low, high), before.resolution, before.edges))
        new.append(index)
    seed = field_seed(field.key_name)
    keys = [hash_integers(np.array(part, np.int64), seed).tolist() for part in (new, old)]
    return dict(zip(*keys, strict=True))


def moved_keys(before: Field, field: Field) -> dict[int, int]:
    """The new bucket's key for every old bucket's: for rows that are on their way."""
    return key_map(field, before)


def _buckets(field: Field) -> Iterator[int]:
    if field.edges:
        yield from range(len(field.edges) + 1)
        return
    most = bucket(FAR, field.resolution)
    yield from range(-most, most + 1)


def _range(field: Field, index: int) -> tuple[float, float]:
    if field.edges:
        return (
            field.edges[index - 1] if index else min(-FAR, 2.0 * field.edges[0]),
            field.edges[index] if index < len(field.edges) else max(FAR, 2.0 * field.edges[-1]),
        )
    low, high = (math.exp2(edge / field.resolution) - 1.0 for edge in (abs(index), abs(index) + 1))
    if index == 0:
        return -high, high
    return (-high, -low) if index < 0 else (low, high)


def _middle(low: float, high: float) -> float:
    """A number inside: by logarithms where the range is wide and of one sign."""
    if low <= -FAR or high >= FAR:  # an open range: near its known end
        end = high if low <= -FAR else low
        return end - max(abs(end), 1.0) * 1e-6 if low <= -FAR else end + max(abs(end), 1.0) * 1e-6
    return 0.5 * (low + high)


def mapped(keys: NDArray[np.uint64], to: dict[int, int]) -> NDArray[np.uint64]:
    """The keys, those in the map replaced."""
    return np.array([to.get(key, key) for key in keys.tolist()], np.uint64)
