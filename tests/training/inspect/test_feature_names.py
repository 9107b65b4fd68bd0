"""Names of features: every key that a batch holds has its name, and it is the one a person would use."""

import numpy as np
import pyarrow as pa
import pytest

from pbodl.data.convert import from_data
from pbodl.data.hashing import hash_value
from pbodl.data.schema import Field, Schema
from pbodl.errors import InputError
from pbodl.system.atomic_files import write_file
from pbodl.training.config import read_config
from pbodl.training.inspect.feature_names import FILE, NameStore, feature_key, load_names, look_up
from pbodl.training.inspect.inspection import overview
from pbodl.training.session import train
from tests.click_log import RICH, click_log
from tests.training.logs import small_config, trained_run, write_log

TABLE = pa.Table.from_pylist(click_log(200))


def store_of(table: pa.Table | pa.RecordBatch, schema: Schema = RICH) -> NameStore:
    store = NameStore(schema)
    store.add(table)
    return store


def test_every_feature_of_a_log_gets_its_name():
    store = store_of(TABLE)
    batch = from_data(RICH, TABLE, True)
    for key, field in zip(batch.keys.tolist(), batch.fields.tolist(), strict=True):
        name = store.name(key)
        assert name is not None
        assert name.startswith(f"{RICH.fields[field].name}=")


def test_the_edges_of_a_curve_are_its_names_and_a_number_means_the_nearest():
    price = Field("price", kind="number", transform="curve", edges=[0.0, 1.5, 20.0])
    schema = Schema(label="click", fields=[Field("ad"), price])
    store = NameStore(schema)
    batch = from_data(schema, [{"ad": "a", "price": number, "click": 0} for number in (1.0, None, 7.0, 99.0)], True)
    names = {store.name(int(key)) for key, field in zip(batch.keys, batch.fields, strict=True) if field == 1}
    assert names == {"price=0", "price=1.5", "price=20", "price=(missing)"}
    assert feature_key(price, "1.4") == feature_key(price, "8") == hash_value("price", 1)
    assert feature_key(price, "1000") == hash_value("price", 2)
    with pytest.raises(InputError, match="'cheap' is not a number"):
        feature_key(price, "cheap")


def test_names_are_the_values():
    store = store_of(TABLE)
    row = TABLE.to_pylist()[3]
    assert store.name(hash_value("user", row["user"])) == f"user={row['user']}"
    assert store.name(hash_value("ad", row["ad"])) == f"ad={row['ad']}"
    assert store.name(hash_value("tags", "tag0")) == "tags=tag0"
    assert store.name(hash_value("site", None)) == "site=(missing)"
    assert store.name(hash_value("hour", 17)) == "hour=17"
    assert store.name(hash_value("age", "scale")) == "age=(its number)"
    assert store.name(12345) is None
    assert len(set(store.names())) == len(store)


def test_the_form_of_the_data_does_not_matter():
    ref = store_of(TABLE).names()
    coded = TABLE.set_column(TABLE.column_names.index("ad"), "ad", TABLE.column("ad").dictionary_encode())
    in_chunks = pa.concat_tables([coded.slice(0, 50), coded.slice(50)])
    assert sorted(store_of(in_chunks).names()) == sorted(ref)
    by_batch = NameStore(RICH)
    for batch in TABLE.to_batches(max_chunksize=17):
        by_batch.add(batch)
    assert sorted(by_batch.names()) == sorted(ref)


def test_equal_texts_have_one_name():
    schema = Schema(label="click", fields=[Field("ad")])
    store = store_of(pa.table({"ad": [1, 2, 1]}), schema)
    store.add(pa.table({"ad": ["1", "2", ""]}))
    store.add(pa.table({"ad": [1.0, 2.5, None]}))
    assert sorted(store.names()) == ["ad=(missing)", "ad=1", "ad=2", "ad=2.5"]


def test_capacity_bounds_it():
    store = NameStore(Schema(label="click", fields=[Field("ad")]), capacity=10)
    store.add(pa.table({"ad": list(range(50))}))
    assert len(store) == 10
    assert store.full
    store.add(pa.table({"ad": ["new"]}))
    assert store.name(hash_value("ad", "new")) is None
    assert store.name(hash_value("ad", 3)) == "ad=3"


def test_long_values_are_cut():
    store = store_of(pa.table({"ad": ["x" * 1000]}), Schema(label="click", fields=[Field("ad")]))
    assert len(store.names()[1]) < 250


def test_saved_and_loaded(tmp_path):
    ref = store_of(TABLE.slice(0, 100))
    ref.save(tmp_path)
    comp = load_names(tmp_path, RICH)
    assert comp is not None
    assert comp.names() == ref.names()
    for store in (ref, comp):
        store.add(TABLE)
    assert comp.names() == ref.names()
    assert sorted(comp.names()) == sorted(store_of(TABLE).names())


def test_nothing_new_is_not_written_again(tmp_path):
    store = store_of(TABLE)
    store.save(tmp_path)
    (tmp_path / FILE).unlink()
    store.add(TABLE)
    store.save(tmp_path)
    assert not (tmp_path / FILE).exists()


def test_no_names_and_damaged_names(tmp_path):
    assert load_names(tmp_path, RICH) is None
    (tmp_path / FILE).write_bytes(b"PAR1 no")
    with pytest.raises(InputError, match=r"names.parquet is damaged"):
        load_names(tmp_path, RICH)


