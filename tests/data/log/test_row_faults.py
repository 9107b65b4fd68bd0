"""Which rows are bad: against making the batch row by row."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pbodl.data.convert import from_data
from pbodl.data.log.row_faults import row_faults
from pbodl.data.schema import Field, Schema
from pbodl.data.texts import typed
from pbodl.errors import InputError

SCHEMA = Schema(
    label="click",
    time="when",
    weight="importance",
    fields=[
        Field("site"),
        Field("price", kind="number"),
        Field("age", kind="number", transform="scale"),
        Field("hour", derive="hour_of_day"),
    ],
)


def column(*values):
    return st.sampled_from(values)


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "click": column("0", "1", "1", "true", "2", "", None),
            "when": column("1413849600", "2014-10-21", "2014-10-21T05:00:00Z", "yesterday", "inf", None),
            "importance": column("1", "0.5", "-1", "nan"),
            "site": column("a", "", None),
            "price": column("1", "", None, "1e5", "inf", "dear"),
            "age": column("1", "", "1e39"),
        }
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=40)
@given(ROWS, st.booleans(), st.sampled_from([pa.string(), pa.dictionary(pa.int32(), pa.string())]))
def test_against_one_row_at_a_time(rows, labelled, kind):
    table = pa.table({name: pa.array([row[name] for row in rows], pa.string()).cast(kind) for name in rows[0]})
    ref = []
    for row in range(len(rows)):
        try:
            from_data(SCHEMA, typed(SCHEMA, table.slice(row, 1), labelled), labelled)
        except InputError:
            ref.append(row)
    comp = row_faults(SCHEMA, pa.concat_tables([table.slice(0, 5), table.slice(5)]), labelled)
    assert list(comp) == ref
    good = np.array([row for row in range(len(rows)) if row not in ref], dtype=np.int64)
    assert len(from_data(SCHEMA, typed(SCHEMA, table.take(good), labelled), labelled)) == len(good)


def test_faults_name_column_and_value():
    table = pa.table({"click": [1, 0, 3], "when": [1.0, None, 2.0], "importance": [1, 1, 1]})
    table = table.append_column("site", pa.array(["a"] * 3)).append_column("price", pa.array(["1", "2", "x"]))
    table = table.append_column("age", pa.array([1, 2, 3]))
    faults = row_faults(SCHEMA, table, labelled=True)
    assert faults == {
        1: "time column 'when' holds None; it must be epoch seconds or ISO 8601",
        2: "label 'click' holds 3; it must be 0 or 1 (or False or True, no or yes)",
    }


@pytest.mark.parametrize(
    ("change", "words"),
    [({"when": [True]}, "time column 'when' has type bool"), ({"click": [[1]]}, "column 'click' holds list")],
)
def test_faults_of_a_whole_column_are_errors(change, words):
    row = {"click": [1], "when": [1.0], "importance": [1.0], "price": [1.0], "age": [1.0]}
    with pytest.raises(InputError, match=words):
        row_faults(SCHEMA, pa.table(row | change), labelled=True)
