"""The factors of candidates give the variances of predictions, and the covariances of naive draws."""

import numpy as np
import pytest

import pbodl
from pbodl.serving.models.follower import Version
from pbodl.serving.scoring.predictor import Predictor
from pbodl.serving.scoring.whole_predictor import predictor_of
from tests.serving.scoring.test_drawn_candidates import ADS, encoded, plain_model
from tests.serving.scoring.test_pair_candidates import OPTIONS
from tests.serving.scoring.test_predictor import CONTEXT, ODD, SCHEMA, USER, candidates, rows


def covariance(factors):
    """Of all candidates: weights that candidates share have one noise."""
    columns = [np.full((len(factors.keys), 1), factors.level[0]), factors.vectors, factors.weights]
    for key in np.unique(factors.keys):
        columns.append(np.where((factors.keys == key)[:, :, None], factors.features, 0.0).sum(axis=1))
    every = np.concatenate(columns, axis=1).astype(np.float64)
    return every @ every.T


def assert_factors(predictor, shared, own, draws):
    scores, factors = predictor.score_encoded(shared, own), predictor.factors(shared, own)
    found = covariance(factors)
    if predictor.version.model.kind == "pair-fm":
        alone = found.diagonal() * predictor.version.model.doubt
        # Of features that a list holds twice, the variance of a prediction and that of draws differ.
        np.testing.assert_allclose(alone, scores.variance, rtol=0.02)
    z = np.array([predictor.draw_encoded(shared, own, np.uint64(seed + 1))[1] for seed in range(draws)])
    root = np.sqrt(np.diag(found))
    error = (np.cov(z.T) - found) / np.outer(root, root)
    assert np.abs(error).max() < 6.0 / np.sqrt(draws)


@pytest.mark.parametrize("options", [{}, {"half_life": "1d"}, {"beta": 2.0}])
def test_a_sum_of_weights(options):
    model = pbodl.AdPredictor(SCHEMA, prior_variance=0.5, **options)
    model.learn(rows(300, 1))
    predictor = predictor_of(Version.of(model))
    assert_factors(predictor, *encoded(predictor, USER, CONTEXT, [*candidates(9), *ODD]), 3000)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_lists_and_numbers(options):
    model = pbodl.PairFM(SCHEMA, **options)
    model.learn(rows(300, 1))
    predictor = Predictor.of(model)
    shared, own = encoded(predictor, USER, CONTEXT, [*candidates(9), *ODD])
    assert_factors(predictor, shared, own, 3000)


def test_categories_remembered_or_not():
    predictor = Predictor.of(plain_model("pairs"))
    shared, own = encoded(predictor, {"user": 3}, {"site": 1}, ADS)
    for given in (own, own, own._replace(plain=False)):
        assert_factors(predictor, shared, given, 3000)


def test_networks_have_none():
    predictor = Predictor.of(plain_model("fm"))
    assert predictor.factors(*encoded(predictor, {"user": 3}, {"site": 1}, ADS)) is None
