"""Learning in stages, for every kind of model: predictions change nothing, impressions count once, order and slices are all one."""

import itertools

import numpy as np
import pytest
from scipy.special import ndtr

import pbodl
from pbodl.data.convert import concat, from_data
from pbodl.data.sampling import recalibrate
from pbodl.errors import InputError
from pbodl.models.adaptation import FIRST
from tests.baselines.factories import BASELINES
from tests.click_log import PLAIN, RICH
from tests.contract import FACTORIES, assert_same_state
from tests.oracles.stages import Stage, history_likelihood, posterior_of
from tests.parallel.logs import log_loss, market_log, plain_log, rich_log
from tests.stages import in_stages

F32 = np.float32
ONLINE = FACTORIES | {kind: BASELINES[kind] for kind in ("adpredictor", "ftrl", "matchbox")}
FORGETFUL = {
    "pair-fm": lambda schema: pbodl.PairFM(schema, dim=2, half_life="2h"),
    "fm-mlp": lambda schema: pbodl.FMMLP(schema, dim=2, hidden=(4,), half_life="50 rows"),
    "one mean": lambda schema: pbodl.SparseMLP(schema, dim=1, hidden=(), half_life="2h", decay_mean=True),
    "per sample": lambda schema: pbodl.AdPredictor(schema, epsilon=0.01),
}
EVERY = ONLINE | {f"{kind}, forgetting": make for kind, make in FORGETFUL.items()}


@pytest.mark.parametrize("make", EVERY.values(), ids=EVERY)
def test_stages_are_learned_row_by_row_as_in_slices(make):
    batch = in_stages(rich_log(40)).batch
    models = [make(RICH) for _ in range(3)]
    cuts = (range(len(batch) + 1), (0, 1, 5, 77, len(batch)), (0, len(batch)))
    ref, *others = (
        np.concatenate([model.learn(batch.rows(a, b)) for a, b in itertools.pairwise(cut)])
        for model, cut in zip(models, cuts, strict=True)
    )
    for ctr, model in zip(others, models[1:], strict=True):
        np.testing.assert_array_equal(ctr, ref)
        assert_same_state(model, models[0])


@pytest.mark.parametrize("make", EVERY.values(), ids=EVERY)
def test_final_labels_are_the_stage_from_nothing_to_all(make):
    batch, models = rich_log(60), [make(RICH) for _ in range(2)]
    np.testing.assert_array_equal(models[0].learn(batch), models[1].learn(batch.with_stages()))
    assert_same_state(*models)


