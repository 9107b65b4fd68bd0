"""Joint draws against brute force: models whose weights are set, one by one, to what was drawn for them."""

import subprocess
import sys

import numpy as np
import pytest
from scipy.stats import norm

import pbodl
from pbodl.data.convert import from_data
from pbodl.data.hashing import hash_value, wrapping
from pbodl.errors import InputError
from pbodl.kernels.draws import LAYER, noise_at
from pbodl.models.joint_draws import draw_seeds
from tests.click_log import RICH, click_log, without

LOG = click_log(300)
ROWS = without(click_log(6, seed=1), "click", "weight")
PLAIN = pbodl.Schema(label="click", fields=[pbodl.Field("user", group="user"), pbodl.Field("ad", group="ad")])
FEW = [{"user": u, "ad": a, "click": int(u == a)} for _ in range(3) for u in range(4) for a in range(4)]
ASKED = [{"user": 0, "ad": 0}, {"user": 0, "ad": 1}, {"user": 2, "ad": 1}, {"user": 2, "ad": "new"}, {"user": "new", "ad": "new"}]
TINY = 1e-12
MODELS = {
    "concat": lambda: pbodl.DeepProbit(RICH, dim=2, hidden=(4, 3)),
    "sum": lambda: pbodl.SparseMLP(RICH, dim=3, hidden=(4,)),
    "groups": lambda: pbodl.FMMLP(RICH, dim=3, hidden=(4, 3)),
    "fields": lambda: pbodl.FMMLP(RICH, dim=3, hidden=(), pairs="fields"),
    "ffm": lambda: pbodl.FFMMLP(RICH, dim=2, hidden=(4,), shortcut=True),
    "no linear": lambda: pbodl.FMMLP(RICH, dim=3, hidden=(4,), linear=False),
}


def learned(name):
    model = MODELS[name]()
    model.learn(LOG)
    model.learn([{**row, "click": 0, "weight": 1.0} for row in ROWS])  # every feature has a row
    return model


def latents(ctr):
    return norm.ppf(ctr)


def with_weights(model, deviations):
    """A model whose weights are the means plus these deviations, and certain; by name, as in the state."""
    state = model.state()
    for name, added in deviations.items():
        state[f"{name}.mean"] = (state[f"{name}.mean"] + added).astype(np.float32)
    state |= {name: np.full_like(array, TINY) for name, array in state.items() if name.endswith("variance")}
    point = type(model).from_spec(model.schema, model.spec)
    point.load_state(state)
    return point


def noise_of(model, seed):
    """The deviation of every weight under one draw, from the definition."""
    state, found = model.state(), {}
    depth = state["embedding.mean"].shape[1]
    with wrapping():
        noise = [[noise_at(seed, key, np.uint64(d)) for d in range(depth + 1)] for key in state["embedding.keys"]]
        noise = np.array(noise)
        found["embedding"] = np.sqrt(state["embedding.variance"]) * noise[:, :depth]
        if "linear.mean" in state:
            found["linear"] = np.sqrt(state["linear.variance"]) * noise[:, depth:]
        for layer in range(len(model.layers())):
            variance = state[f"dense.{layer}.variance"]
            key = np.uint64(int(LAYER) * (layer + 1) % 2**64)
            noise = [noise_at(seed, key, np.uint64(d)) for d in range(variance.size)]
            found[f"dense.{layer}"] = np.sqrt(variance) * np.reshape(noise, variance.shape)
    return found


@pytest.mark.parametrize("name", MODELS)
def test_a_line_is_the_prediction_of_drawn_weights(name):
    model = learned(name)
    drawn = model.sample(ROWS, draws=3, seed=9)
    assert drawn.shape == (3, len(ROWS))
    for draw, line in enumerate(drawn):
        point = with_weights(model, noise_of(model, draw_seeds(9, 3)[draw]))
        np.testing.assert_allclose(latents(line), latents(point.predict(ROWS).ctr), atol=2e-3)


