"""Workers and shards together: one worker is no cluster at all, bit for bit; many are nearly as good."""

import numpy as np
import pytest

import pbodl
from pbodl.data.convert import concat, from_data
from pbodl.data.synthetic import World
from pbodl.models.adaptation import FIRST, HOME, ROUNDS
from pbodl.models.clock import Duration
from pbodl.models.deep_probit import DeepProbit
from pbodl.parallel.cluster.on_ray import model_of, recipe_of
from pbodl.parallel.schedule import Round
from pbodl.parallel.simulated import Cluster
from tests.click_log import PLAIN, RICH
from tests.parallel.logs import by_key, differing, fm, log_loss, market_log, plain_log, rich_log

MODELS = {
    "fm": lambda: pbodl.FMMLP(RICH, dim=4, hidden=(8,)),
    "pairs": lambda: pbodl.PairFM(RICH, dim=3),
    "pairs, forgetting": lambda: pbodl.PairFM(RICH, dim=3, half_life="2h"),
    "ffm, forgetting": lambda: pbodl.FFMMLP(RICH, dim=3, hidden=(8, 4), half_life="2h"),
    "sum, no linear term": lambda: pbodl.SparseMLP(RICH, dim=1, hidden=(), linear=False),
    "concat, forgetting by rows": lambda: pbodl.DeepProbit(RICH, dim=2, hidden=(8,), half_life="300 rows", decay_mean=True),
    "capped steps": lambda: pbodl.FMMLP(RICH, dim=4, hidden=(8,), step_cap=0.1),
}


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_one_worker_is_sequential_training_bit_for_bit(make):
    batch = rich_log(500)
    ref = make()
    ctr = ref.learn(batch)
    cluster = Cluster(make(), workers=1, rows=50)
    np.testing.assert_array_equal(cluster.learn(batch), ctr)
    assert differing(ref, cluster.model()) == []


def test_one_worker_leads_migrated_layers_home_bit_for_bit():
    make, batch = MODELS["ffm, forgetting"], rich_log(500)
    ref, copy = make(), make()
    state = ref.state()
    for model in (ref, copy):
        model.load_state(state | {HOME: np.linspace(-2, 2, 1 + weights_that_go_home(model), dtype=np.float32)[1:]})
    for model in (copy, model_of(recipe_of(copy))):
        np.testing.assert_array_equal(model.dense.start, ref.dense.start)
    ctr = ref.learn(batch)
    cluster = Cluster(copy, workers=1, rows=50, shards=1)
    np.testing.assert_array_equal(cluster.learn(batch), ctr)
    assert differing(ref, cluster.model()) == []


def weights_that_go_home(model: DeepProbit) -> int:
    return sum(n_in * n_out for n_in, n_out in model.layers())


def test_the_prior_follows_the_stream_bit_for_bit():
    batch, ref = market_log(2 * FIRST + 100), fm()
    ctr = ref.learn(batch)
    cluster = Cluster(fm(), workers=1, rows=300)
    np.testing.assert_array_equal(cluster.learn(batch), ctr)
    assert differing(ref, cluster.model()) == []
    assert cluster.shards[0].ledger["prior"].sequence == 3 * ROUNDS


def test_the_prior_of_many_workers_and_shards_follows_the_stream():
    batch, ref = market_log(4 * FIRST + 100), fm()
    ref.learn(batch)
    cluster = Cluster(fm(), workers=4, rows=32, shards=3)
    cluster.learn(batch)
    first, *others = (shard.model.row_prior.variance for shard in cluster.shards)
    assert all(np.array_equal(first, other) for other in others)
    assert not np.allclose(first, fm().row_prior.variance, rtol=0.2)
    np.testing.assert_allclose(first, ref.row_prior.variance, rtol=0.3)


def test_one_worker_and_three_shards_are_sequential_training_but_for_the_order_of_rows():
    batch = rich_log(500)
    ref = MODELS["fm"]()
    ctr = ref.learn(batch)
    cluster = Cluster(MODELS["fm"](), workers=1, rows=50, shards=3)
    np.testing.assert_array_equal(cluster.learn(batch), ctr)
    a, b = by_key(ref), by_key(cluster.model())
    assert [name for name in a if not np.array_equal(a[name], b[name])] == []


@pytest.mark.parametrize("merge", ["shared", "add"])
def test_shards_change_nothing(merge):
    batch = market_log(6000)
    whole, split = Cluster(fm(), 4, 32, shards=1, merge=merge), Cluster(fm(), 4, 32, shards=3, merge=merge)
    np.testing.assert_array_equal(whole.learn(batch), split.learn(batch))
    a, b = by_key(whole.model()), by_key(split.model())
    assert [name for name in a if not np.array_equal(a[name], b[name])] == []


