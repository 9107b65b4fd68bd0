"""Metrics against scikit-learn, and the bootstrap against one that draws rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata
from sklearn.metrics import log_loss, roc_auc_score

from pbodl.training import stream_metrics as metrics
from pbodl.training.stream_metrics import StreamMetrics


def sample(n: int, seed: int = 0, ctr: float = 0.17) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Predictions that are calibrated, clicks, weights."""
    rng = np.random.default_rng(seed)
    predicted = rng.beta(2.0, 2.0 * (1 - ctr) / ctr, n)
    clicks = (rng.random(n) < predicted).astype(np.float32)
    return predicted, clicks, rng.choice([1.0, 2.5, 10.0], n)


def added(predicted, clicks, weights=None, size: int = 700) -> StreamMetrics:
    stream = StreamMetrics()
    for start in range(0, len(predicted), size):
        piece = slice(start, start + size)
        stream.add(predicted[piece], clicks[piece], None if weights is None else weights[piece])
    return stream


def assert_agrees(stream: StreamMetrics, predicted, clicks, weights, auc_tolerance: float) -> None:
    comp = stream.figures()
    ctr = np.average(clicks, weights=weights)
    loss = log_loss(clicks, predicted, sample_weight=weights)
    assert comp.rows == len(predicted)
    assert comp.ctr == pytest.approx(ctr)
    assert comp.auc == pytest.approx(roc_auc_score(clicks, predicted, sample_weight=weights), abs=auc_tolerance)
    assert comp.log_loss == pytest.approx(loss, rel=1e-9)
    assert comp.ne == pytest.approx(loss / log_loss(clicks, np.full(len(clicks), ctr), sample_weight=weights), rel=1e-9)
    assert comp.calibration == pytest.approx(np.average(predicted, weights=weights) / ctr)


@pytest.mark.parametrize("weighted", [False, True])
def test_figures_are_those_of_scikit_learn(weighted):
    predicted, clicks, weights = sample(3000)
    weights = weights if weighted else np.ones(3000)
    assert_agrees(added(predicted, clicks, weights), predicted, clicks, weights, 1e-12)


@pytest.mark.parametrize("ctr", [0.17, 0.005])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_histogram_agrees_with_sorting(ctr, weighted, monkeypatch):
    monkeypatch.setattr(metrics, "EXACT_ROWS", 10_000)
    predicted, clicks, weights = sample(200_000, ctr=ctr)
    weights = weights if weighted else np.ones(len(clicks))
    assert_agrees(added(predicted, clicks, weights, 7000), predicted, clicks, weights, 1e-6)


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9, 1.0]), st.booleans()), min_size=2, max_size=60))
def test_ties_count_half(pairs):
    predicted, clicks = np.array([p for p, _ in pairs]), np.array([c for _, c in pairs], np.float32)
    comp = added(predicted, clicks).figures().auc
    if 0 < clicks.sum() < len(clicks):
        assert comp == pytest.approx(roc_auc_score(clicks, predicted), abs=1e-12)
    else:
        assert np.isnan(comp)


def test_what_cannot_be_said_is_nan():
    empty = StreamMetrics().figures()
    assert empty.rows == 0
    assert np.isnan(empty[1:]).all()
    one_class = added(np.array([0.2, 0.3]), np.zeros(2, np.float32)).figures()
    assert one_class.log_loss > 0
    assert np.isnan([one_class.auc, one_class.ne, one_class.calibration]).all()


def test_sure_and_wrong_stays_finite():
    figures = added(np.array([0.0, 1.0]), np.array([1, 0], np.float32)).figures()
    assert np.isfinite(figures.log_loss)
    assert figures.auc == 0.0