def test_moments_are_those_of_brute_force():
    model = pbodl.FMMLP(PLAIN, dim=2, hidden=(3,))
    model.learn(FEW)
    rows, state, rng = ASKED[:3], model.state(), np.random.default_rng(0)
    names = [name.removesuffix(".variance") for name in state if name.endswith(".variance") and f"{name[:-8]}mean" in state]
    brute = []
    for _ in range(1500):
        deviations = {name: rng.standard_normal(state[f"{name}.mean"].shape) * np.sqrt(state[f"{name}.variance"]) for name in names}
        brute.append(latents(with_weights(model, deviations).predict(rows).ctr))
    ours = latents(model.sample(rows, 20_000))
    np.testing.assert_allclose(ours.mean(axis=0), np.mean(brute, axis=0), atol=5 * ours.std() / np.sqrt(1500))
    ref = np.cov(np.transpose(brute))
    np.testing.assert_allclose(np.cov(ours.T), ref, atol=5 * ref.max() * np.sqrt(2 / 1500))
    assert ref[0, 1] > 0.2 * ref[0, 0]  # rows that share a user move together


def test_draws_of_pairs_have_the_covariance_of_the_linearised_model():
    model = pbodl.PairFM(PLAIN, dim=2)
    model.learn(FEW + [{**row, "click": 0} for row in ASKED])
    state, predicted, slopes, variances = model.state(), model.predict(ASKED), [], []
    step = 1e-2
    for name in ("embedding", "linear", "dense.0"):
        for index in np.ndindex(state[f"{name}.mean"].shape):
            ends = []
            for sign in (1, -1):
                deviation = np.zeros(state[f"{name}.mean"].shape)
                deviation[index] = sign * step
                ends.append(with_weights(model, {name: deviation}).predict(ASKED).mean)
            slopes.append((ends[0] - ends[1]) / (2 * step))
            variances.append(state[f"{name}.variance"][index])
    covariance = model.doubt * np.transpose(slopes) @ np.diag(variances) @ np.array(slopes)
    ours = latents(model.sample(ASKED, 20_000))
    np.testing.assert_allclose(ours.mean(axis=0), predicted.mean, atol=5 * np.sqrt(predicted.variance.max() / 20_000))
    np.testing.assert_allclose(np.diag(covariance), predicted.variance, rtol=1e-3)
    np.testing.assert_allclose(np.cov(ours.T), covariance, atol=5 * covariance.max() * np.sqrt(2 / 20_000))


@pytest.mark.parametrize("make", [pbodl.AdPredictor, pbodl.MatchBox])
def test_the_rivals_draws_have_their_moments(make):
    model = make(PLAIN, beta=2.0)
    model.learn(FEW)
    z, predicted = latents(model.sample(ASKED, 20_000)), model.predict(ASKED)
    np.testing.assert_allclose(z.mean(axis=0), predicted.mean, atol=5 * np.sqrt(predicted.variance.max() / 20_000))
    np.testing.assert_allclose(z.var(axis=0), predicted.variance, rtol=0.08)
    if make is pbodl.AdPredictor:  # linear: what two rows share is their covariance
        bias = model.state()["bias.variance"][0]
        assert np.cov(z[:, 0], z[:, 4])[0, 1] == pytest.approx(bias / 4.0, abs=5 * z.var() / np.sqrt(20_000))


@pytest.mark.parametrize("make", [pbodl.PairFM, pbodl.FMMLP, pbodl.AdPredictor, pbodl.MatchBox])
def test_forgetting_and_unseen_features_count(make):
    schema = pbodl.Schema(label="click", time="t", fields=PLAIN.fields)
    options = {"drift": 1e-3} if make is pbodl.MatchBox else {"half_life": "1d"}
    if make is pbodl.FMMLP:
        prior = pbodl.Prior(embedding=0.1, linear=0.02, dense=0.05)
        options |= {"hidden": (), "fm_variance": "exact", "prior": prior}  # without layers, this is the variance of the draws
    model = make(schema, **options)
    model.learn([{**row, "t": 60.0 * number} for number, row in enumerate(FEW)])
    model.learn([{"user": "late", "ad": "late", "click": 0, "t": 86400.0}])
    z = latents(model.sample([{**row, "t": 0.0} for row in ASKED], 20_000))
    np.testing.assert_allclose(z.var(axis=0), model.predict([{**row, "t": 0.0} for row in ASKED]).variance, rtol=0.15)


