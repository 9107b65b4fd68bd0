"""Priors that follow the stream, and hidden units their mean: at set moments however it is cut, part of the state."""

import numpy as np
import pytest

import pbodl
from pbodl.errors import InputError
from pbodl.kernels.network import forget_dense
from pbodl.models import adaptation
from pbodl.models.adaptation import HOME, PSEUDO, REACH, in_force, move_centres, next_moment
from pbodl.parallel.simulated import Cluster
from pbodl.training.inspect.feature_weights import weights_of
from tests.click_log import PLAIN, RICH, click_log

LOG = click_log(300)
KINDS = [pbodl.DeepProbit, pbodl.SparseMLP, pbodl.FMMLP, pbodl.FFMMLP]
OPTIONS = [{}, {"half_life": "1h", "decay_mean": True}, {"capacity": 40}, {"time_to_live": "1h"}]
PRIORS = ("prior.variance", "prior.linear_variance")


@pytest.fixture(autouse=True)
def early(monkeypatch):
    """The first moment after 64 rows."""
    monkeypatch.setattr(adaptation, "FIRST", 64)


def make(kind=pbodl.FFMMLP, schema=RICH, **options):
    return kind(schema, **{"dim": 2, "hidden": (3,), **options})


def same(a, b):
    ref, comp = a.state(), b.state()
    assert ref.keys() == comp.keys()
    return all(np.array_equal(ref[name], comp[name]) for name in ref)


def test_two_moments_to_every_doubling():
    moments = [0]
    while moments[-1] < 1000:
        moments.append(next_moment(moments[-1]))
    assert moments == [0, 64, 96, 128, 192, 256, 384, 512, 768, 1024]
    assert [next_moment(n) for n in (1, 63, 65, 95, 97, 300, 400)] == [64, 64, 96, 96, 128, 384, 512]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_however_the_stream_is_cut(kind, options):
    whole, one_by_one, pieces = (make(kind, **options) for _ in range(3))
    ref = whole.learn(LOG[:150])
    comp = np.concatenate([one_by_one.learn(row) for row in LOG[:150]])
    np.testing.assert_array_equal(ref, comp)
    for start, stop in ((0, 64), (64, 65), (65, 130), (130, 150)):
        pieces.learn(LOG[start:stop])
    assert same(whole, one_by_one) and same(whole, pieces)
    assert not np.array_equal(whole.state()["prior.linear_variance"], make(kind).state()["prior.linear_variance"])


def test_nothing_happens_before_the_first_moment_or_when_it_is_off():
    early, late = make(), make(adapt_prior=False)
    np.testing.assert_array_equal(early.learn(LOG[:64]), late.learn(LOG[:64]))
    assert not same(early, late)
    late.learn(LOG[64:])
    for name in PRIORS:
        np.testing.assert_array_equal(late.state()[name], make().state()[name])
    assert not late.dense.centre.any()
    assert not pbodl.FMMLP(PLAIN, paper=True).spec.adapt_prior


@pytest.mark.parametrize("hidden", [(3,), (5, 4, 3)])
def test_moving_the_centres_changes_no_mean_activation(hidden):
    model = pbodl.FMMLP(RICH, dim=2, hidden=hidden, fm_variance="exact")  # by slopes, the variance moves the reported mean
    model.learn(LOG[:60])
    before, usual = model.predict(LOG[60:]), model.dense.total[1, : hidden[0]] / 60
    move_centres(model)
    after = model.predict(LOG[60:])
    np.testing.assert_allclose(model.dense.centre[1, : hidden[0]], usual, rtol=1e-6)
    if len(hidden) == 1:  # else the variance, which does change, goes through a rectifier into the means above it
        np.testing.assert_allclose(after.mean, before.mean, rtol=1e-5, atol=1e-6)
    assert (after.variance != before.variance).all() and not model.dense.total.any()
    move_centres(model)  # nothing was learned since
    np.testing.assert_array_equal(model.predict(LOG[60:]).mean, after.mean)


