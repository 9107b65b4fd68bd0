"""Options that an engine would ignore are refused."""

import pytest

from pbodl.errors import InputError
from pbodl.parallel.engines import OF_RAY, check_engine


def test_the_usual_options_suit_every_engine():
    check_engine("threads", **OF_RAY)
    check_engine("ray", **OF_RAY)


@pytest.mark.parametrize(
    "option, value", [("address", "auto"), ("shards", 2), ("minibatch", 256), ("wire_bits", 32), ("shard_timeout", 9.0)]
)
def test_threads_have_no_options_of_ray(option, value):
    check_engine("ray", **OF_RAY | {option: value})
    with pytest.raises(InputError, match=f"--{option.replace('_', '-')} is an option of --engine ray"):
        check_engine("threads", **OF_RAY | {option: value})


def test_other_engines_and_widths_are_refused():
    with pytest.raises(InputError, match="engine is 'spark'; it must be one of: threads, ray"):
        check_engine("spark", **OF_RAY)
    with pytest.raises(InputError, match="wire_bits is 8"):
        check_engine("ray", **OF_RAY | {"wire_bits": 8})