def test_a_cluster_goes_on_from_a_trained_model():
    batch = plain_log(600)
    ref, model = fm(), fm()
    ref.learn(batch)
    model.learn(batch.rows(0, 300))
    cluster = Cluster(model, workers=1, rows=40)
    cluster.learn(batch.rows(300, 600))
    assert differing(ref, cluster.model()) == []


def test_many_workers_lose_little():
    batch = market_log(20_000, seed=3)
    sequential = fm(prior=pbodl.Prior(embedding=0.5, linear=0.1, dense=0.05), initial_spread=0.1)
    ref = log_loss(batch, sequential.learn(batch))
    # A hundred features, most of them frequent, are the hardest case.
    for workers, rows, loss in ((4, 64, 0.004), (16, 32, 0.008)):
        cluster = Cluster(fm(prior=sequential.spec.prior, initial_spread=0.1), workers, rows)
        assert log_loss(batch, cluster.learn(batch)) < ref + loss, (workers, rows)


def test_burn_in_in_rows_is_sequential_so_long():
    batch = plain_log(400)
    ref = fm()
    ref.learn(batch.rows(0, 200))
    cluster = Cluster(fm(), workers=4, rows=50, burn_in=Duration(200, True))
    cluster.learn(batch.rows(0, 200))
    assert differing(ref, cluster.model()) == []


def test_the_ledger_accounts_for_every_row():
    cluster = Cluster(fm(), workers=4, rows=32, shards=2)
    cluster.learn(market_log(5000))
    for shard in cluster.shards:
        assert sum(entry.rows for entry in shard.ledger.values()) == 5000 == shard.model.rows_learned
    assert sum(entry.repeats for shard in cluster.shards for entry in shard.ledger.values()) == 0


def test_capacity_holds_on_every_shard():
    cluster = Cluster(fm(capacity=30), workers=4, rows=16, shards=2)
    cluster.learn(plain_log(2000))
    model: DeepProbit = cluster.model()
    assert all(shard.model.table.size <= 15 for shard in cluster.shards)
    assert model.table.size <= 30 and model.metrics()["evicted"] > 0


def test_it_takes_what_models_take():
    rows = [{"user": n % 5, "ad": n % 3, "site": 0, "click": n % 2} for n in range(200)]
    comp = Cluster(pbodl.FMMLP(PLAIN, dim=2, hidden=()), 1).learn(rows)
    np.testing.assert_array_equal(comp, pbodl.FMMLP(PLAIN, dim=2, hidden=()).learn(rows))


def world_log(rows):
    """The first rows of a log as dense as one of 300,000: features rare enough to make plain addition overshoot."""
    world, parts, seen = World(rows=300_000), [], 0
    for part in world.batches(10_000):
        parts.append(from_data(world.schema, part, labelled=True))
        seen += len(parts[-1])
        if seen >= rows:
            return world.schema, concat(parts)
    raise AssertionError


def test_what_would_diverge_is_held_back_by_the_ramp_else_braked_and_said(monkeypatch):
    schema, batch = world_log(40_000)
    prior = pbodl.Prior(bias=None)  # without a wide bias, less holds it
    ref = log_loss(batch, pbodl.FMMLP(schema, prior=prior).learn(batch))
    reckless = Cluster(pbodl.FMMLP(schema, prior=prior), 16, 256, merge="add")
    reckless.schedule.next = lambda *given: Round(16, 256)  # type: ignore[method-assign]
    assert log_loss(batch, np.clip(reckless.learn(batch), 1e-15, 1 - 1e-15)) > 1.5 * ref
    for workers, rows in ((16, 256), (64, 1024)):
        cluster = Cluster(pbodl.FMMLP(schema, prior=prior), workers, rows, merge="add")
        assert log_loss(batch, cluster.learn(batch)) < ref + 0.01, (workers, rows)
    monkeypatch.setattr("pbodl.parallel.schedule.RAMP", 0.05)
    for workers, rows in ((16, 256), (64, 1024)):
        cluster = Cluster(pbodl.FMMLP(schema, prior=prior), workers, rows, merge="add")
        with pytest.warns(UserWarning, match="messages overshoot: after .* rows the predictive variance has risen"):
            assert log_loss(batch, np.clip(cluster.learn(batch), 1e-9, 1 - 1e-9)) < ref + 0.05, (workers, rows)
        assert cluster.schedule.brakes > 0
