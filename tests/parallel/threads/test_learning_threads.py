"""Threads on one machine: one is the ordinary kernel; taking turns is deterministic; several are as good."""

import threading

import numpy as np
import pytest

import pbodl
from pbodl.errors import InputError
from pbodl.models.clock import parse_duration
from pbodl.parallel.threads import learning_threads
from pbodl.parallel.threads.learning_threads import SMALLEST, block_edges, learn_with_threads, threads_for
from tests.click_log import PLAIN, RICH
from tests.parallel.logs import differing, fm, log_loss, market_log, rich_log

OPTIONS = {"prior": pbodl.Prior(embedding=0.5, linear=0.1, dense=0.05), "initial_spread": 0.1}


def test_one_worker_is_sequential_training_bit_for_bit():
    batch = market_log(4000)
    ref, comp = fm(), fm()
    learn_with_threads(comp, 1)
    np.testing.assert_array_equal(comp.learn(batch), ref.learn(batch))
    assert differing(ref, comp) == []


def test_turns_are_the_same_every_time():
    batch, results = market_log(8000), []
    for _ in range(2):
        model = fm()
        learn_with_threads(model, 3, in_turns=True)
        results.append((model.learn(batch), model))
    np.testing.assert_array_equal(results[0][0], results[1][0])
    assert differing(results[0][1], results[1][1]) == []


def test_turns_that_add_are_sequential_training_bit_for_bit():
    # Each block begins with all that the others added, so that nothing but the arithmetic of the copies is left to differ.
    batch = market_log(20_000)
    ref, comp = fm(**OPTIONS), fm(**OPTIONS)
    learn_with_threads(comp, 2, "add", in_turns=True)
    starts = range(0, 20_000, 7000)
    got, want = ([model.learn(batch.rows(start, start + 7000)) for start in starts] for model in (comp, ref))
    np.testing.assert_array_equal(np.concatenate(got), np.concatenate(want))
    # Threads add up the sums of the hidden units by blocks; no weight depends on their last bit.
    sums = "dense.1.total"
    assert set(differing(ref, comp)) <= {sums}
    np.testing.assert_allclose(comp.state()[sums], ref.state()[sums], rtol=1e-6)


def test_copies_of_rows_decay_as_the_rows_do():
    batch = market_log(20_000)
    models = [pbodl.FMMLP(PLAIN, dim=2, hidden=(4,), half_life="5k rows", adapt_prior=False) for _ in range(2)]
    learn_with_threads(models[1], 2, "add", in_turns=True)
    for start in range(0, 20_000, 500):
        want, got = (model.learn(batch.rows(start, start + 500)) for model in models)
    # A batch decays at its start, not sample by sample.
    np.testing.assert_allclose(got, want, atol=0.01)
    ref, comp = (model.table for model in models)
    np.testing.assert_array_equal(comp.count, ref.count)
    np.testing.assert_allclose(comp.last_seen, ref.last_seen, atol=500.0)
    frequent = ref.count > 1000
    assert frequent.sum() > 10
    variances = (table.column("linear_variance")[frequent] for table in (comp, ref))
    np.testing.assert_allclose(*variances, rtol=0.1)


def test_without_a_half_life_nothing_decays():
    model = fm()
    learn_with_threads(model, 2, in_turns=True)
    batch = market_log(20_000)
    model.learn(batch.rows(0, 16_000))
    before = model.dense.variance.copy()
    model.learn(batch.rows(16_000, 16_002))
    np.testing.assert_allclose(model.dense.variance, before, rtol=0.02)


@pytest.mark.parametrize("merge", ["shared", "add"])
@pytest.mark.parametrize("workers", [2, 8])
def test_turns_are_as_good_as_sequential(workers, merge):
    batch = market_log(20_000, seed=5)
    ref = log_loss(batch, fm(**OPTIONS).learn(batch))
    model = fm(**OPTIONS)
    learn_with_threads(model, workers, merge, in_turns=True)
    assert log_loss(batch, model.learn(batch)) < ref + 0.003
    assert model.rows_learned == 20_000
    assert model.table.count.sum() == len(batch.keys)


def test_threads_are_as_good_as_sequential():
    batch = market_log(20_000, seed=5)
    ref = log_loss(batch, fm(**OPTIONS).learn(batch))
    model = fm(**OPTIONS)
    learn_with_threads(model, 4)
    ctr = np.concatenate([model.learn(batch.rows(start, start + 7000)) for start in range(0, 20_000, 7000)])
    assert log_loss(batch, ctr) < ref + 0.01
    # Threads that meet in a row may lose an update of it, never one of the dense weights, and no row.
    assert 0.9 * len(batch.keys) < model.table.count.sum() <= len(batch.keys)
    assert all(np.isfinite(array).all() for array in model.state().values() if array.dtype.kind == "f")