def test_hidden_units_are_centred_where_they_usually_are():
    model = make(hidden=(6, 4))
    model.learn(LOG[:96])
    centre = model.dense.centre.copy()
    assert (centre[1, :6] > 0.0).all() and (centre[2, :4] > 0.0).all() and not centre[0].any()
    model.learn(LOG[96:127])
    np.testing.assert_array_equal(model.dense.centre, centre)
    mean = model.dense.total[1, :6] / model.dense.total[1, 6]
    assert model.dense.total[1, 6] == 31 and np.abs(mean - centre[1, :6]).max() < 0.5 * centre[1, :6].max()


def weights_of_layers(model, array):
    return np.concatenate([array[layer, :n_out, :n_in].ravel() for layer, (n_in, n_out) in enumerate(model.layers())])


@pytest.mark.parametrize("kind", KINDS)
def test_layers_that_forget_go_back_to_where_they_started(kind):
    model = make(kind, PLAIN, hidden=(4, 3), half_life="300 rows")
    before = weights_of_layers(model, model.dense.mean)
    model.learn(LOG)
    learned = weights_of_layers(model, model.dense.mean)
    forget_dense(model.dense, model.shape, model.clock + 30 * 300, model.forgetting)
    assert np.abs(learned - before).max() > 1e-4
    np.testing.assert_allclose(weights_of_layers(model, model.dense.mean), before, atol=1e-6)


def test_a_state_of_an_older_release_is_judged_by_its_weights_once():
    model, same_draws, other_draws, resumed = (make(pbodl.FMMLP, PLAIN, hidden=(8, 4), seed=seed) for seed in (0, 0, 1, 1))
    draws = weights_of_layers(model, model.dense.start)
    np.testing.assert_array_equal(draws, weights_of_layers(model, model.dense.mean))
    model.learn(LOG)
    state = model.state()
    assert state.pop(HOME).shape == (0,)
    for loaded in (same_draws, other_draws):
        loaded.load_state(state)
    np.testing.assert_array_equal(weights_of_layers(same_draws, same_draws.dense.start), draws)
    stays = weights_of_layers(model, model.dense.mean)
    np.testing.assert_array_equal(weights_of_layers(other_draws, other_draws.dense.start), stays)
    other_draws.learn(LOG)
    resumed.load_state(other_draws.state())
    np.testing.assert_array_equal(weights_of_layers(resumed, resumed.dense.start), stays)


def test_layers_that_have_learned_much_still_go_home_after_they_were_loaded():
    model, loaded = (make(pbodl.FMMLP, PLAIN, hidden=(4,), half_life="300 rows") for _ in range(2))
    model.dense.mean[:] += 5.0 * np.sqrt(model.dense.prior_variance)  # as far as weights ever get
    loaded.load_state(model.state())
    np.testing.assert_array_equal(loaded.dense.start, model.dense.start)
    np.testing.assert_array_equal(loaded.learn(LOG), model.learn(LOG))


def test_a_home_of_another_size_is_refused_whole():
    model = make(pbodl.FMMLP, PLAIN, hidden=(4,))
    before = model.state()
    with pytest.raises(InputError, match="must have none, or all"):
        model.load_state(before | {HOME: np.zeros(3, np.float32)})
    for name, array in model.state().items():
        np.testing.assert_array_equal(array, before[name])


def test_a_prior_does_not_grow_because_variances_are_forgotten():
    # A small world, where every feature comes often: the same evidence, of which more and more precision is forgotten.
    found = {}
    for half_life in (None, "2k rows", "100 rows"):
        model = make(pbodl.FMMLP, PLAIN, hidden=(), half_life=half_life)
        for _ in range(20):
            model.learn(LOG)
        found[half_life] = in_force(model)[1]
    for half_life in ("2k rows", "100 rows"):
        assert (found[half_life] < 3.0 * found[None]).all()


def test_saved_and_loaded_is_never_stopped(tmp_path):
    stopped, ref = make(), make()
    stopped.learn(LOG[:100])
    stopped.save(tmp_path)
    comp = pbodl.load(tmp_path)
    comp.learn(LOG[100:])
    ref.learn(LOG)
    assert same(ref, comp)


