"""Guessing schemas: what is seen, what is taken for what, what is warned of, and the TOML."""

import json
import tomllib

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from pbodl.data.guess.guess_toml import guess_toml
from pbodl.data.guess.schema_guess import Guess, guess
from pbodl.data.log.log_reader import open_log
from pbodl.data.schema import Field, Schema
from pbodl.data.synthetic import World
from pbodl.errors import InputError

N = 200


def log(**changes) -> dict:
    """Columns of a small log."""
    rng = np.random.default_rng(0)
    columns = {
        "event_id": [f"e{i}" for i in range(N)],
        "clicked": [int(i % 5 == 0) for i in range(N)],
        "ts": [1413849600 + 600 * i for i in range(N)],
        "userId": [f"u{i}" for i in rng.integers(0, 40, N)],
        "campaign": rng.integers(0, 7, N).tolist(),
        "price": [None if i % 10 == 0 else round(float(x), 3) for i, x in enumerate(rng.random(N))],
        "site": [f"s{i % 9}" for i in range(N)],
        "version": ["v2"] * N,
    }
    return columns | changes


def write(path, columns: dict):
    if path.suffix == ".parquet":
        pa.parquet.write_table(pa.table(columns), path)
    else:
        names = list(columns)
        rows = [["" if columns[name][i] is None else str(columns[name][i]) for name in names] for i in range(N)]
        path.write_text("".join(",".join(row) + "\n" for row in [names, *rows]), encoding="utf-8")
    return path


def warned(found: Guess, words: str) -> bool:
    return any(words in warning for warning in found.warnings)


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_a_log(tmp_path, name):
    path = write(tmp_path / name, log())
    found = guess(path)
    ref = Schema(
        label="clicked",
        time="ts",
        fields=[
            Field("hour_of_day", derive="hour_of_day"),
            Field("userId", group="user"),
            Field("campaign", group="ad"),
            Field("price", group="ad", kind="number", transform="curve", edges=found.fields[3].edges),
            Field("site"),
        ],
    )
    prices = [price for price in log()["price"] if price is not None]
    # Half way between parts of the same size and parts of the same width.
    low, high = np.quantile(prices, [0.02, 0.98])
    inner = (np.quantile(prices, [0.25, 0.5, 0.75]) + low + (high - low) * np.array([0.25, 0.5, 0.75])) / 2
    np.testing.assert_allclose(found.fields[3].edges, [min(prices), *inner, max(prices)], atol=0.02)
    assert found.schema() == ref
    assert msgspec.convert(tomllib.loads(guess_toml(found))["schema"], Schema) == ref
    assert (found.rows, found.whole, found.files) == (N, True, [str(path)])
    assert found.figures.clicks == 0.2
    assert (found.figures.first, found.figures.last) == (1413849600.0, 1413849600.0 + 600 * (N - 1))
    columns = {column.name: column for column in found.columns}
    assert (columns["price"].missing, columns["price"].kind) == (0.1, "fraction")
    assert (columns["site"].distinct, columns["campaign"].distinct) == (9, 7)
    assert {name for name, column in columns.items() if column.role == "left out"} == {"event_id", "version"}
    assert warned(found, "'version' is left out: it is constant, 'v2'")
    assert warned(found, "'event_id' is left out: nearly every row has a value of its own")
    assert len(found.warnings) == 2
    with open_log(path, found.schema()) as opened:
        assert sum(len(chunk.batch) for chunk in opened) == N


def test_toml_shows_what_was_seen(tmp_path):
    text = guess_toml(guess(write(tmp_path / "a.csv", log())))
    assert "all 200 rows, 20.0% of them clicked, 2014-10-21 00:00 to 2014-10-22 09:10 (UTC)" in text
    assert "# Mind: column 'version' is left out" in text
    assert 'name = "price"  # ' in text
    assert "10.0% missing" in text


@pytest.mark.parametrize(
    ("name", "values", "ref"),
    [
        ("hour", [f"141021{i % 24:02d}" for i in range(N)], "%y%m%d%H"),
        ("hour", [14102100 + i % 24 for i in range(N)], "%y%m%d%H"),
        ("day", [20141000 + 1 + i % 30 for i in range(N)], "%Y%m%d"),
        ("time", [f"20141021{i % 24:02d}0000" for i in range(N)], "%Y%m%d%H%M%S"),
        ("created_at", [f"2014-10-21T{i % 24:02d}:00:00Z" for i in range(N)], None),
        ("moment", [f"2014-10-21 {i % 24:02d}:00" for i in range(N)], None),
        ("timestamp", [1413849600.5 + i for i in range(N)], None),
    ],
)
def test_times(tmp_path, name, values, ref):
    columns = log(**{name: values})
    del columns["ts"]
    for file in ("a.csv", "a.parquet"):
        found = guess(write(tmp_path / file, columns))
        assert (found.time, found.time_format) == (name, ref)
        assert ("hour_of_day" in [field.name for field in found.fields]) == (name not in ("day", "timestamp"))


