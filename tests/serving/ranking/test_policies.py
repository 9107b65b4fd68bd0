"""Rankings and their propensities, against rankings that are made again and again."""

import numpy as np
import pytest

import pbodl
from pbodl.errors import InputError
from pbodl.serving.ranking.policies import RankPolicy, exact_placements, ordered, rank
from pbodl.serving.ranking.propensities import placements
from pbodl.serving.scoring.predictor import Predictor
from tests.click_log import PLAIN
from tests.oracles.placements import best_first, count_placements

N, SLOTS = 5, 2
BIDS = np.array([1.0, 3.0, 0.5, 2.0, 1.0])


@pytest.fixture(scope="module")
def asked():
    """A predictor of a model that has learned little, and a request for it."""
    model = pbodl.PairFM(PLAIN, dim=2)
    draws = np.random.default_rng(5)
    names = [field.source for field in PLAIN.fields if field.source is not None]
    rows = [
        {**{name: f"v{draws.integers(4)}" for name in names}, PLAIN.label: int(draws.random() < 0.3), "time": 1e9 + n}
        for n in range(60)
    ]
    model.learn(rows)
    predictor = Predictor.of(model)
    encoder = predictor.encoder
    own = encoder.encode_own([tuple(f"v{n}" for _ in encoder.own_columns) for n in range(N)])
    return predictor, encoder.encode_shared({}), own


def test_the_order_is_that_of_a_naive_search():
    draws = np.random.default_rng(1)
    for _ in range(50):
        ctr = draws.integers(0, 4, N) / 4.0  # with equals
        assert ordered(ctr, None, N).tolist() == best_first(ctr)
        assert ordered(ctr, BIDS, SLOTS).tolist() == best_first(ctr * BIDS)[:SLOTS]


@pytest.mark.parametrize("policy", [RankPolicy("greedy"), RankPolicy("ucb", c=2.0), RankPolicy("epsilon", epsilon=0.4)])
@pytest.mark.parametrize("bids", [None, BIDS])
def test_exact_propensities_are_the_shares_of_many_rankings(asked, policy, bids):
    predictor, shared, own = asked
    times = 3000
    ref = count_placements(lambda n: rank(predictor, shared, own, bids, SLOTS, policy._replace(seed=n)).placed, N, SLOTS, times)
    comp, scores = placements(predictor, shared, own, bids, SLOTS, policy, 1, np.random.default_rng(0))
    assert np.allclose(comp.sum(axis=0), 1.0)
    assert (np.abs(comp - ref) <= 5.0 * np.sqrt(comp * (1.0 - comp) / times) + 1e-12).all()
    assert (comp == exact_placements(scores, bids, SLOTS, policy, 1.0)).all()


def test_without_spread_thompson_is_greedy_for_certain(asked):
    predictor, shared, own = asked
    policy = RankPolicy("thompson", spread=0.0)
    assert not policy.is_drawn
    greedy = rank(predictor, shared, own, None, SLOTS, RankPolicy("greedy"))
    assert (rank(predictor, shared, own, None, SLOTS, policy).placed == greedy.placed).all()
    comp, _ = placements(predictor, shared, own, None, SLOTS, policy, 10, np.random.default_rng(0))
    assert (comp[greedy.placed, [0, 1]] == 1.0).all()


@pytest.mark.parametrize("text", ["best", "greedy:1", "epsilon:2", "epsilon:x", "ucb:-1", "thompson:nan", ""])
def test_policies_that_there_are_not(text):
    with pytest.raises(InputError, match="policy"):
        RankPolicy.parse(text)
