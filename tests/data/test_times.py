"""Times against Python's own datetime."""

import datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pbodl.data.times import hours_of_day, parse_times
from pbodl.errors import InputError

UTC = datetime.UTC
MOMENTS = st.datetimes(datetime.datetime(1969, 1, 1), datetime.datetime(2068, 12, 31)).map(
    lambda moment: moment.replace(microsecond=0, tzinfo=UTC)
)


@given(
    st.lists(MOMENTS, min_size=1, max_size=5),
    st.sampled_from(["%y%m%d%H", "%Y-%m-%d", "%d.%m.%Y %H:%M:%S", "%y%m%dT%H%M"]),
)
def test_formats_against_strptime(moments, time_format):
    texts = [moment.strftime(time_format) for moment in moments]
    ref = [datetime.datetime.strptime(text, time_format).replace(tzinfo=UTC).timestamp() for text in texts]
    comp = parse_times(pa.array(texts), "t", time_format)
    assert comp.tolist() == ref
    comp = parse_times(pa.array(texts).dictionary_encode(), "t", time_format)
    assert comp.tolist() == ref


@given(st.lists(MOMENTS, min_size=1, max_size=5))
def test_whole_numbers_in_a_format_are_padded_with_zeros(moments):
    texts = [moment.strftime("%y%m%d%H") for moment in moments]
    ref = parse_times(pa.array(texts), "t", "%y%m%d%H")
    comp = parse_times(pa.array([int(text) for text in texts]), "t", "%y%m%d%H")
    assert comp.tolist() == ref.tolist()


@pytest.mark.parametrize(
    "text",
    [
        "2014-10-21",
        "2014-10-21 03:04",
        "2014-10-21T03:04:05",
        "2014-10-21T03:04:05Z",
        "2014-10-21T03:04:05.25",
        "2014-10-21 03:04:05.25Z",
        "2014-10-21T03:04:05+02:00",
        "2014-10-21T03:04:05-0230",
    ],
)
def test_iso_text(text):
    moment = datetime.datetime.fromisoformat(text)
    ref = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    comp = parse_times(pa.array(["1970-01-01", text, text]), "t", None)
    assert comp.tolist() == [0.0, ref, ref]


def test_numbers_and_timestamps():
    moment = datetime.datetime(2014, 10, 21, 3, tzinfo=UTC)
    ref = moment.timestamp()
    for array in (
        pa.array([int(ref)]),
        pa.array([ref]),
        pa.array([moment]),
        pa.array([moment.replace(tzinfo=None)]),
        pa.array([moment], pa.timestamp("ns", "Europe/Vienna")),
        pa.array([moment.replace(tzinfo=None)], pa.timestamp("s")),
    ):
        assert parse_times(array, "t", None).tolist() == [ref]
    assert parse_times(pa.array([moment.date()]), "t", None).tolist() == [ref - 3 * 3600]


@pytest.mark.parametrize(
    ("values", "time_format", "words"),
    [
        ([1.0, float("nan")], None, "row 1: time column 't' holds nan"),
        ([1, None], None, "row 1: time column 't' holds None"),
        ([None], None, "row 0: time column 't' holds None"),
        ([float("inf")], None, "row 0"),
        (["2014-10-21", "2014-13-01", "x", "2014-10-22"], None, "row 1: time column 't' holds '2014-13-01'"),
        (["2014-10-21", "2014-10-22", "", "2014-10-22"], None, "row 2"),
        ([14102100, 14022900], "%y%m%d%H", "row 1: time column 't' holds 14022900"),
        ([14102124], "%y%m%d%H", "format '%y%m%d%H'"),
        (["1410210"], "%y%m%d%H", "row 0"),
        (["2014/10/21"], "%Y-%m-%d", "row 0"),
        (["14-1x-21"], "%y-%m-%d", "row 0"),
        ([-14102100], "%y%m%d%H", "row 0"),
        (["14102100", None], "%y%m%d%H", "row 1"),
        ([1.5], "%y%m%d%H", "has type double"),
        ([True], None, "has type bool"),
    ],
)
def test_refusals(values, time_format, words):
    with pytest.raises(InputError) as error:
        parse_times(pa.array(values), "t", time_format)
    assert words in str(error.value)


def test_hours_of_day():
    assert hours_of_day(np.array([0.0, 3599.9, 3600.0, 86399.0, 86400.0, -1.0])).tolist() == [
        0,
        0,
        1,
        23,
        0,
        23,
    ]