def test_of_two_times_the_finer(tmp_path):
    found = guess(write(tmp_path / "a.csv", log(day=[20141021] * 100 + [20141022] * 100)))
    assert found.time == "ts"
    assert warned(found, "'day' is left out: it is another time")


def test_a_time_that_not_all_rows_have_is_none(tmp_path):
    found = guess(write(tmp_path / "a.csv", log(ts=[f"2014-10-21 {i % 24:02d}:00" for i in range(N - 1)] + ["soon"])))
    assert found.time is None
    with open_log(tmp_path / "a.csv", found.schema()) as opened:
        assert sum(len(chunk.batch) for chunk in opened) == N


def test_disorder_is_warned_of(tmp_path):
    found = guess(write(tmp_path / "a.csv", log(ts=[1413849600 + (i * 7) % N for i in range(N)])))
    assert found.figures.out_of_order > 0
    assert warned(found, "not sorted by time")


def test_labels_that_are_doubtful(tmp_path):
    columns = log(clicked=["maybe", "no"] * (N // 2))
    found = guess(write(tmp_path / "a.csv", columns))
    assert found.label is None
    assert warned(found, "no column can be taken for the label ('clicked' does not hold 0 and 1)")
    assert '# label = "clicked == ' in guess_toml(found) and "clicked" not in [field.name for field in found.fields]
    with pytest.raises(InputError, match="can be taken for the label"):
        found.schema()
    del columns["clicked"]
    found = guess(write(tmp_path / "a.csv", columns | {"outcome": [0, 1] * (N // 2)}))
    assert found.label == "outcome"
    assert warned(found, "as it alone holds 0 and 1")


def test_lists_predictions_and_bools(tmp_path):
    columns = log(words=[["a", "b"] if i % 2 else [] for i in range(N)], clicked=[i % 3 == 0 for i in range(N)])
    columns |= {"pctr": [i / N for i in range(N)], "tags": ["x|y" if i % 2 else "x" for i in range(N)]}
    found = guess(write(tmp_path / "a.parquet", columns))
    kinds = {field.name: field.kind for field in found.fields}
    assert (kinds["words"], kinds["tags"], found.label) == ("multi", "multi", "clicked")
    assert warned(found, "'pctr' is left out: it looks like a predicted or true probability")


def test_json_lines_and_bad_rows(tmp_path):
    path = tmp_path / "a.jsonl"
    rows = pa.table(log()).to_pylist()
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + "{\n", encoding="utf-8")
    found = guess(path)
    assert (found.label, found.time, found.rows) == ("clicked", "ts", N)
    assert warned(found, f"there are bad rows; the first is {path}, line {N + 1}: it is not JSON")


def test_a_label_that_is_missing_in_places_is_warned_of(tmp_path):
    found = guess(write(tmp_path / "a.csv", log(clicked=[None] + [0, 1, 1] * 66 + [0])))
    assert found.label == "clicked"
    assert warned(found, "some rows do not match this guess: row 0: label 'clicked' holds ''")


def test_only_the_first_rows(tmp_path):
    World(seed=1, days=3, rows=5000).write(tmp_path / "a.parquet")
    found = guess(tmp_path / "a.parquet", rows=1000)
    assert (found.rows, found.whole) == (1000, False)
    assert "the first 1,000 rows" in guess_toml(found)
    left_out = {column.name for column in found.columns if column.role == "left out"}
    assert {"hour", "p_true"} <= left_out
    assert (found.label, found.time) == ("click", "time")


def test_refusals(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n")
    with pytest.raises(InputError, match="there are no rows"):
        guess(tmp_path / "a.csv")
    second = tmp_path / "b.csv"
    second.write_text("a,c\n1,2\n")
    found = guess([write(tmp_path / "a.csv", log()), second])
    assert warned(found, f"{second} has no column 'clicked', which {tmp_path / 'a.csv'} has")
    with pytest.raises(InputError, match="rows is 0"):
        guess(tmp_path / "a.csv", rows=0)


def test_a_label_of_two_other_words_is_proposed_and_the_proposal_trains(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(
        "Geschlecht;Anzeige;geklickt\n"
        + "".join(f"{'w' if n % 5 < 2 else 'm'};a{n % 4};{'ja' if n % 6 == 0 else 'nein'}\n" for n in range(60))
    )
    found = guess(path)
    assert found.label is None and warned(found, 'set `label`: for example `label = "geklickt == ja"`')
    # All that is left to do is to uncomment the line.
    schema = msgspec.convert(tomllib.loads(guess_toml(found).replace("# label =", "label ="))["schema"], Schema)
    assert (schema.label, [field.name for field in schema.fields]) == ("geklickt == ja", ["Geschlecht", "Anzeige"])
    with open_log([str(path)], schema) as reader:
        assert sum(chunk.batch.clicks.sum() for chunk in reader) == 10
