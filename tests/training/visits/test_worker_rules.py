"""What [training] says about several workers."""

import pytest

from pbodl.errors import InputError
from pbodl.models.clock import Duration
from pbodl.training.visits.worker_rules import MERGES, burn_in_of, check_merge, stream_burn_in


@pytest.mark.parametrize(
    ("given", "span"),
    [
        ("100k", Duration(1e5, True)),
        ("2000", Duration(2000.0, True)),
        (5000, Duration(5000.0, True)),
        ("2d", Duration(172800.0, False)),
        ("1M rows", Duration(1e6, True)),
        (None, None),
    ],
)
def test_a_burn_in_is_rows_or_time(given, span):
    assert burn_in_of(given) == span


@pytest.mark.parametrize("given", ["soon", "0", "-5", ""])
def test_other_burn_ins_are_refused(given):
    with pytest.raises(InputError, match="burn_in is"):
        burn_in_of(given)


def test_a_stream_counts_its_burn_in_in_rows():
    assert [stream_burn_in(given) for given in ("100k", 7, None)] == ["100k", 7, None]
    with pytest.raises(InputError, match="burn_in is '2d'; for a stream, give it in rows"):
        stream_burn_in("2d")


def test_merge_rules_have_names():
    assert [check_merge(name) for name in MERGES] == list(MERGES)
    with pytest.raises(InputError, match="merge is 'average'; it must be one of: shared, add"):
        check_merge("average")
