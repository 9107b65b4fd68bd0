"""The mixing function: one to one, every bit counts, and the same for ever."""

import numpy as np
import pytest

from pbodl.data.hashing import wrapping
from pbodl.mixing import mix

GOLDEN_VALUES = {0: 0, 1: 0x5692161D100B05E5, 2**63: 0x25C26EA579CEA98A}


def mixed(numbers):
    with wrapping():
        return [int(mix(np.uint64(number))) for number in numbers]


@pytest.mark.nojit
def test_its_values_are_golden():
    assert mixed(GOLDEN_VALUES) == list(GOLDEN_VALUES.values())


def test_different_numbers_stay_different():
    assert len(set(mixed(range(10_000)))) == 10_000


def test_every_bit_changes_about_half_of_the_result():
    changed = [(a ^ b).bit_count() for bit in range(64) for a, b in [mixed([12345, 12345 ^ 1 << bit])]]
    assert min(changed) > 16 and max(changed) < 48
