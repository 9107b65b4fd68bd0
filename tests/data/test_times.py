"""Times against Python's own datetime."""

import datetime

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pbodl.data.convert import from_data
from pbodl.data.log.row_faults import good_rows
from pbodl.data.schema import Field, Schema
from pbodl.data.texts import typed
from pbodl.data.times import UNITS, hours_of_day, parse_times
from pbodl.errors import InputError
from pbodl.streaming.events import EventDecoder

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


SECONDS = st.floats(-2e9, 7.2e9, allow_nan=False).map(lambda seconds: round(seconds, 3))


@given(st.lists(SECONDS, min_size=1, max_size=4), st.sampled_from(["s", "ms", "us", "ns"]))
def test_numbers_in_another_unit(seconds: list[float], unit: str) -> None:
    numbers = [second * UNITS[unit] for second in seconds]
    schema = Schema(label="click", time="t", time_unit=unit, fields=[Field("hour", derive="hour_of_day")])
    rows = [{"click": 0, "t": number} for number in numbers]
    texts = typed(schema, pa.table({"click": [0] * len(rows), "t": [repr(number) for number in numbers]}), True)
    for data in (rows, pa.Table.from_pylist(rows), texts):
        comp = from_data(schema, data, labelled=True)
        np.testing.assert_allclose(comp.times, seconds, rtol=0, atol=2e-6)
    for row, second in zip(rows, seconds, strict=True):
        np.testing.assert_allclose(from_data(schema, row, labelled=True).times, [second], rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    ("time", "words"),
    [
        (1731283200500, 'looks like milliseconds; set time_unit = "ms"'),
        (1731283200.5e6, 'looks like microseconds; set time_unit = "us"'),
        (1731283200500000000, 'looks like nanoseconds; set time_unit = "ns"'),
        ("1731283200500", "looks like milliseconds"),
        ("2200-01-01", "it must be in the years 1900 to 2199"),
        ("1899-12-31", "it must be in the years 1900 to 2199"),
        (7258118400.0, "it must be in the years 1900 to 2199"),
        (-3e9, "it must be in the years 1900 to 2199"),
        (1e300, "it must be in the years 1900 to 2199"),
    ],
)
def test_times_in_another_unit_or_far_away_are_refused_wherever_they_come_in(time: float | str, words: str) -> None:
    schema = Schema(label="click", time="t", fields=[Field("ad")])
    row = {"click": 0, "t": time, "ad": "a"}
    shapes = [row, [row, row], pa.Table.from_pylist([row])]
    if isinstance(time, str):
        shapes[0:2] = [] if time.isdigit() else shapes[0:2]
        shapes[-1] = typed(schema, shapes[-1], True)
    for data in shapes:
        with pytest.raises(InputError) as error:
            from_data(schema, data, labelled=True)
        assert words in str(error.value)
    events = EventDecoder(schema).decode([msgspec.json.encode({"event": "impression", "id": 1, "t": time, "ad": "a"})])
    assert not len(events) and words in events.bad[0].reason
    other: float | str = "2020-01-01" if isinstance(time, str) else type(time)(5)
    good, _, faults = good_rows(schema, pa.Table.from_pylist([row, {**row, "t": other}]), True)
    assert len(good) == 1 and words in faults[0]


def test_a_unit_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(InputError, match="allowed are 's', 'ms', 'us' and 'ns'"):
        Schema(label="click", time="t", time_unit="minutes", fields=[Field("ad")])
    for other in ({"time_format": "%Y%m%d"}, {"time": None}):
        with pytest.raises(InputError, match="is for a time column of numbers"):
            Schema(**({"label": "click", "time": "t", "time_unit": "ms", "fields": [Field("ad")]} | other))
