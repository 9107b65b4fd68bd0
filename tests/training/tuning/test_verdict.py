"""The verdict: a better setting is told from a lucky one, with sampled rows counted for those that they stand for."""

import numpy as np
import pytest

from pbodl.training.run import new_model
from pbodl.training.tuning.verdict import Side, judge, progressive
from tests.click_log import click_log
from tests.training.logs import chunks, small_config

BATCHES = [chunk.batch for chunk in chunks(click_log(3000), size=500)]


def side(config, seen=BATCHES[:4], unseen=BATCHES[4:]):
    return Side(config, config.schema, seen, unseen)


def test_a_better_setting_is_told_from_an_equal_one():
    blind, sighted = small_config(kind="adpredictor", prior_variance=1e-6), small_config(kind="adpredictor")
    verdict = judge(side(blind), side(sighted))
    assert verdict is not None and verdict.rows == 1000
    assert verdict.difference.log_loss_high < 0 < verdict.difference.auc_low
    assert "better there, beyond chance" in verdict.text()
    assert verdict.plain()["difference"]["log_loss"] == verdict.best["log_loss"] - verdict.given["log_loss"]
    back = judge(side(sighted), side(blind))
    assert back is not None and "worse there, beyond chance" in back.text()
    same = judge(side(sighted), side(small_config(kind="adpredictor")))
    assert same is not None and "may be chance" in same.text()


def test_there_is_nothing_to_judge_without_rows_or_without_a_change():
    config = small_config(kind="adpredictor")
    assert judge(side(config), side(config)) is None
    assert judge(side(config, BATCHES, []), side(small_config(kind="ftrl"), BATCHES, [])) is None


@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_predictions_are_made_before_learning(rate):
    config = small_config(kind="adpredictor", training={"negative_rate": rate})
    learned = progressive(config, BATCHES[:2])
    model = new_model(config, BATCHES[0])
    if rate == 1.0:
        np.testing.assert_array_equal(learned[0].predicted, model.learn(BATCHES[0]))
        np.testing.assert_array_equal(learned[1].predicted, model.learn(BATCHES[1]))
    assert set(np.unique(learned[0].weights)) == {1.0, 1.0 / rate}
