"""Logs of real rows with drawn clicks: what comes from the log, what is new, and what is refused."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from pbodl.data.schema import Field, Schema
from pbodl.data.synthetic import World
from pbodl.data.synthetic.resampled_log import resampled
from pbodl.errors import InputError
from tests.command_line import run_pbodl

WORLD = World(seed=3, rows=6000)
LOG = pa.Table.from_batches(WORLD.batches()).drop_columns(["p_true"])


@pytest.fixture(scope="module")
def likeness() -> pa.Table:
    return resampled(WORLD.schema, LOG, 9000, seed=4)


def test_columns_of_a_group_come_from_one_row(likeness: pa.Table) -> None:
    assert likeness.column_names == [*LOG.column_names, "p_true"] and len(likeness) == 9000
    real, drawn = LOG.to_pandas().astype(str), likeness.to_pandas().astype(str)
    names = {group: [f.name for f in WORLD.schema.fields if f.group == group and f.source] for group in WORLD.schema.groups}
    for columns in names.values():
        assert set(map(tuple, drawn[columns].values)) <= set(map(tuple, real[columns].values))
    every = [name for columns in names.values() for name in columns]
    known = set(map(tuple, real[every].values))
    mixed = sum(row not in known for row in map(tuple, drawn[every].values))
    assert 0.15 < mixed / 9000 < 1 / 3 + 0.02  # a third exchanges columns, some of them for the same
    times = likeness["time"].to_numpy()
    assert (np.diff(times) >= 0).all() and set(times) <= set(LOG["time"].to_numpy())


def test_clicks_follow_the_truth(likeness: pa.Table) -> None:
    p, clicks = likeness["p_true"].to_numpy(), likeness["click"].to_numpy()
    assert abs(p.mean() - LOG["click"].to_numpy().mean()) < 0.02
    for low, high in ((0.0, 0.1), (0.1, 0.2), (0.2, 0.4), (0.4, 1.0)):
        some = (p >= low) & (p < high)
        error = 5 * np.sqrt((p * (1 - p))[some].sum())
        assert abs(clicks[some].sum() - p[some].sum()) < error
    assert p.std() > 0.05


def test_the_seed_decides(likeness: pa.Table) -> None:
    assert likeness.equals(resampled(WORLD.schema, LOG, 9000, seed=4))
    assert not likeness.equals(resampled(WORLD.schema, LOG, 9000, seed=5))


@pytest.mark.parametrize(("change", "words"), [
    (lambda: (WORLD.schema, LOG.slice(0, 10), 5), "the log has 10 rows"),
    (lambda: (WORLD.schema, LOG, 0), "rows is 0"),
    (lambda: (WORLD.schema, LOG.append_column("p_true", LOG["click"]), 5), "already"),
    (lambda: (WORLD.schema, LOG.set_column(0, "click", pa.array(np.zeros(6000, np.int8))), 5), "has 1 different values"),
    (lambda: (Schema(label="C15 >= 300", fields=[Field("C14", group="ad")]), LOG, 5), "is computed"),
])  # fmt: skip
def test_what_cannot_be_resampled_is_refused(change, words: str) -> None:
    with pytest.raises(InputError, match=words):
        resampled(*change())


def test_the_command_writes_a_log_that_the_schema_reads(tmp_path: Path) -> None:
    source, out = tmp_path / "log.csv", tmp_path / "new.csv"
    pyarrow.csv.write_csv(LOG, source)
    done = run_pbodl("data", "resample", source, "--preset", "synthetic", "--rows", "2000", "--out", out)
    assert done.code == 0, done.output
    written = pyarrow.csv.read_csv(out)
    assert len(written) == 2000 and written["p_true"].to_numpy().min() > 0.0 and set(written["click"].to_pylist()) == {0, 1}
    again = run_pbodl("data", "resample", out, "--preset", "synthetic", "--rows", "20", "--out", tmp_path / "x.txt")
    assert again.code == 2 and not (tmp_path / "x.txt").exists()