@pytest.mark.parametrize("make", ONLINE.values(), ids=ONLINE)
def test_a_sample_of_weight_0_is_predicted_in_its_turn_and_changes_nothing(make):
    log, shown = rich_log(50), rich_log(50, seed=7)
    ref, comp = make(RICH), make(RICH)
    at = np.arange(50)
    mixed = concat([log, shown._replace(weights=np.zeros(50, F32))]).take(np.stack([at, at + 50], 1).reshape(-1))
    mixed = mixed._replace(times=np.repeat(log.times, 2))
    ctr = comp.learn(mixed)
    for row in range(50):
        assert ref.learn(log.rows(row, row + 1))[0] == pytest.approx(ctr[2 * row], rel=1e-5)
        now = shown.rows(row, row + 1)._replace(times=log.times[row : row + 1])
        assert ref.predict(now).ctr[0] == pytest.approx(ctr[2 * row + 1], rel=1e-4)
    assert comp.rows_learned == ref.rows_learned == 50
    for left, right in zip(comp.predict(concat([log, shown])), ref.predict(concat([log, shown])), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(comp.scale.moments, ref.scale.moments)


@pytest.mark.parametrize("make", ONLINE.values(), ids=ONLINE)
def test_only_predictions_leave_a_model_as_it_was(make):
    for schema, batch in ((PLAIN, plain_log(30)), (RICH, rich_log(30))):
        model = make(schema)
        model.learn(batch)
        before = model.state()
        now = batch._replace(weights=np.zeros(30, F32), times=np.full(30, model.clock))
        np.testing.assert_allclose(model.learn(now), model.predict(now).ctr, rtol=1e-5)
        after = model.state()
        assert model.rows_learned == 30
        for name in before if schema is PLAIN else ("counters", "scale.moments"):  # the others forget as time passes
            np.testing.assert_array_equal(after[name], before[name], err_msg=name)


@pytest.mark.parametrize("make", EVERY.values(), ids=EVERY)
def test_an_impression_counts_once(make):
    log = rich_log(80)
    ref, comp = make(RICH), make(RICH)
    ref.learn(log)
    operations = in_stages(log)
    comp.learn(operations.batch)
    assert len(operations.batch) > 2 * len(log)
    assert comp.rows_learned == ref.rows_learned == len(log)
    left, right = comp.state(), ref.state()
    assert left["scale.moments"][:, 0].tolist() == right["scale.moments"][:, 0].tolist()
    np.testing.assert_allclose(left["scale.moments"], right["scale.moments"], rtol=1e-9)
    table, other = comp.table, ref.table
    np.testing.assert_array_equal(table.count[table.find(other.keys)], other.count)


def test_priors_follow_at_the_moments_of_the_log():
    log = market_log(FIRST + 600)
    ref, comp = (pbodl.FMMLP(PLAIN, dim=3, hidden=(4,)) for _ in range(2))
    ref.learn(log)
    operations = in_stages(log)
    comp.learn(operations.batch)
    start = pbodl.FMMLP(PLAIN, dim=3, hidden=(4,)).row_prior
    assert not np.array_equal(comp.row_prior.linear_variance, start.linear_variance)
    np.testing.assert_allclose(comp.row_prior.linear_variance, ref.row_prior.linear_variance, rtol=0.5)
    assert comp.state()["dense.1.total"][-1] == ref.state()["dense.1.total"][-1] == 600.0


@pytest.mark.parametrize("kind", ["pair-fm", "fm-mlp", "adpredictor", "ftrl", "matchbox"])
def test_a_stream_of_stages_ends_where_its_log_does(kind):
    log, later = market_log(6000), market_log(8000).rows(6000, 8000)
    make = {
        "pair-fm": pbodl.PairFM, "fm-mlp": pbodl.FMMLP, "adpredictor": pbodl.AdPredictor, "ftrl": pbodl.FTRLProximal,
        "matchbox": pbodl.MatchBox,
    }[kind]  # fmt: skip
    ref, comp = make(PLAIN), make(PLAIN)
    progressive = ref.learn(log)
    operations = in_stages(log)
    served = comp.learn(operations.batch)[operations.is_prediction]
    assert abs(log_loss(later, comp.predict(later).ctr) - log_loss(later, ref.predict(later).ctr)) < 0.004
    assert abs(log_loss(log, served) - log_loss(log, progressive)) < 0.006
    assert comp.predict(later).ctr.mean() == pytest.approx(ref.predict(later).ctr.mean(), rel=0.05)


@pytest.mark.parametrize("kind", ["sparse-mlp", "adpredictor", "matchbox"])
@pytest.mark.parametrize("level", [-1.3, -0.5])
def test_one_weight_has_almost_its_exact_posterior(kind, level):
    # One bias, and stages of many impressions whose clicks come at any age; the posterior by integration over the weight.
    rng, n, prior = np.random.default_rng(3), 60, 0.5
    p = float(ndtr(level))
    histories = []
    for _ in range(n):
        edges, come = np.sort(rng.random(3)), rng.random() if rng.random() < p else 2.0
        history, before = [], 0.0
        for by in edges[: rng.integers(1, 4)].tolist():
            clicked = before <= come < by
            history.append(Stage(clicked, before, by))
            before = by
            if clicked:
                break
        histories.append(history)
    operations = [(rng.random() + k, stage) for history in histories for k, stage in enumerate(history)]
    operations.sort(key=lambda operation: operation[0])
    stages = [stage for _, stage in operations]
    schema = pbodl.Schema(
        label="click", fields=[pbodl.Field("of", group="user", kind="multi"), pbodl.Field("ad", group="ad", kind="multi")]
    )
    batch = from_data(schema, [{"of": [], "ad": [], "click": int(stage.clicked)} for stage in stages], labelled=True)
    batch = batch._replace(
        came_before=np.array([stage.before for stage in stages], F32), came_by=np.array([stage.by for stage in stages], F32)
    )
    model, mean, variance = biased(kind, schema, prior)
    model.learn(batch)

    def likelihood(of_z):
        log = sum(np.log(history_likelihood(of_z, history)) for history in histories)
        return np.exp(log - log.max())

    ref = posterior_of(0.0, prior, likelihood)
    comp = mean(model), variance(model)
    assert abs(comp[0] - ref[0]) < 0.2 * np.sqrt(ref[1]), (comp, ref)
    assert comp[1] == pytest.approx(ref[1], rel=0.12), (comp, ref)


def biased(kind, schema, prior):
    """A model whose bias alone learns."""
    if kind == "sparse-mlp":
        model = pbodl.SparseMLP(schema, dim=1, hidden=(), linear=False, initial_spread=0.0, prior=pbodl.Prior(bias=prior))
        return model, lambda m: float(m.dense.mean[0, 0, 0]), lambda m: float(m.dense.variance[0, 0, 0])
    make = {"adpredictor": pbodl.AdPredictor, "matchbox": pbodl.MatchBox}[kind]
    model = make(schema, **({"prior_variance": prior} if kind == "adpredictor" else {"bias_variance": prior}))
    return model, lambda m: float(m.bias[0]), lambda m: float(m.bias[1])


def test_recalibration_of_stages_is_that_of_rows():
    batch = in_stages(plain_log(60)).batch
    plain, sampled = pbodl.PairFM(PLAIN), pbodl.PairFM(PLAIN, negative_rate=0.2)
    np.testing.assert_allclose(sampled.learn(batch), recalibrate(plain.learn(batch), 0.2), rtol=1e-12)


@pytest.mark.parametrize("kind", ["fm-batch", "dnn-batch"])
def test_models_trained_in_batch_refuse_stages(kind):
    model = BASELINES[kind](PLAIN)
    with pytest.raises(InputError, match=r"trained in batch, on final labels.*choose a model that learns online"):
        model.learn(in_stages(plain_log(20)).batch)
    assert model.rows_learned == 0


@pytest.mark.parametrize(
    ("before", "by", "message"),
    [
        ([0.5, 0.0], [0.4, 1.0], "sample 0 has a stage from 0.5 to 0.4"),
        ([0.0, -0.1], [1.0, 1.0], "sample 1 has a stage from -0.1 to 1"),
        ([0.0, 0.2], [1.0, np.nan], "sample 1 has a stage from 0.2 to nan"),
        ([0.0, 0.2], [1.0, 1.5], "fractions of the clicks that have come"),
        ([0.0], [1.0], "a batch of 2 samples needs as many numbers"),
        (None, [1.0, 1.0], "both came_before and came_by, or neither"),
    ],
)
def test_what_is_no_stage_is_refused(before, by, message):
    arrays = {name: None if of is None else np.array(of, F32) for name, of in (("came_before", before), ("came_by", by))}
    with pytest.raises(InputError, match=message):
        pbodl.PairFM(PLAIN).learn(plain_log(2)._replace(**arrays))


@pytest.mark.parametrize("weight", [-1.0, -1e-6, np.nan])
def test_a_weight_below_zero_is_refused(weight):
    with pytest.raises(InputError, match="a weight is at least 0, and 0 means a prediction alone"):
        pbodl.PairFM(PLAIN).learn(plain_log(2)._replace(weights=np.array([1.0, weight], F32)))


def test_parts_of_a_batch_keep_their_stages():
    batch = in_stages(rich_log(20)).batch
    part, taken = batch.rows(3, 9), batch.take(np.arange(3, 9))
    joined = concat([batch.rows(0, 3), batch.rows(3, len(batch))])
    for a, b in (*zip(part, taken, strict=True), *zip(batch, joined, strict=True)):
        np.testing.assert_array_equal(a, b)
    mixed = concat([rich_log(5), batch.rows(0, 4)])
    assert mixed.came_before.tolist() == [0.0] * 5 + batch.came_before[:4].tolist()
    assert mixed.came_by.tolist() == [1.0] * 5 + batch.came_by[:4].tolist()
    assert batch.has_stages and not rich_log(5).has_stages
    assert batch.counted.sum() == 20
    assert [batch.until(0, n) for n in (1, 20, 21)] == [1 + int(np.flatnonzero(batch.counted)[n]) for n in (0, 19)] + [len(batch)]
