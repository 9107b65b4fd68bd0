"""The synthetic world keeps its promises: the same rows in any batch size, known truth, its structure."""

import gzip

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
import pytest
from sklearn.metrics import log_loss, roc_auc_score

from pbodl.data.synthetic.synthetic_log import BLOCK, World
from pbodl.data.synthetic.world import Effects, geography, market
from pbodl.errors import InputError

ROWS = 200_000


def table(world: World, batch_rows: int = BLOCK) -> pa.Table:
    return plain(pa.Table.from_batches(world.batches(batch_rows)))


def plain(rows: pa.Table) -> pa.Table:
    """The same values without dictionaries, so that `equals` compares values alone."""
    types = [pa.string() if pa.types.is_dictionary(field.type) else field.type for field in rows.schema]
    return rows.cast(pa.schema(list(zip(rows.column_names, types, strict=True))))


def distinct(rows: pa.Table, *names: str) -> int:
    return rows.group_by(list(names)).aggregate([]).num_rows


@pytest.fixture(scope="module")
def small() -> World:
    return World(seed=5, rows=70_001)


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    return table(World(seed=3, rows=ROWS))


@pytest.fixture(scope="module")
def log(rows) -> dict[str, np.ndarray]:
    return {name: rows[name].to_numpy() for name in rows.column_names}


@pytest.mark.parametrize("batch_rows", [997, 4096, BLOCK, 50_000, 1_000_000])
def test_rows_do_not_depend_on_the_batch_size(small, batch_rows):
    ref = table(small)
    batches = list(small.batches(batch_rows))
    comp = plain(pa.Table.from_batches(batches))
    assert all(len(batch) == batch_rows for batch in batches[:-1])
    assert comp.equals(ref)


@pytest.mark.parametrize("start", [1, 997, BLOCK, BLOCK + 5, 70_000, 70_001])
def test_batches_go_on_from_any_row(small, start):
    ref = table(small).slice(start)
    comp = pa.Table.from_batches(small.batches(4096, start=start), next(small.batches(1)).schema)
    assert plain(comp).equals(ref)


def test_deterministic_by_seed():
    ref, comp = (table(World(seed=1, rows=1000)) for _ in range(2))
    assert comp.equals(ref)
    assert not table(World(seed=2, rows=1000)).equals(ref)


@pytest.mark.parametrize(("days", "rows"), [(1, 1), (1, 10), (3, BLOCK), (2, BLOCK + 1)])
def test_small_worlds(days, rows):
    comp = table(World(days=days, rows=rows))
    assert comp.num_rows == rows
    assert np.all(np.diff(comp["time"].to_numpy()) >= 0)


def test_schema_names_columns_of_the_log(small):
    names = [field.name for field in small.schema.fields]
    assert len(names) == 22
    assert {*names, "click", "time", "p_true"} == set(table(small).column_names)
    assert small.schema.groups == ("user", "ad", "context")