def test_a_damaged_prior_is_refused():
    model = make()
    with pytest.raises(pbodl.InputError, match=r"'prior.variance' holds a variance that is not above zero"):
        model.load_state(model.state() | {"prior.variance": np.zeros_like(model.state()["prior.variance"])})


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_never_seen_is_predicted_from_the_prior_in_force(kind):
    model = make(kind)
    model.learn(LOG)
    new = {**LOG[0], "ad": "never", "user": 999}
    ref = model.predict(new)
    unadapted = make(kind, adapt_prior=False)
    unadapted.load_state(model.state() | {name: unadapted.state()[name] for name in PRIORS})
    assert ref.variance[0] != unadapted.predict(new).variance[0]
    assert model.learn(new)[0] == pytest.approx(ref.ctr[0], rel=1e-5)


def test_a_field_that_matters_gets_a_wider_prior_than_noise():
    rng = np.random.default_rng(3)
    ads, noise = rng.integers(0, 30, 4000), rng.integers(0, 30, 4000)
    clicks = rng.random(4000) < np.where(ads % 2 == 0, 0.9, 0.1)
    rows = [{"ad": int(a), "user": int(n), "site": "s", "click": int(c)} for a, n, c in zip(ads, noise, clicks, strict=True)]
    model = pbodl.FMMLP(PLAIN, dim=2, hidden=())
    model.learn(rows)
    user, ad, _ = in_force(model)[1]
    assert ad > 3 * model.spec.prior.linear
    assert user < model.spec.prior.linear
    assert ad <= np.float32(REACH[1] * model.spec.prior.linear)


def test_few_rows_move_the_prior_little():
    model = pbodl.FMMLP(PLAIN, dim=1, hidden=(), prior=pbodl.Prior(linear=1.0, embedding=1.0))
    model.learn([{"user": 1, "ad": 1, "site": 1, "click": 0}] * 64)
    # One weight a field: beside PSEUDO specified ones it counts as one at most.
    variance, mean = in_force(model)[1], model.table.column("linear_mean")
    assert (variance >= PSEUDO / (PSEUDO + 1)).all() and (variance <= 1.0 + 2.0 * float((mean**2).max()) / PSEUDO).all()
    assert (variance != 1.0).all()


def test_a_worker_starts_new_rows_from_the_prior_that_it_pulls():
    ref, started = make(), make()
    ref.learn(LOG[:130])
    started.learn(LOG[:130])
    cluster = Cluster(started, workers=1, rows=16)
    np.testing.assert_array_equal(ref.learn(LOG[130:200]), cluster.learn(LOG[130:200]))
    assert same(ref, cluster.model())


def test_shards_are_dealt_the_prior_in_force():
    model = make()
    model.learn(LOG[:130])
    cluster = Cluster(model, workers=2, rows=16, shards=2)
    cluster.learn(LOG[130:190])
    for name in (*PRIORS, "dense.1.centre"):
        np.testing.assert_array_equal(cluster.model().state()[name], model.state()[name])


def test_workers_tell_what_hidden_units_were():
    ref = make()
    ref.learn(LOG)
    cluster = Cluster(make(), workers=2, rows=16, shards=2)
    cluster.learn(LOG)
    comp = cluster.model()
    assert comp.dense.total[1, 3] == ref.dense.total[1, 3] == 300 - 256
    np.testing.assert_allclose(comp.state()["dense.1.centre"], ref.state()["dense.1.centre"], rtol=0.2)


def test_inspection_shows_the_prior_in_force():
    model = make()
    model.learn(LOG)
    embedding, linear = in_force(model)
    parts = weights_of(model).parts
    np.testing.assert_allclose(parts["embedding"].prior, np.repeat(embedding, model.spec.dim, axis=1), rtol=1e-5)
    np.testing.assert_allclose(parts["linear"].prior[:, 0], linear, rtol=1e-5)


def test_work_in_parts_is_the_work_at_once():
    ref, comp = make(), make()
    comp.table.spread = lambda work, n: [work(start, min(start + 7, n)) for start in range(0, n, 7)]
    for model in (ref, comp):
        model.learn(LOG[:130])
    # The sums are taken in another order: the last digits of a prior may differ.
    for name, array in comp.state().items():
        np.testing.assert_allclose(array, ref.state()[name], rtol=2e-5, atol=1e-6, err_msg=name)
    assert not np.array_equal(in_force(comp)[0], in_force(make())[0])