def test_threads_learn_every_row_once():
    rows = [{"user": n, "ad": -n, "site": f"s{n}", "click": n % 2} for n in range(5000)]
    schema = pbodl.Schema(label="click", fields=[pbodl.Field(name) for name in ("user", "ad", "site")])
    model = pbodl.FMMLP(schema, dim=2, hidden=(4,), adapt_prior=False)
    learn_with_threads(model, 4)
    model.learning.seen = 10**6
    ctr = model.learn(rows)
    # No two rows share a feature, so that no update can be lost.
    assert (model.table.count == 1).all() and model.table.size == 15_000
    assert model.dense.total[1, 4] == 5000 and (model.dense.total[1, :4] > 0).all()
    assert ((ctr > 0) & (ctr < 1)).all()


def test_every_kind_of_model_and_column():
    batch = rich_log(4000)
    for kind in (pbodl.DeepProbit, pbodl.SparseMLP, pbodl.FMMLP, pbodl.FFMMLP):
        model = kind(RICH, dim=2, hidden=(4,), half_life="6h", capacity=200)
        learn_with_threads(model, 2)
        model.learn(batch)
        assert model.rows_learned == 4000 and model.table.size <= 200


def test_burn_in_is_sequential_so_long():
    batch = market_log(3000)
    ref, comp = fm(), fm()
    learn_with_threads(comp, 4, burn_in=parse_duration("3k rows", "burn_in"))
    np.testing.assert_array_equal(comp.learn(batch), ref.learn(batch))
    assert differing(ref, comp) == []


def test_dense_weights_decay_once_and_not_once_per_thread():
    batch = rich_log(3000)._replace(weights=np.full(3000, 1e-6, np.float32))
    models = [pbodl.FMMLP(RICH, dim=2, hidden=(4,), half_life="10h") for _ in range(2)]
    for model in models:
        model.dense.variance[:] *= 0.01
    learn_with_threads(models[1], 2, in_turns=True)
    models[1].learning.seen = 10**6
    ref, comp = (model.learn(batch) is not None and model.dense.variance[0, 0, 0] for model in models)
    # A batch decays at its start; the rest follows with the next one.
    models[1].learn(batch._replace(times=batch.times + 3000 * 60.0).rows(0, 1))
    comp = models[1].dense.variance[0, 0, 0]
    assert comp == pytest.approx(ref, rel=0.02)


@pytest.mark.filterwarnings("error")
def test_a_new_prior_is_not_taken_for_overshooting():
    batch = market_log(20_000)
    model = fm(adapt_prior=False)
    learn_with_threads(model, 2, in_turns=True)
    model.learning.seen = 10**6
    for start in range(0, 12_000, 1000):
        model.learn(batch.rows(start, start + 1000))
    before = model.learning._variance
    model.row_prior = model.row_prior._replace(variance=model.row_prior.variance * 2)
    model.table.column("variance")[:] *= 2
    model.learn(batch.rows(12_000, 12_100))
    assert model.learning._variance > 1.5 * before
    model.learn(batch.rows(12_100, 12_200))
    assert model.learning.schedule.brakes == 0


def test_a_burn_in_in_time_needs_a_clock_of_time():
    with pytest.raises(InputError, match="burn-in given as time"):
        learn_with_threads(pbodl.FMMLP(PLAIN), 2, burn_in=parse_duration("2d", "burn_in"))


def test_a_failing_thread_is_not_passed_over(monkeypatch):
    model, batch = fm(), market_log(4000)
    learn_with_threads(model, 2)
    model.learning.seen = 10**6
    workers = []

    def second_fails(*arguments):
        workers.append(threading.current_thread().name)
        if len(workers) == 2:
            raise ArithmeticError("in the second thread")
        learn_blocks(*arguments)

    learn_blocks = learning_threads.learn_blocks
    monkeypatch.setattr(learning_threads, "learn_blocks", second_fails)
    with pytest.raises(ArithmeticError, match="in the second thread"):
        model.learn(batch)
    assert len(workers) == 2 and all(name.startswith("pbodl-worker") for name in workers)
    monkeypatch.undo()
    assert np.isfinite(model.learn(batch)).all()  # the threads still work


def test_options_are_checked_before_anything_is_read():
    with pytest.raises(InputError, match="workers is 0; it must be a whole number from 1 to 4096"):
        threads_for(0, "shared", None)
    with pytest.raises(InputError, match="merge is 'sum'; it must be one of: shared, add"):
        threads_for(2, "sum", None)
    with pytest.raises(InputError, match="burn_in"):
        threads_for(2, "shared", "soon")


@pytest.mark.parametrize(
    ("samples", "threads", "size"), [(65_536, 2, 512), (2048, 8, 64), (700, 2, 512), (1, 2, 512), (10_000, 16, 70)]
)
def test_blocks_cover_all_samples_once_and_none_is_larger_than_asked(samples, threads, size):
    edges = block_edges(samples, threads, size)
    assert (edges[0], edges[-1]) == (0, samples)
    sizes = np.diff(edges)
    assert sizes.min() > 0
    assert sizes.max() <= size
    assert sizes[-1] <= SMALLEST  # what all others may have to wait for