def test_rows_are_drawn_alike_in_any_order_and_company():
    model = learned("groups")
    drawn = model.sample(ROWS, 4, seed=1)
    np.testing.assert_array_equal(model.sample(ROWS[::-1], 4, seed=1), drawn[:, ::-1])
    np.testing.assert_array_equal(model.sample(ROWS[2], 4, seed=1), drawn[:, 2:3])
    np.testing.assert_array_equal(model.sample(ROWS, 2, seed=1), drawn[:2])
    np.testing.assert_array_equal(model.sample(from_data(RICH, ROWS, labelled=False), 4, seed=1), drawn)
    assert (model.sample(ROWS, 4, seed=2) != drawn).all()


def test_another_process_draws_the_same(tmp_path):
    model = pbodl.PairFM(PLAIN, dim=2)
    model.learn(FEW)
    model.save(tmp_path)
    code = f"import pbodl; print(pbodl.load({str(tmp_path)!r}).sample({ASKED!r}, 3, seed=5).tolist())"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    np.testing.assert_array_equal(np.array(eval(told)), model.sample(ASKED, 3, seed=5))


def test_a_feature_never_seen_is_drawn_from_its_prior_by_its_key():
    model = pbodl.AdPredictor(PLAIN, prior_variance=0.5)
    rows = [{"user": "a", "ad": "b"}, {"user": "c", "ad": "b"}, {"user": "d", "ad": "e"}]
    shared = np.corrcoef(latents(model.sample(rows, 20_000)).T)
    np.testing.assert_allclose(shared, [[1, 2 / 3, 1 / 3], [2 / 3, 1, 1 / 3], [1 / 3, 1 / 3, 1]], atol=0.03)
    with wrapping():
        seed = draw_seeds(0, 1)[0]
        first, second = (noise_at(seed, np.uint64(hash_value("ad", ad)), np.uint64(0)) for ad in "be")
    assert first != second


def test_a_number_of_the_other_sign_moves_the_other_way():
    schema = pbodl.Schema(label="click", fields=[pbodl.Field("x", group="ad", kind="number", transform="scale")])
    for make in (pbodl.AdPredictor, pbodl.PairFM, lambda schema: pbodl.SparseMLP(schema, hidden=())):
        model = make(schema)
        model.learn([{"x": x, "click": 0} for x in (-1.0, 1.0)])
        low, middle, high = latents(model.sample([{"x": -0.5}, {"x": 0.0}, {"x": 0.5}], 20)).T
        np.testing.assert_allclose(low + high, 2 * middle, atol=1e-4)
        assert np.abs(high - middle).min() > 1e-3


@pytest.mark.parametrize("spread", [0.0, 0.5, 1.0])
def test_the_average_is_the_predicted_ctr_whatever_the_spread(spread):
    model = pbodl.PairFM(PLAIN, dim=2, negative_rate=0.2)
    model.learn(FEW)
    drawn, ctr = model.sample(ASKED, 20_000, spread=spread), model.predict(ASKED).ctr
    if spread == 0.0:
        np.testing.assert_allclose(drawn, np.broadcast_to(ctr, drawn.shape), rtol=1e-6)
    odds = drawn / (1 - drawn) / 0.2  # recalibration is undone, as it bends averages
    full = pbodl.data.sampling.recalibrate(ctr, 5.0)
    np.testing.assert_allclose((odds / (1 + odds)).mean(axis=0), full, atol=0.01)


def test_bad_options_are_refused():
    model = pbodl.PairFM(PLAIN)
    for options, told in (({"draws": 0}, "draws is 0"), ({"seed": -1}, "seed is -1"), ({"spread": -0.5}, "spread is -0.5")):
        with pytest.raises(InputError, match=told):
            model.sample(ASKED, **options)
    with pytest.raises(InputError, match="'ftrl' model has no distribution of its weights"):
        pbodl.FTRLProximal(PLAIN).sample(ASKED)
    assert model.sample([], 3).shape == (3, 0)
