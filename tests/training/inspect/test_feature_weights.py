"""The weights of features, read from any model's state."""

import msgspec
import numpy as np
import pytest

import pbodl
from pbodl.baselines import AdPredictor, FTRLProximal, MatchBox
from pbodl.data.batch import Batch
from pbodl.data.hashing import hash_value
from pbodl.kernels.arguments import Features
from pbodl.kernels.layers.embedding import forget_rows
from pbodl.training.inspect.feature_weights import in_time, weights_of
from tests.click_log import PLAIN, RICH, click_log
from tests.contract import fingerprint

LOG = click_log(300)


def trained(kind, schema=RICH, **options):
    model = kind(schema, **options)
    model.learn(LOG)
    return model


def samples(keys: np.ndarray, present: int) -> Batch:
    """A sample for each key, with that one feature of the field `user`, or (present=0) with none."""
    n = len(keys)
    entries = np.ones(n * present, np.float32)
    users = np.full(n * present, RICH.field_index("user"), np.int32)
    return Batch(keys[: n * present], entries, users, np.arange(n + 1) * present, None, np.zeros(n), np.ones(n, np.float32))


def test_a_deep_models_weights():
    prior = pbodl.Prior(embedding=0.2, linear=0.04, fields={"ad": pbodl.FieldPrior(linear=0.5)})
    model = trained(pbodl.FMMLP, dim=3, hidden=(4,), prior=prior)
    before = fingerprint(model)
    weights = weights_of(model)
    assert fingerprint(model) == before
    assert list(weights.parts) == ["embedding", "linear"]
    state = model.state()
    row = int(weights.rows(np.array([hash_value("ad", LOG[0]["ad"])], np.uint64))[0])
    np.testing.assert_array_equal(weights.parts["embedding"].mean[row], state["embedding.mean"][row])
    np.testing.assert_allclose(weights.parts["linear"].variance, state["linear.variance"], rtol=1e-6)
    assert weights.counts[row] == sum(one["ad"] == LOG[0]["ad"] for one in LOG)
    assert weights.last_seen[row] == max(one["time"] for one in LOG if one["ad"] == LOG[0]["ad"])
    ad = RICH.field_index("ad")
    assert weights.fields[row] == ad
    linear = np.array([0.5 if field.name == "ad" else 0.04 for field in RICH.fields], np.float32)
    np.testing.assert_array_equal(weights.parts["linear"].prior[:, 0], linear)
    np.testing.assert_array_equal(weights.parts["embedding"].prior, np.full((len(RICH.fields), 3), np.float32(0.2)))


def test_rows_of_unseen_keys():
    weights = weights_of(trained(pbodl.FMMLP, dim=2, hidden=()))
    keys = np.append(weights.keys[::-1], np.array([1, 2**63], np.uint64))
    assert weights.rows(keys).tolist() == [*range(len(weights.keys))[::-1], -1, -1]
    empty = weights_of(pbodl.FMMLP(RICH, dim=2, hidden=()))
    assert empty.rows(np.array([5], np.uint64)).tolist() == [-1]
    assert len(empty.variance_left()) == 0


def test_what_is_left_of_the_prior_variance():
    weights = weights_of(trained(AdPredictor, prior_variance=0.5))
    left = weights.variance_left()
    np.testing.assert_allclose(left, weights.parts["weight"].variance[:, 0] / 0.5)
    assert left.min() > 0
    assert left.max() <= 1.0
    assert left[np.argmax(weights.counts)] < left[np.argmin(weights.counts)]


@pytest.mark.parametrize("linear", [True, False])
def test_no_feature_is_less_certain_than_a_new_one(linear):
    weights = weights_of(trained(pbodl.FMMLP, dim=2, hidden=(4,), linear=linear, initial_spread=0.5))
    left = weights.variance_left()
    assert 0 < left.min() < left.max() <= 1.0
    if linear:
        part = weights.parts["linear"]
        np.testing.assert_allclose(left, part.variance[:, 0] / part.prior[weights.fields, 0])
        frequent, rare = weights.counts >= np.quantile(weights.counts, 0.9), weights.counts <= 2
        assert left[frequent].max() < left[rare].min()


