"""Predictions in a file: one for each row, in order, whole or not at all."""

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest
from scipy.special import ndtr

import pbodl
from pbodl.data.log.log_reader import open_log
from pbodl.errors import InputError
from pbodl.training.predict import predict_file
from tests.click_log import RICH, click_log, without
from tests.training.logs import chunks, write_log

LOG = click_log(700, seed=2)


@pytest.fixture(scope="module")
def model():
    model = pbodl.FMMLP(RICH, dim=3, hidden=(4,))
    model.learn(click_log(500))
    return model


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_predictions_are_aligned_with_the_rows(model, suffix, tmp_path):
    out = tmp_path / f"predictions{suffix}"
    seen: list[int] = []
    assert predict_file(model, chunks(LOG, size=300), out, seen.append) == 700
    assert seen == [300, 600, 700]
    table = pyarrow.parquet.read_table(out) if suffix == ".parquet" else pyarrow.csv.read_csv(out)
    ref = model.predict(LOG)
    assert table.column_names == ["ctr", "std", "latent_mean", "latent_std"]
    np.testing.assert_array_equal(table["ctr"], ref.ctr)
    np.testing.assert_array_equal(table["std"], ref.std)
    np.testing.assert_array_equal(table["latent_mean"], ref.mean)
    np.testing.assert_array_equal(table["latent_std"], np.sqrt(ref.variance))
    assert [path.name for path in tmp_path.iterdir()] == [out.name]


def test_the_label_is_not_needed(model, tmp_path):
    unlabelled = chunks(without(LOG, "click", "weight"), labelled=False)
    predict_file(model, unlabelled, tmp_path / "p.parquet")
    np.testing.assert_array_equal(pyarrow.parquet.read_table(tmp_path / "p.parquet")["ctr"], model.predict(LOG).ctr)


def test_from_a_reader(model, tmp_path):
    path = write_log(tmp_path / "log.parquet", 300)
    with open_log([path], RICH, labelled=False, batch_rows=128) as reader:
        assert predict_file(model, reader, tmp_path / "p.csv") == 300


def test_a_failure_leaves_the_old_file(model, tmp_path):
    out = tmp_path / "p.csv"
    out.write_text("old")

    def failing():
        yield from chunks(LOG[:100])
        raise InputError("line 101 is bad")

    with pytest.raises(InputError, match="line 101"):
        predict_file(model, failing(), out)
    assert out.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    ("name", "words"), [("p.txt", "ends in .parquet or .csv"), ("none/p.csv", "does not exist; create it first")]
)
def test_where_it_cannot_write(model, tmp_path, name, words):
    with pytest.raises(InputError, match=words):
        predict_file(model, chunks(LOG[:10]), tmp_path / name)


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_columns_are_kept(model, suffix, tmp_path):
    path = write_log(tmp_path / "log.parquet", 300)
    out = tmp_path / f"p{suffix}"
    with open_log([path], RICH, labelled=False, batch_rows=128, columns=["click", "user"]) as reader:
        predict_file(model, reader, out, keep=["click", "user"])
    table = pyarrow.parquet.read_table(out) if suffix == ".parquet" else pyarrow.csv.read_csv(out)
    assert table.column_names == ["click", "user", "ctr", "std", "latent_mean", "latent_std"]
    log = pyarrow.parquet.read_table(path)
    for name in ("click", "user"):
        assert [str(value) for value in table[name].to_pylist()] == [str(value) for value in log[name].to_pylist()]


def test_columns_that_cannot_be_kept(model, tmp_path):
    with pytest.raises(InputError, match="names the column 'ctr', which the file would then hold twice"):
        predict_file(model, chunks(LOG[:10]), tmp_path / "p.csv", keep=["ctr"])
    lists = next(field.name for field in RICH.fields if field.kind == "multi")
    with pytest.raises(InputError, match=r"'p.csv' cannot hold these columns: .*write a .parquet file"):
        predict_file(model, chunks(LOG[:10]), tmp_path / "p.csv", keep=[lists])
    assert not list(tmp_path.iterdir())


def test_a_log_without_rows_gives_a_file_without_rows(model, tmp_path):
    assert predict_file(model, [], tmp_path / "p.parquet") == 0
    assert pyarrow.parquet.read_table(tmp_path / "p.parquet").column_names == ["ctr", "std", "latent_mean", "latent_std"]


def test_sampled_models_write_recalibrated_figures(tmp_path):
    model = pbodl.PairFM(RICH, negative_rate=0.2)
    model.learn(click_log(500))
    predict_file(model, chunks(LOG), tmp_path / "p.parquet")
    table = pyarrow.parquet.read_table(tmp_path / "p.parquet")
    ctr, std, mean, deviation = (np.array(table[name]) for name in table.column_names)
    np.testing.assert_allclose(ndtr(mean / np.sqrt(1.0 + deviation**2)), ctr, atol=1e-9)
    np.testing.assert_allclose(std, model.predict(LOG).std)