@pytest.mark.parametrize("number", [-1e6, -3.3, -0.1, 0.0, 0.05, 1.0, 3.0, 1234.5])
def test_a_bucket_is_named_by_its_numbers(number):
    schema = Schema(label="click", fields=[Field("x", kind="number")])
    name = store_of(pa.table({"x": [number]}), schema).names()[-1]
    low, high = (float(end) for end in name.removeprefix("x=").split(" to "))
    assert low - 1e-2 * abs(low) <= number <= high + 1e-2 * abs(high)


def test_keys_of_what_a_person_types():
    batch = from_data(RICH, {**click_log(1)[0], "price": 12.5, "site": None}, True)
    keys = dict(zip(batch.fields.tolist(), batch.keys.tolist(), strict=True))
    for name, text in (("price", "12.5"), ("age", "40"), ("site", ""), ("site", "(missing)"), ("ad", click_log(1)[0]["ad"])):
        place = RICH.field_index(name)
        assert feature_key(RICH.fields[place], text) == keys[place], name
    with pytest.raises(InputError, match="price is a number field, and 'dear' is not a number"):
        feature_key(RICH.fields[RICH.field_index("price")], "dear")


def test_a_run_keeps_names_when_asked(tmp_path):
    run = trained_run(tmp_path)
    kept = load_names(run, RICH)
    assert kept is not None
    assert sorted(kept.names()) == sorted(store_of(pa.Table.from_pylist(click_log(600))).names())
    assert read_config(run / "config.toml")["model"]["kind"] == "fm-mlp"
    assert [path.name for path in run.glob(".*")] == [".lock"]


def test_a_run_without_them_keeps_none(tmp_path):
    assert load_names(trained_run(tmp_path, keep_names=False), RICH) is None


def test_a_resumed_run_goes_on_keeping_names(tmp_path):
    run = trained_run(tmp_path)
    write_log(tmp_path / "log2.parquet", 300, seed=8)
    paths = [str(tmp_path / "log.parquet"), str(tmp_path / "log2.parquet")]
    summary = train(small_config(), paths, run, resume=True)
    assert summary["rows"] == 900
    kept = load_names(run, RICH)
    assert kept is not None
    ref = store_of(pa.Table.from_pylist(click_log(600) + click_log(300, seed=8)))
    assert sorted(kept.names()) == sorted(ref.names())


def test_a_few_names_are_looked_up_in_the_file(tmp_path):
    keys = np.array([hash_value("ad", "ad1"), hash_value("user", 3), hash_value("ad", "never seen")], np.uint64)
    assert look_up(tmp_path, keys) == {}
    store_of(TABLE).save(tmp_path)
    assert look_up(tmp_path, keys) == {int(keys[0]): "ad1", int(keys[1]): "3"}
    (tmp_path / FILE).write_bytes(b"not a table")
    with pytest.raises(InputError, match="damaged"):
        look_up(tmp_path, keys)


def flip(path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 0x10
    path.write_bytes(content)


@pytest.mark.parametrize("place", [0.1, 0.4, 0.7, 0.95])
def test_damaged_names_stop_neither_training_nor_looking(tmp_path, place):
    run = trained_run(tmp_path)
    flip(run / FILE, int(place * (run / FILE).stat().st_size))
    with pytest.raises(InputError, match="does not match its checksum"):
        load_names(run, RICH)
    with pytest.raises(InputError, match="damaged"):
        look_up(run, np.array([1], np.uint64))
    with pytest.warns(UserWarning, match="names.parquet is damaged"):
        assert overview(run)["names"] == 0
    write_log(tmp_path / "log2.parquet", 300, seed=8)
    with pytest.warns(UserWarning, match="it is set aside as names.parquet.damaged, and names begin anew"):
        train(small_config(), [str(tmp_path / "log.parquet"), str(tmp_path / "log2.parquet")], run, resume=True)
    kept = load_names(run, RICH)
    assert kept is not None and sorted(kept.names()) == sorted(store_of(pa.Table.from_pylist(click_log(300, seed=8))).names())
    assert (run / f"{FILE}.damaged").exists()


def test_a_kill_between_checksum_and_names_loses_nothing(tmp_path, monkeypatch):
    store = store_of(TABLE.slice(0, 50))
    store.save(tmp_path)
    ref = store.names()
    for end in (100, 200):  # killed twice in the same place
        again = load_names(tmp_path, RICH)
        assert again is not None and again.names() == ref
        again.add(TABLE.slice(0, end))
        with monkeypatch.context() as patch:
            patch.setattr("pbodl.training.inspect.feature_names.write_file", killed_after_one(write_file))
            with pytest.raises(KeyboardInterrupt):
                again.save(tmp_path)
    assert look_up(tmp_path, np.array([hash_value("tags", "tag0")], np.uint64))


def killed_after_one(write):
    left = iter([write])

    def killed(*arguments):
        for one in left:
            return one(*arguments)
        raise KeyboardInterrupt

    return killed


def test_a_full_disk_costs_names_and_not_the_run(tmp_path, monkeypatch):
    write_log(tmp_path / "log.parquet", 600)

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pbodl.training.inspect.feature_names.write_file", full)
    summary = train(small_config(), [str(tmp_path / "log.parquet")], tmp_path / "run", keep_names=True)
    assert summary["rows"] == 600 and not (tmp_path / "run" / FILE).exists()
