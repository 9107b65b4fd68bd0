"""Tuning: the loss is the trainer's, the better setting wins, and the same data give the same choice."""

import msgspec
import pytest

from pbodl.errors import InputError
from pbodl.training.display import console
from pbodl.training.session import train
from pbodl.training.tuning import tune as tuning
from pbodl.training.tuning.grids import GRIDS, current_value
from pbodl.training.tuning.tune import Trial, progressive_log_loss, read_first, so_far, split_at, tune, tune_log
from tests.click_log import PLAIN, click_log
from tests.training.logs import chunks, small_config, write_log

BATCHES = [chunk.batch for chunk in chunks(click_log(600), size=150)]
PLAIN_SCHEMA = {"label": "click", "fields": [msgspec.to_builtins(field) for field in PLAIN.fields]}


@pytest.mark.parametrize("training", [{}, {"negative_rate": 0.3}, {"negative_rate": "auto"}, {"half_life": "1h"}])
def test_the_loss_is_that_of_a_training_run(tmp_path, training):
    config = small_config(training=training)
    ref = train(config, [write_log(tmp_path / "log.parquet", 600)], tmp_path / "run")
    assert progressive_log_loss(config, read_first(config, [str(tmp_path / "log.parquet")], 600)) == pytest.approx(ref["log_loss"])


def test_tune():
    config = small_config(prior={"linear": 1e-4})
    results = tune(config, BATCHES, trials=9)
    assert len(results) == 9
    losses = [trial.log_loss for trial in results]
    assert losses == sorted(losses)
    given = [trial for trial in results if trial.given]
    assert [trial.config for trial in given] == [config]
    assert given[0].log_loss == progressive_log_loss(config, BATCHES)
    assert results[0].log_loss < given[0].log_loss
    for trial in results:
        assert trial.log_loss == progressive_log_loss(trial.config, BATCHES)
        assert all(current_value(trial.config, key) == value for key, value in trial.values.items())
    assert len({str(trial.values) for trial in results}) == 9


def test_the_choice_is_deterministic():
    config = small_config()
    assert tune(config, BATCHES, 7) == tune(config, BATCHES, 7)


def test_progress_is_told():
    seen: list[tuple[int, Trial | None]] = []
    results = tune(small_config(), BATCHES[:2], 4, lambda rows, best: seen.append((rows, best)))
    assert sorted(rows for rows, _ in seen)[-1] == 4 * 300
    assert min(best.log_loss for _, best in seen if best is not None) >= results[0].log_loss
    best = max((trial for trial in results if not trial.given), key=lambda trial: len(trial.changed))
    assert all(f"{name.split('.')[-1]} " in so_far(best) for name in best.changed)
    assert "as given" in so_far(next(trial for trial in results if trial.given))


@pytest.mark.parametrize("kind", sorted(set(GRIDS) - {"fm-batch", "dnn-batch"}))
def test_every_kind_can_be_tuned(kind):
    results = tune(small_config(kind=kind), BATCHES[:2], 3)
    assert len(results) == 3
    assert all(0 < trial.log_loss < 2 for trial in results)


def test_without_a_time():
    batches = [chunk.batch for chunk in chunks(click_log(100), PLAIN)]
    assert len(tune(small_config(PLAIN_SCHEMA), batches, 6)) == 6


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["fm-batch", "dnn-batch"])
def test_batch_models(kind):
    pytest.importorskip("optax")
    config = small_config(kind=kind, retrain_every="200 rows", dim=2, max_epochs=1)
    assert len(tune(config, BATCHES, 3)) == 3


def test_only_some_keys():
    results = tune(small_config(), BATCHES[:1], 20, keys=["model.dim"])
    assert sorted(trial.config.model["dim"] for trial in results) == [3, 4, 8, 16, 32]
    assert all(list(trial.values) == ["model.dim"] for trial in results)
    with pytest.raises(InputError, match=r"'model\.dims' cannot be tuned \(did you mean 'model.dim'"):
        tune(small_config(), BATCHES[:1], 2, keys=["model.dims"])


def test_tune_log_takes_the_first_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(tuning, "BATCH_ROWS", 128)
    path = write_log(tmp_path / "log.parquet", 500)
    assert [len(batch) for batch in read_first(small_config(), [path], 300)] == [128, 128, 44]
    assert sum(len(batch) for batch in read_first(small_config(), [path], 10_000)) == 500
    results, verdict = tune_log(small_config(prior={"linear": 1e-4}), [path], rows=300, trials=12)
    assert len(results) == 12
    assert verdict is not None and verdict.rows == 75
    with console.capture() as captured:
        console.print(tuning.results_table(results))
    assert "as given" in captured.get()
    assert "prior.embedding" in captured.get()
    with pytest.raises(InputError, match="at least 1"):
        tune_log(small_config(), [path], rows=0)


def test_the_report_is_on_rows_that_no_trial_saw(tmp_path):
    config = small_config(prior={"linear": 1e-4}, kind="fm-mlp")
    path = write_log(tmp_path / "log.parquet", 600)
    results, verdict = tune_log(config, [path], rows=10_000, trials=5)
    batches = read_first(config, [path], 600)
    seen, unseen = split_at(batches, 480)
    assert [trial.log_loss for trial in results] == [progressive_log_loss(trial.config, seen) for trial in results]
    assert sum(len(batch) for batch in unseen) == 120
    best = results[0].config
    ref = {name: 600 * progressive_log_loss(one, batches) for name, one in (("given", config), ("best", best))}
    ref = {name: (ref[name] - 480 * progressive_log_loss(one, seen)) / 120 for name, one in (("given", config), ("best", best))}
    assert verdict is not None and verdict.rows == 120
    assert verdict.given["log_loss"] == pytest.approx(ref["given"], abs=1e-6)
    assert verdict.best["log_loss"] == pytest.approx(ref["best"], abs=1e-6)


def test_nothing_to_tune_leaves_the_given_setting():
    results = tune(small_config(kind="adpredictor"), BATCHES[:1], 5, keys=["training.half_life"])
    assert [(trial.given, trial.changed) for trial in results] == [(True, {})]
