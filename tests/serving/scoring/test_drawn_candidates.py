"""A request under a draw of the weights is line 0 of `model.sample` on its expanded rows, whatever the model and the features."""

import numpy as np
import pytest

import pbodl
from pbodl.serving.scoring.exploration import Exploration, explore, seed_of_draw
from pbodl.serving.scoring.predictor import Predictor
from tests.serving.scoring.test_predictor import CONTEXT, ODD, OPTIONS, SCHEMA, USER, candidates, expanded, rows, trained

PLAIN = pbodl.Schema(
    label="click",
    fields=[
        pbodl.Field("user", group="user"), pbodl.Field("site", group="context"), pbodl.Field("ad", group="ad"),
        pbodl.Field("brand", group="ad"),
    ],
)  # fmt: skip
KINDS = {"pairs": pbodl.PairFM, "concat": pbodl.DeepProbit, "sum": pbodl.SparseMLP, "fm": pbodl.FMMLP, "ffm": pbodl.FFMMLP}
ADS = [{"ad": ad, "brand": ad % 3} for ad in range(45)] + [{"ad": "new", "brand": 1}, {"ad": "newer", "brand": "new"}]


def encoded(predictor, user, context, asked):
    names = [field.name for field in predictor.encoder.own]
    own = predictor.encoder.encode_own([tuple(map(candidate.get, names)) for candidate in asked])
    return predictor.encoder.encode_shared({**user, **context}), own


def plain_model(kind, **options):
    model = KINDS[kind](PLAIN, **options)
    rng = np.random.default_rng(0)
    users, ads = rng.integers(0, 9, 400), rng.integers(0, 45, 400)
    model.learn(
        [{"user": u, "site": u % 2, "ad": a, "brand": a % 3, "click": int(u % 3 == a % 3)} for u, a in zip(users, ads, strict=True)]
    )
    return model


def assert_drawn(model, user, context, asked, full):
    predictor = Predictor.of(model)
    shared, own = encoded(predictor, user, context, asked)
    for seed in range(2):
        ref = model.sample(full, 1, seed)[0]
        for given in (own, own, own._replace(plain=False)):  # at first sight, remembered, and past the cache
            scores, ctr = explore(predictor, shared, given, Exploration("thompson", seed=seed))
            np.testing.assert_allclose(ctr, ref, rtol=2e-4, atol=1e-6)
            np.testing.assert_array_equal(scores.mean, predictor.score_encoded(shared, given).mean)


@pytest.mark.parametrize("kind", KINDS)
def test_categories(kind):
    model = plain_model(kind)
    assert_drawn(model, {"user": 3}, {"site": 1}, ADS, [{"user": 3, "site": 1, **ad} for ad in ADS])


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("kind", ["fm", "ffm"])
def test_lists_numbers_and_missing_values(kind, option):
    model = trained(kind, **OPTIONS[option])
    asked = candidates(5) + ODD
    assert_drawn(model, USER, CONTEXT, asked, expanded(USER, CONTEXT, asked))


@pytest.mark.parametrize("options", [{}, {"linear": False}, {"half_life": "1d", "decay_mean": True}, {"dim": 3}])
def test_pairs_of_lists_and_numbers(options):
    model = pbodl.PairFM(SCHEMA, **options)
    model.learn(rows(300, 1))
    asked = candidates(5) + ODD
    assert_drawn(model, USER, CONTEXT, asked, expanded(USER, CONTEXT, asked))


@pytest.mark.parametrize("kind", ["pairs", "fm"])
def test_what_candidates_share_moves_them_together(kind):
    model = plain_model(kind)
    predictor = Predictor.of(model)
    shared, own = encoded(predictor, {"user": "new"}, {"site": "new"}, ADS)
    drawn = np.array([predictor.draw_encoded(shared, own, seed_of_draw(None, seed))[1] for seed in range(400)])
    together = np.corrcoef(drawn.T)
    assert together[0, 3] > 0.5  # the same brand for a user whom nobody knows
    assert abs(together[0, 3]) > abs(together[0, 1])


def test_a_draw_averages_to_the_ctr_and_has_its_deviation():
    model = plain_model("pairs")
    predictor = Predictor.of(model)
    shared, own = encoded(predictor, {"user": 3}, {"site": 1}, ADS)
    plain = predictor.score_encoded(shared, own)
    draws = np.array([explore(predictor, shared, own, Exploration("thompson", seed=seed))[1] for seed in range(800)])
    np.testing.assert_allclose(draws.mean(axis=0), plain.ctr, atol=0.03)
    np.testing.assert_allclose(draws.std(axis=0), plain.std, rtol=0.15)
