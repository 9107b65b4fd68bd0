"""Training in minibatches: gradients and steps by hand, early stopping, and what happens without JAX."""

import importlib.util
from typing import Any

import numpy as np
import pytest

from pbodl.baselines import BatchFM
from pbodl.baselines.batch_fm import fm_forward
from pbodl.baselines.batch_training import ADAGRAD_START, FittingRun, Recipe, log_loss, train
from pbodl.baselines.buffer import SampleHistory
from pbodl.baselines.minibatch import MinibatchLayout
from pbodl.errors import InputError
from tests.click_log import PLAIN, click_log

FIELDS, SIZE, DIM = 3, 12, 2
FIELD_OF_ROW = (np.arange(SIZE) % FIELDS).astype(np.uint16)


def history(n: int, seed: int = 0) -> SampleHistory:
    rng = np.random.default_rng(seed)
    rows = (3 * rng.integers(0, 4, (n, FIELDS)) + np.arange(FIELDS)).astype(np.int32).reshape(-1)
    clicks = (rng.random(n) < 0.4).astype(np.float32)
    weights = rng.choice([0.5, 1.0, 2.0], n).astype(np.float32)
    values = rng.choice([1.0, 2.0], FIELDS * n).astype(np.float32)
    return SampleHistory(np.arange(0, FIELDS * n + 1, FIELDS), rows, values, clicks, weights)


def recipe(**changes: Any) -> Recipe:
    return Recipe(optimizer="adagrad", learning_rate=0.1, l2=0.01, batch_size=8, max_epochs=3, seed=0)._replace(**changes)


def start() -> tuple[np.ndarray, dict[str, np.ndarray]]:
    weights = np.random.default_rng(1).normal(0, 0.3, (SIZE, DIM + 1)).astype(np.float32)
    return weights, {"bias": np.array([-0.3], np.float32)}


def fm_by_pairs(weights: np.ndarray, bias: float, rows: np.ndarray, x: np.ndarray) -> float:
    """The definition: every pair by itself."""
    total = bias + float(x @ weights[rows, -1])
    for i in range(len(rows)):
        for j in range(i):
            total += x[i] * x[j] * float(weights[rows[i], :-1] @ weights[rows[j], :-1])
    return total


def loss(weights: np.ndarray, bias: float, samples: SampleHistory, l2: float) -> float:
    """The sum over samples that a step descends."""
    total = 0.0
    for i in range(len(samples.clicks)):
        part = slice(samples.indptr[i], samples.indptr[i + 1])
        rows, x = samples.rows[part], samples.values[part].astype(float)
        logit = fm_by_pairs(weights, bias, rows, x)
        penalty = l2 * ((weights[rows] * x[:, None]) ** 2).sum()
        total += samples.weights[i] * (np.logaddexp(0, logit) - samples.clicks[i] * logit + penalty)
    return float(total)


def slopes(weights: np.ndarray, bias: float, samples: SampleHistory, l2: float) -> tuple[np.ndarray, float]:
    """By central differences."""
    result, step = np.zeros_like(weights), 1e-5
    for place in np.ndindex(weights.shape):
        up, down = weights.copy(), weights.copy()
        up[place] += step
        down[place] -= step
        result[place] = (loss(up, bias, samples, l2) - loss(down, bias, samples, l2)) / (2 * step)
    return result, (loss(weights, bias + step, samples, l2) - loss(weights, bias - step, samples, l2)) / (2 * step)


def test_a_step_of_adagrad_by_finite_differences():
    weights, dense = start()
    samples = history(16)
    run = FittingRun(fm_forward, weights, dense, MinibatchLayout(samples, FIELD_OF_ROW, FIELDS, 8), recipe())
    run.learn(np.arange(16))
    ref, bias = weights.astype(float), -0.3
    squares, bias_squares = np.full(ref.shape, ADAGRAD_START), ADAGRAD_START
    for begin in (0, 8):
        slope, bias_slope = slopes(ref, bias, samples.part(begin, begin + 8), 0.01)
        squares, bias_squares = squares + slope**2, bias_squares + bias_slope**2
        ref, bias = ref - 0.1 * slope / np.sqrt(squares), bias - 0.1 * bias_slope / np.sqrt(bias_squares)
    comp, comp_dense = run.arrays()
    np.testing.assert_allclose(comp, ref, atol=2e-5)
    assert comp_dense["bias"][0] == pytest.approx(bias, abs=2e-5)


def test_a_first_step_of_adam_moves_by_the_rate():
    weights, dense = start()
    run = FittingRun(
        fm_forward,
        weights,
        dense,
        MinibatchLayout(history(8), FIELD_OF_ROW, FIELDS, 8),
        recipe(optimizer="adam", learning_rate=0.01),
    )
    run.learn(np.arange(8))
    used = np.unique(history(8).rows)
    moved = np.abs(run.arrays()[0] - weights)
    np.testing.assert_allclose(moved[used], 0.01, rtol=1e-3)
    assert not np.delete(moved, used, axis=0).any()


def test_early_stopping_takes_the_best_epoch_and_then_the_held_out_part():
    weights, dense = start()
    samples = history(40)
    told = iter([0.5, 0.3, 0.4])  # the third epoch is worse: the second's arrays are taken
    seen = []

    def logits(weights: np.ndarray, dense: dict[str, np.ndarray], part: SampleHistory) -> np.ndarray:
        seen.append(weights)
        assert len(part.clicks) == 4
        level = next(told)
        # Logits whose log loss is `level`: all samples alike.
        return np.where(part.clicks > 0, 1, -1) * -np.log(np.expm1(level))

    layout = MinibatchLayout(samples, FIELD_OF_ROW, FIELDS, 8)
    fit = train(FittingRun(fm_forward, weights, dense, layout, recipe(max_epochs=9)), logits)
    assert (fit.epochs, fit.log_loss) == (2, pytest.approx(0.3))
    # Adagrad's state is part of what is taken back: two epochs and the last part, done by hand, give the same bits.
    by_hand = FittingRun(fm_forward, weights, dense, layout, recipe())
    for epoch in (1, 2):
        by_hand.learn(np.random.default_rng([0, epoch]).permutation(36))
    np.testing.assert_array_equal(by_hand.arrays()[0], seen[1])
    by_hand.learn(np.arange(36, 40))
    np.testing.assert_array_equal(by_hand.arrays()[0], fit.weights)


def test_log_loss():
    samples = history(5)
    p = 1 / (1 + np.exp(-np.arange(5.0)))
    ref = -np.average(np.where(samples.clicks > 0, np.log(p), np.log(1 - p)), weights=samples.weights)
    assert log_loss(np.arange(5.0), samples) == pytest.approx(ref)
    assert np.isnan(log_loss(np.zeros(0), samples.part(0, 0)))


def test_without_jax_it_says_what_to_install(monkeypatch):
    model = BatchFM(PLAIN)
    model.learn(click_log(20))
    before = model.state()
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "jax" else find(name, *rest))
    for act in (model.fit, lambda: model.learn(click_log(5))):
        with pytest.raises(InputError, match=r"pip install 'jax.*' 'optax.*'"):
            act()
    assert all(np.array_equal(array, before[name]) for name, array in model.state().items())
    assert model.predict(click_log(3)).ctr.shape == (3,)  # a fitted model predicts without it