def test_time_runs_over_the_days_with_a_daily_pattern(log):
    assert np.all(np.diff(log["time"]) >= 0)
    day = (log["time"] - log["time"][0] // 86400 * 86400) // 86400
    assert np.allclose(np.bincount(day), ROWS / 10, rtol=0.01)
    by_hour = np.bincount(log["time"] // 3600 % 24)
    assert by_hour.max() > 2 * by_hour.min()
    assert log["hour"][0] == 14102100 and log["hour"][-1] == 14103023
    assert np.array_equal(log["hour"] % 100, log["time"] // 3600 % 24)


def test_truth_is_calibrated(log):
    click, p = log["click"], log["p_true"]
    assert np.all((p > 0) & (p < 1))
    assert 0.16 < click.mean() < 0.18
    for part in np.array_split(np.argsort(p), 20):
        error = click[part].sum() - p[part].sum()
        assert abs(error) < 5 * np.sqrt(np.sum(p[part] * (1 - p[part])))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_best_possible_auc_and_log_loss(seed):
    rows = table(World(seed=seed, rows=ROWS))
    click, p = rows["click"].to_numpy(), rows["p_true"].to_numpy()
    assert 0.793 < roc_auc_score(click, p) < 0.807  # 0.80, and 5 standard errors of 200k clicks
    assert 0.360 < log_loss(click, p) < 0.380


@pytest.mark.parametrize(
    ("cause", "effect"),
    [
        ("site_id", "site_domain"), ("site_id", "site_category"), ("app_id", "app_domain"),
        ("app_id", "app_category"), ("device_model", "device_type"), ("C14", "C17"), ("C14", "C15"),
        ("C14", "C16"), ("C17", "C18"), ("C17", "C19"), ("C17", "C21"),
    ],
)  # fmt: skip
def test_functional_dependence(rows, cause, effect):
    assert distinct(rows, cause, effect) == distinct(rows, cause)


def test_known_devices_have_one_model(rows):
    known = rows.filter(pc.field("device_id") != "a99f214a")
    assert 0.15 < known.num_rows / ROWS < 0.25
    assert distinct(known, "device_id", "device_model") == distinct(known, "device_id")


def test_traffic_is_of_a_site_or_an_app(log):
    no_site, no_app = log["site_id"] == "85f751fd", log["app_id"] == "ecad2386"
    assert np.array_equal(no_site, ~no_app)
    for name in ("site_domain", "site_category"):
        assert len(set(log[name][no_site].tolist())) == 1


def test_cardinalities_are_heavy_tailed(rows):
    for name in ("site_id", "app_id", "device_model", "C14", "C17", "device_ip"):
        counts = np.sort(pc.value_counts(rows[name]).field("counts").to_numpy())[::-1]
        assert counts[: len(counts) // 10 + 1].sum() > 0.3 * ROWS, name


def test_share_of_new_ads_each_day(log):
    day = (log["time"] - log["time"][0] // 86400 * 86400) // 86400
    creative = log["C14"].astype(np.int32)
    seen = set(creative[day == 0])
    for today in range(1, 10):
        here = set(creative[day == today])
        assert 0.10 < len(here - seen) / len(here) < 0.20
        seen |= here


def test_effects_of_ads_drift():
    """A creative that stays keeps most of its effect from one day to the next, less of it over more days."""
    ads = market(seed=5, days=10)
    effect = Effects(5, 10, geography(5), ads).ad[:, :, 0]
    likeness = []
    for day in (1, 5):
        stays = ads.creative[day] == ads.creative[0]
        likeness.append(np.corrcoef(effect[0, stays], effect[day, stays])[0, 1])
    assert 0.85 < likeness[0] < 0.99
    assert likeness[1] < likeness[0] - 0.05


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".csv.gz"])
def test_written_file_has_the_same_rows(small, tmp_path, suffix):
    path, told = tmp_path / f"log{suffix}", []
    small.write(path, told.append)
    ref = table(small)
    if suffix == ".parquet":
        comp = plain(pa.parquet.read_table(path))
    else:
        comp = pa.csv.read_csv(path, convert_options=pa.csv.ConvertOptions(column_types=ref.schema))
    assert comp.equals(ref)
    assert sum(told) == small.rows
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_csv_has_a_plain_header(small, tmp_path):
    small.write(tmp_path / "log.csv.gz")
    with gzip.open(tmp_path / "log.csv.gz", "rt") as file:
        assert file.readline().startswith("click,time,hour,C1,banner_pos,site_id,")


def test_failed_write_leaves_nothing(small, tmp_path):
    def fail(rows: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        small.write(tmp_path / "log.parquet", fail)
    assert not list(tmp_path.iterdir())


def test_errors_are_prose(small, tmp_path):
    with pytest.raises(InputError, match="days is 0; it must be a whole number of at least 1"):
        World(days=0)
    with pytest.raises(InputError, match=r"log.json.*\.parquet, \.csv, \.csv\.gz"):
        small.write(tmp_path / "log.json")
    with pytest.raises(InputError, match="batch_rows is 0"):
        next(small.batches(0))
