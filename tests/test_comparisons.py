"""The parts of the comparisons with other libraries that need none of them: rows, the search for settings, the joint loss."""

import math

import numpy as np
import pyarrow.parquet as pq
import pytest

import pbodl
from benchmarks import bayesian
from benchmarks.peer_logs import MAKES, PeerLog
from benchmarks.peer_tuning import choose
from benchmarks.shop_world import shop_log
from benchmarks.split import load, write_log
from pbodl.data.convert import from_data
from pbodl.experiments.compare.lightgbm_rival import with_raw_numbers

LADDER = (1.0, 2.0, 4.0, 8.0, 16.0)


@pytest.mark.parametrize("best", LADDER)
def test_the_climb_finds_the_least_of_a_valley_and_says_if_it_is_an_end(best):
    found = choose({"rate": 4.0}, {"rate": LADDER}, lambda settings: abs(settings["rate"] - best))
    assert found.settings == {"rate": best}
    assert found.ends == (["rate"] if best in (1.0, 16.0) else [])


def test_one_setting_is_chosen_after_the_other_and_none_is_tried_twice():
    tried = []

    def loss(settings):
        tried.append(tuple(settings.values()))
        return abs(settings["rate"] - 8.0) + abs(settings["batch"] - 2.0)

    found = choose({"rate": 4.0, "batch": 4.0}, {"rate": LADDER, "batch": LADDER}, loss)
    assert found.settings == {"rate": 8.0, "batch": 2.0}
    assert len(tried) == len(set(tried)) == found.tried


def test_a_loss_that_is_not_a_number_is_never_chosen():
    found = choose({"rate": 4.0}, {"rate": LADDER}, lambda settings: math.nan if settings["rate"] > 4.0 else settings["rate"])
    assert found.settings == {"rate": 1.0}


def test_rows_come_back_with_a_number_for_every_feature_and_raw_numbers(tmp_path):
    schema = pbodl.Schema(label="click", fields=[pbodl.Field("ad", group="ad"), pbodl.Field("price", group="ad", kind="number")])
    rows = [{"ad": i % 4 or None, "price": 1.5 * i, "click": i % 2} for i in range(20)]
    raw = with_raw_numbers(schema)
    write_log(tmp_path, schema, lambda asked: from_data(asked, rows, True))
    split = load(tmp_path)
    assert (split.schema, split.raw_schema, split.learned) == (schema, raw, 17)
    assert split.places.shape == (20, 2)
    assert split.features == len(np.unique(split.places))
    np.testing.assert_array_equal(split.clicks, [row["click"] for row in rows])
    # Equal ads have equal numbers, a missing one too, and no number serves two fields.
    ads = split.places[:, 0]
    assert all((ads[i] == ads[j]) == (i % 4 == j % 4) for i in range(20) for j in range(20))
    assert not set(ads) & set(split.places[:, 1])
    prices = split.raw.values[split.raw.fields == 1]
    np.testing.assert_allclose(prices[1:], 1.5 * np.arange(1, 20), rtol=1e-6)
    few = split.first(5)
    assert (few.learned, len(few.batch), len(few.places), len(few.raw)) == (5, 5, 5, 5)


def test_lists_are_refused(tmp_path):
    schema = pbodl.Schema(label="click", fields=[pbodl.Field("tags", kind="multi")])
    with pytest.raises(pbodl.InputError, match="lists"):
        write_log(tmp_path / "log", schema, lambda asked: pytest.fail("read"))
    assert not (tmp_path / "log").exists()


def test_a_draw_of_certain_weights_has_the_sum_of_the_single_losses():
    truth = np.random.default_rng(1).uniform(0.05, 0.5, 50)
    one = bayesian.joint_loss(truth[np.newaxis], truth, 2)
    np.testing.assert_allclose(bayesian.joint_loss(np.stack([truth, truth, truth]), truth, 2), one, rtol=1e-12)
    # The loss of the truth is the entropy of the ten clicks, on average.
    entropy = -(truth * np.log(truth) + (1 - truth) * np.log1p(-truth)).mean()
    assert abs(one.mean() - 10 * entropy) < 5 * one.std() / math.sqrt(len(one))


@pytest.mark.parametrize("anchors", [2, 10])
def test_the_joint_loss_is_that_of_the_mean_product(anchors):
    rng = np.random.default_rng(2)
    drawn, truth = rng.uniform(0.05, 0.95, (7, 30)), rng.uniform(0.05, 0.95, 30)
    comp = bayesian.joint_loss(drawn, truth, anchors)
    again = np.random.default_rng(0)
    rows = again.integers(0, 30, (bayesian.GROUPS, anchors))
    if anchors == 2:
        rows = np.array(
            [[group[i] for i in which] for group, which in zip(rows, again.integers(0, 2, (len(rows), 10)), strict=True)]
        )
    luck = again.random(rows.shape)
    for g in range(5):
        products = [math.prod(p[r] if u < truth[r] else 1 - p[r] for r, u in zip(rows[g], luck[g], strict=True)) for p in drawn]
        assert comp[g] == pytest.approx(-math.log(sum(products) / 7))


def test_doubt_that_is_shared_pays_where_the_rows_are_the_same():
    """Two hypotheses about a row: ten clicks of it tell which one holds, so the joint loss is below that of their mean."""
    truth = np.tile([0.05, 0.6], 20)
    drawn = np.stack([np.full(40, 0.05), np.full(40, 0.6)])
    assert bayesian.joint_loss(drawn, truth, 2).mean() < bayesian.joint_loss(drawn.mean(0)[np.newaxis], truth, 2).mean()


def test_a_log_of_each_make_is_written_and_a_file_with_the_schema_that_is_named_or_guessed(tmp_path):
    for make in MAKES:
        log = PeerLog(make, seed=3, rows=700)
        log.write(tmp_path / log.name)
        split = load(tmp_path / log.name)
        assert (len(split.batch), split.learned) == (700, 600)
    file = tmp_path / "shop.parquet"
    pq.write_table(shop_log(3, 700).drop_columns("p_true"), file)
    log = PeerLog("file", path=str(file))
    log.write(tmp_path / "guessed")
    guessed = load(tmp_path / "guessed")
    place = guessed.schema.field_index("price")
    assert guessed.schema.fields[place].is_curve
    # Other tools have a number on a curve in buckets, about as many rows in each.
    counts = np.unique(guessed.places[:, place], return_counts=True)[1]
    assert len(counts) == int(700**0.25)
    assert counts.min() > 20
    np.testing.assert_array_equal(guessed.clicks, load(tmp_path / "shop-3-700").clicks)
    config = tmp_path / "config.toml"
    config.write_text('[schema]\nlabel = "click"\n[[schema.fields]]\nname = "item"\ngroup = "ad"\n')
    log._replace(config=str(config)).write(tmp_path / "named")
    assert [field.name for field in load(tmp_path / "named").schema.fields] == ["item"]
