"""Other buckets for a number, or edges of its curve: from each new one to the old one around its middle, or nearest to it."""

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pbodl.data.hashing import field_seed, hash_integers
from pbodl.data.numbers import bucket, shares
from pbodl.data.schema import Field

FAR = 1e18  # where the outermost buckets of a range end


def key_map(before: Field, field: Field) -> dict[int, int]:
    """The old bucket's key for every new bucket's."""
    old, new = [], []
    for index in _features(field):
        number = field.edges[index] if field.is_curve else _middle(*_range(field, index))
        nearest = max(shares(number, before.edges), key=lambda each: each[1])[0] if before.is_curve else None
        old.append(bucket(number, before.resolution, before.edges) if nearest is None else nearest)
        new.append(index)
    seed = field_seed(field.key_name)
    keys = [hash_integers(np.array(part, np.int64), seed).tolist() for part in (new, old)]
    return dict(zip(*keys, strict=True))


def moved_keys(before: Field, field: Field) -> dict[int, int]:
    """The new bucket's key for every old bucket's: for rows that are on their way."""
    return key_map(field, before)


def _features(field: Field) -> Iterator[int]:
    """The buckets of a field, or the edges of its curve."""
    if field.edges:
        yield from range(len(field.edges) + (not field.is_curve))
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