@pytest.mark.parametrize("exact_rows", [200_000, 500])
def test_saved_and_restored_is_never_stopped(exact_rows, monkeypatch):
    monkeypatch.setattr(metrics, "EXACT_ROWS", exact_rows)
    predicted, clicks, weights = sample(2000)
    ref = added(predicted, clicks, weights, 100)
    first = added(predicted[:900], clicks[:900], weights[:900], 100)
    comp = StreamMetrics()
    comp.add(predicted[:5], clicks[:5])  # what it held before is forgotten
    comp.load_state(first.state())
    for start in range(900, 2000, 100):
        comp.add(predicted[start : start + 100], clicks[start : start + 100], weights[start : start + 100])
    assert comp.figures() == ref.figures()
    np.testing.assert_array_equal(comp.reliability, ref.reliability)


def test_clear_forgets():
    stream = added(*sample(100))
    stream.clear()
    assert stream.figures().rows == 0
    assert not stream.reliability.any()


def test_the_calibration_groups_are_by_log_odds():
    predicted, clicks, weights = sample(5000, ctr=0.01)
    groups = added(predicted, clicks, weights).reliability
    edges = np.linspace(-metrics.FARTHEST, metrics.FARTHEST, metrics.RELIABILITY_BINS + 1)
    place = np.digitize(np.log(predicted / (1 - predicted)), edges[1:-1])
    for column, amount in enumerate((weights, weights * predicted, weights * clicks)):
        np.testing.assert_allclose(groups[:, column], np.bincount(place, weights=amount, minlength=len(groups)))
    assert (groups[:, 0] > 0).sum() > 8  # at a CTR of 1 % there is still something to see
    extreme = added(np.array([0.0, 1.0]), np.array([0, 1], np.float32)).reliability
    assert extreme[0, 0] == extreme[-1, 0] == 1.0


@pytest.mark.parametrize("exact_rows", [200_000, 1000])
def test_bootstrap_intervals_are_those_of_drawn_rows(exact_rows, monkeypatch):
    monkeypatch.setattr(metrics, "EXACT_ROWS", exact_rows)
    predicted, clicks, _ = sample(4000)
    stream = added(predicted, clicks)
    comp = stream.intervals(replicates=400)
    rng = np.random.default_rng(1)
    drawn: dict[str, list[float]] = {name: [] for name in comp}
    for _ in range(400):
        rows = rng.integers(0, len(clicks), len(clicks))
        ranks, yes = rankdata(predicted[rows]), clicks[rows].sum()
        drawn["auc"].append((ranks @ clicks[rows] - yes * (yes + 1) / 2) / (yes * (len(rows) - yes)))
        drawn["log_loss"].append(-np.log(np.where(clicks[rows] > 0, predicted[rows], 1 - predicted[rows])).mean())
        drawn["calibration"].append(predicted[rows].mean() / clicks[rows].mean())
    for name, draws in drawn.items():
        ref = np.quantile(draws, [0.025, 0.975])
        width = ref[1] - ref[0]
        np.testing.assert_allclose(comp[name], ref, atol=0.2 * width, err_msg=name)
        assert comp[name][0] < getattr(stream.figures(), name) < comp[name][1]


def test_bootstrap_of_one_class_has_no_auc():
    intervals = added(np.array([0.2, 0.4, 0.1]), np.zeros(3, np.float32)).intervals(50)
    assert np.isnan(intervals["auc"]).all()
    assert np.isfinite(intervals["log_loss"]).all()


@pytest.mark.parametrize("rows", [500, 250_000])
def test_merged_metrics_are_those_of_all_rows(rows):
    rng = np.random.default_rng(3)
    predicted, weights = rng.uniform(0.01, 0.9, rows), rng.choice([1.0, 2.0], rows)
    clicks = (rng.random(rows) < predicted).astype(np.float32)
    ref, comp = StreamMetrics(), StreamMetrics()
    ref.add(predicted, clicks, weights)
    for part in np.array_split(np.arange(rows), [rows // 10, rows // 2, rows - 7]):
        other = StreamMetrics()
        other.add(predicted[part], clicks[part], weights[part])
        comp.merge(other.state())
    np.testing.assert_allclose(comp.figures(), ref.figures(), rtol=1e-12)
    np.testing.assert_allclose(comp.reliability, ref.reliability)
