"""A request's scores are those of `model.predict` on its expanded rows, whatever the model and the features."""

import math

import numpy as np
import pytest

import pbodl
from pbodl.errors import InputError
from pbodl.models import adaptation
from pbodl.models.deep_probit import DeepProbit
from pbodl.serving.models.follower import Version
from pbodl.serving.scoring.candidate_kernels import SERVED
from pbodl.serving.scoring.predictor import Predictor, Scores

DAY = 86400.0
FIELDS = [
    pbodl.Field("user", group="user"),
    pbodl.Field("tags", kind="multi", group="user"),
    pbodl.Field("age", kind="number", transform="scale", group="user"),
    pbodl.Field("site", group="context"),
    pbodl.Field("ad", group="ad"),
    pbodl.Field("words", kind="multi", group="ad"),
    pbodl.Field("price", kind="number", transform="scale", group="ad"),
    pbodl.Field("size", kind="number", group="ad"),
]
SCHEMA = pbodl.Schema(label="click", time="time", fields=FIELDS)
KINDS = {"concat": DeepProbit, "sum": pbodl.SparseMLP, "fm": pbodl.FMMLP, "ffm": pbodl.FFMMLP}
OPTIONS = {
    "as it comes": {},
    "the usual dimension": {"dim": 16},
    "no linear term": {"linear": False},
    "shortcut": {"shortcut": True},
    "groups": {"pairs": "groups"},
    "groups, printed variance": {"pairs": "groups", "fm_variance": "paper"},
    "no hidden layers": {"hidden": ()},
    "three hidden layers": {"hidden": (5, 4, 3)},
    "the paper's": {"paper": True},
    "forgetting": {"half_life": "1d", "decay_mean": True},
    "sampled": {"negative_rate": 0.1},
}
USER, CONTEXT = {"user": 3, "tags": ["a", "b", "b"], "age": 31.5}, {"site": "s1"}
ODD = [
    {"ad": "never seen", "words": ["new"], "price": 1e9, "size": -4.0},
    {"ad": 2, "words": [], "price": None, "size": None},
    {"ad": None},
    {},
]


def rows(n: int, seed: int) -> list[dict]:
    rng = np.random.default_rng(seed)
    return [
        {
            "user": int(rng.integers(9)), "tags": list(rng.choice(["a", "b", "c"], rng.integers(3))),
            "age": float(rng.normal(40, 9)), "site": f"s{rng.integers(3)}",
            "ad": int(rng.integers(9)), "words": list(rng.choice(["x", "y", "z"], rng.integers(4))),
            "price": float(rng.exponential(3)), "size": float(rng.integers(5)),
            "click": int(rng.random() < 0.3), "time": i * DAY / 200,
        }
        for i in range(n)
    ]  # fmt: skip


def trained(kind: str = "fm", **options) -> DeepProbit:
    model = KINDS[kind](SCHEMA, **{"dim": 5, "hidden": (7, 6), **options})
    model.learn(rows(300, 1))
    return model


def candidates(n: int) -> list[dict]:
    return [{name: row[name] for name in ("ad", "words", "price", "size")} for row in rows(n, 2)]


def expanded(user: dict, context: dict, given: list[dict]) -> list[dict]:
    nothing = dict.fromkeys((field.name for field in FIELDS), None)
    return [{**nothing, **user, **context, **candidate} for candidate in given]