@pytest.mark.parametrize("kind", [pbodl.FMMLP, AdPredictor])
def test_forgetting_is_taken_into_account(kind):
    options = {"dim": 2, "hidden": ()} if kind is pbodl.FMMLP else {}
    model = trained(kind, half_life="1h", **options)
    weights = weights_of(model)
    if kind is AdPredictor:
        # What a linear model says of a sample with one feature, less what it says of none, is that feature's weight as it is now.
        keys = np.array([hash_value("user", user) for user in range(25)], np.uint64)
        alone, none = (model.predict(samples(keys, present)) for present in (1, 0))
        part, rows = weights.parts["weight"], weights.rows(keys)
        np.testing.assert_allclose(part.mean[rows, 0], alone.mean - none.mean)
        np.testing.assert_allclose(part.variance[rows, 0], alone.variance - none.variance)
    stored = model.state()[f"{'embedding' if kind is pbodl.FMMLP else 'weight'}.variance"].reshape(len(weights.keys), -1)
    now = next(iter(weights.parts.values())).variance
    elapsed = model.clock - weights.last_seen
    assert (now[elapsed > 60] > stored[elapsed > 60]).any()
    np.testing.assert_allclose(now[elapsed == 0], stored[elapsed == 0], rtol=1e-6)
    long_ago = msgspec.structs.replace(model.spec, half_life="1s")
    forgetful = type(model).from_spec(RICH, long_ago)
    forgetful.load_state(model.state())
    assert weights_of(forgetful).variance_left()[elapsed > 600] == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("decay_mean", [False, True])
@pytest.mark.parametrize("kind", [pbodl.FMMLP, pbodl.SparseMLP])
def test_the_weights_shown_are_those_the_kernel_goes_on_from(kind, decay_mean):
    model = trained(kind, dim=2, hidden=(), half_life="1h", decay_mean=decay_mean)
    comp = weights_of(model)
    ref = type(model).from_spec(RICH, model.spec)
    ref.load_state(model.state())
    count = ref.table.size
    rows, values = np.arange(count, dtype=np.int32), np.ones(count, np.float32)
    features = Features(np.arange(count + 1), rows, ref.table.keys, values, ref.table.field.astype(np.int32))
    for sample in range(count):
        forget_rows(ref.rows(), features, sample, model.clock, ref.row_prior, ref.forgetting)
    assert (weights_of(ref).last_seen > comp.last_seen).any()
    for part in ("embedding", "linear"):
        mean, variance = (ref.state()[f"{part}.{name}"].reshape(count, -1) for name in ("mean", "variance"))
        np.testing.assert_allclose(comp.parts[part].mean, mean, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(comp.parts[part].variance, variance, rtol=1e-4)


def test_models_without_variances():
    weights = weights_of(trained(FTRLProximal))
    assert weights.parts == {}
    assert weights.variance_left() is None
    assert sorted(weights.numbers) == ["n", "z"]


def test_traits_and_biases():
    weights = weights_of(trained(MatchBox, dim=2))
    assert {name: part.mean.shape[1] for name, part in weights.parts.items()} == {"weight": 2, "bias": 1}


def test_a_bounded_table_does_not_matter():
    weights = weights_of(trained(pbodl.FMMLP, dim=2, hidden=(), capacity=20))
    assert len(weights.keys) <= 20
    assert weights.parts["embedding"].prior.shape == (len(RICH.fields), 2)


def test_clocks():
    assert in_time(RICH, pbodl.FMMLP(RICH).spec)
    assert not in_time(PLAIN, pbodl.FMMLP(PLAIN).spec)
    assert not in_time(RICH, pbodl.FMMLP(RICH, half_life="1M rows").spec)


@pytest.mark.parametrize("kind", [pbodl.FMMLP, pbodl.FFMMLP, AdPredictor, MatchBox])
def test_a_feature_starts_from_the_models_prior(kind):
    """Shown once with a weight of zero, a feature of each field keeps the prior."""
    model = kind(RICH)
    n = len(RICH.fields)
    fields = np.arange(n, dtype=np.int32)
    one = Batch(fields.astype(np.uint64), np.ones(n, np.float32), fields, np.array([0, n]), np.zeros(1, np.float32), np.zeros(1),
                np.zeros(1, np.float32))  # fmt: skip
    model.learn(one)
    state, priors = model.state(), model.prior_variances()
    assert set(priors) == {name for name in state if name.startswith(("embedding.", "linear.", "weight.")) and "variance" in name}
    for name, ref in priors.items():
        np.testing.assert_allclose(state[name].reshape(ref.shape), ref, rtol=1e-6)