def assert_as_predicted(scores: Scores, model: DeepProbit, asked: list[dict]) -> None:
    ref = model.predict(asked)
    np.testing.assert_allclose(scores.ctr, ref.ctr, rtol=0, atol=1e-6)
    np.testing.assert_allclose(scores.mean, ref.mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(scores.variance, ref.variance, rtol=1e-5)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_those_of_the_expanded_rows(kind, options):
    model = trained(kind, **options)
    given = [*candidates(37), *ODD]
    predictor = Predictor.of(model)
    assert_as_predicted(predictor.score(USER, CONTEXT, given), model, expanded(USER, CONTEXT, given))
    assert_as_predicted(predictor.score({}, {}, given), model, expanded({}, {}, given))


@pytest.mark.parametrize("kind", KINDS)
def test_priors_that_followed_the_stream(kind, monkeypatch):
    """Unseen features and forgotten ones are at the prior of their field, and for FFM of their group, as it is now."""
    monkeypatch.setattr(adaptation, "FIRST", 128)
    model = trained(kind, half_life="1d", decay_mean=True)
    assert len(np.unique(model.row_prior.variance)) > 1
    given = [*candidates(9), *ODD]
    assert_as_predicted(Predictor.of(model).score(USER, CONTEXT, given), model, expanded(USER, CONTEXT, given))


@pytest.mark.parametrize("kind", KINDS)
def test_features_of_plain_categories(kind):
    """All seen, of value 1, nothing forgotten: read where they are."""
    groups = {"u": "user", "v": "user", "c": "context", "a": "ad", "b": "ad"}
    schema = pbodl.Schema(label="click", fields=[pbodl.Field(name, group=group) for name, group in groups.items()])
    log = [{"u": i % 3, "v": i % 4, "c": i % 2, "a": i % 5, "b": i % 7, "click": int(i % 5 == i % 3)} for i in range(420)]
    model = KINDS[kind](schema, dim=16, hidden=(8,))
    model.learn(log)
    own = [{"a": a, "b": b} for a in range(5) for b in range(7)]
    scores = Predictor.of(model).score({"u": 1, "v": 2}, {"c": 0}, own)
    assert_as_predicted(scores, model, [{"u": 1, "v": 2, "c": 0, **candidate} for candidate in own])


@pytest.mark.parametrize("n", [0, 1])
def test_few_candidates(n):
    model = trained()
    scores = Predictor.of(model).score(USER, CONTEXT, candidates(n))
    assert [len(column) for column in scores] == [n] * 4
    assert_as_predicted(scores, model, expanded(USER, CONTEXT, candidates(n)))


def test_a_score_does_not_depend_on_the_other_candidates():
    predictor, given = Predictor.of(trained()), [*candidates(70), *ODD]
    together = predictor.score(USER, CONTEXT, given)
    for i in (0, 31, 32, 71):
        alone = predictor.score(USER, CONTEXT, [given[i]])
        # Other candidates' longer lists leave empty slots here, which change nothing but the order of a sum.
        np.testing.assert_allclose([column[0] for column in alone], [column[i] for column in together], rtol=1e-6)


def test_a_predictor_stays_as_it_was_made():
    model = trained()
    predictor = Predictor.of(model)
    before = predictor.score(USER, CONTEXT, candidates(5))
    model.learn(rows(100, 3))
    np.testing.assert_array_equal(predictor.score(USER, CONTEXT, candidates(5)), before)
    assert abs(Predictor.of(model).score(USER, CONTEXT, candidates(5)).ctr - before.ctr).max() > 1e-4


@pytest.mark.parametrize("negative_rate", [1.0, 0.2])
def test_the_deviation_is_that_of_the_ctr(negative_rate):
    model = trained(negative_rate=negative_rate)
    scores = Predictor.of(model).score(USER, CONTEXT, candidates(3))
    z = scores.mean + np.sqrt(scores.variance) * np.random.default_rng(4).normal(size=(200_000, 3))
    p = 0.5 * (1.0 + np.vectorize(math.erf)(z[:40_000] / math.sqrt(2.0)))
    if negative_rate == 1.0:
        np.testing.assert_allclose(scores.std, p.std(axis=0), rtol=0.03)
    else:  # carried over by the slope of the recalibration at the mean: a first approximation
        np.testing.assert_allclose(scores.std, (p / (p + (1 - p) / negative_rate)).std(axis=0), rtol=0.25)


def test_an_empty_model_answers_by_its_prior():
    model = pbodl.FMMLP(SCHEMA)
    assert_as_predicted(Predictor.of(model).score(USER, CONTEXT, ODD), model, expanded(USER, CONTEXT, ODD))


def test_unknown_fields_and_other_models_are_refused():
    predictor = Predictor.of(trained())
    with pytest.raises(InputError, match=r"unknown field 'sight'.*site"):
        predictor.score({}, {"sight": 1}, [])
    with pytest.raises(InputError, match=r"unknown field 'prise'.*price"):
        predictor.score({}, {}, [{"ad": 1}, {"prise": 1}])
    with pytest.raises(InputError, match="has no kernels for candidates"):
        Predictor.of(pbodl.AdPredictor(SCHEMA))


def test_an_operation_that_serving_does_not_know_is_refused():
    # Its kernels would take it for one without inner sums, and score nonsense.
    model = trained()
    version = Version.of(model)
    model.shape = version.model.shape = model.shape._replace(op=np.int64(max(SERVED) + 1))
    for build in (lambda: Predictor.of(model), lambda: Predictor(version)):
        with pytest.raises(InputError, match=r"the embedding operation 6, which serving does not know; it knows concat, sum, FM"):
            build()


def test_every_operation_of_the_network_is_served():
    ops = {pbodl.DeepProbit(SCHEMA).shape.op, pbodl.SparseMLP(SCHEMA).shape.op, pbodl.FFMMLP(SCHEMA).shape.op}
    ops |= {pbodl.PairFM(SCHEMA).shape.op}
    ops |= {pbodl.FMMLP(SCHEMA, pairs=pairs).shape.op for pairs in ("fields", "groups")}
    assert ops == set(SERVED)
