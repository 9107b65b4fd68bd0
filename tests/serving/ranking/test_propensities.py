"""Propensities of Thompson sampling, against rankings that are made again and again, each under draws of all weights."""

import numpy as np
import pytest

import pbodl
from pbodl.data.hashing import wrapping
from pbodl.kernels.draws import draw_seed
from pbodl.serving.models.follower import Version
from pbodl.serving.ranking.policies import RankPolicy, rank
from pbodl.serving.ranking.propensities import CountOfDraws, CountOfParts, counted_in_draws, placements
from pbodl.serving.scoring.whole_predictor import predictor_of
from tests.oracles.placements import count_placements

GROUPS = {"user": "user", "site": "context", "ad": "ad", "brand": "ad", "format": "ad"}
SCHEMA = pbodl.Schema(label="click", time="time", fields=[pbodl.Field(name, group=group) for name, group in GROUPS.items()])
BIDS = np.array([1.0, 1.2, 0.9, 1.1, 1.0, 1.3, 0.0])
KINDS = {"pair-fm": pbodl.PairFM, "fm-mlp": pbodl.FMMLP, "adpredictor": pbodl.AdPredictor, "matchbox": pbodl.MatchBox}
SLOTS = 2


def asked(candidates: int, kind: str = "pair-fm", **options):
    """A predictor of a model that has learned little, and a request for it; candidates have some features in common."""
    draws, model = np.random.default_rng(5), KINDS[kind](SCHEMA, **options)
    model.learn(
        [
            {**{name: f"v{draws.integers(4)}" for name in GROUPS}, "click": int(draws.random() < 0.3), "time": 1e9 + n}
            for n in range(60)
        ]
    )
    predictor = predictor_of(Version.of(model))
    encoder = predictor.encoder
    own = encoder.encode_own(
        [tuple(f"v{n % (7 - 2 * place)}" for place, _ in enumerate(encoder.own_columns)) for n in range(candidates)]
    )
    return predictor, encoder.encode_shared({}), own


def counted(request, draws, bids=None, policy=None, listed=None, seed=0):
    predictor, shared, own = request
    scores = predictor.score_encoded(shared, own)
    listed = np.arange(len(own.keys)) if listed is None else np.array(listed)
    luck = np.random.default_rng(seed)
    return counted_in_draws(predictor, shared, own, scores, bids, SLOTS, policy or RankPolicy("thompson"), draws, luck, listed)


def assert_shares(request, bids, policy, draws, times):
    predictor, shared, own = request
    n = len(own.keys)
    ref = count_placements(lambda i: rank(predictor, shared, own, bids, SLOTS, policy._replace(key=i)).placed, n, SLOTS, times)
    comp, _ = placements(predictor, shared, own, bids, SLOTS, policy, draws, np.random.default_rng(9))
    np.testing.assert_allclose(comp.sum(axis=0), 1.0)
    assert 0.0 < ref.max() < 1.0  # the policy is random here
    assert (np.abs(comp - ref) <= 5.0 * np.sqrt(ref * (1.0 - ref) * (1.0 / times + 1.0 / draws) + 1.0 / times**2)).all()


@pytest.mark.parametrize("bids", [None, BIDS])
@pytest.mark.parametrize("spread", [1.0, 0.5, 1.5])
def test_they_are_the_shares_of_many_rankings(bids, spread):
    assert_shares(asked(7, dim=2), bids, RankPolicy("thompson", spread=spread), 10_000, 20_000 if spread == 1.0 else 5_000)


@pytest.mark.parametrize("options", [{"dim": 8}, {"dim": 5, "linear": False}, {"negative_rate": 0.2}, {"half_life": "1d"}])
def test_whatever_the_model_is(options):
    assert_shares(asked(5, **options), BIDS[:5], RankPolicy("thompson"), 5_000, 4_000)


def test_a_sum_of_weights():
    request = asked(7, "adpredictor", prior_variance=0.3)
    assert isinstance(counted(request, 3), CountOfParts)
    assert_shares(request, BIDS, RankPolicy("thompson"), 5_000, 3_000)


@pytest.mark.parametrize("kind", ["fm-mlp", "matchbox"])
def test_models_whose_draws_are_made_one_by_one(kind):
    request = asked(5, kind)
    assert isinstance(counted(request, 3), CountOfDraws)
    assert_shares(request, None, RankPolicy("thompson"), 1_000, 1_000)


def test_draws_put_together_are_as_good_as_independent_ones():
    request, draws = asked(40, dim=4), 48
    assert isinstance(counted(request, draws), CountOfParts)
    estimates = []
    for seed in range(300):
        count = counted(request, draws, seed=seed)
        count.step()
        estimates.append(count.hits / count.draws)
    p, variance = np.mean(estimates, axis=0), np.var(estimates, axis=0, ddof=1)
    probable = p > 0.01
    ratio = variance[probable] / (p * (1.0 - p) / draws)[probable]
    assert probable.sum() > 8
    assert ratio.mean() < 1.0
    assert ratio.max() < 1.3  # each is known to 8 %


def test_candidates_that_are_not_listed_take_part():
    request, policy = asked(7, dim=2), RankPolicy("thompson")
    predictor, shared, own = request
    chance, _ = placements(predictor, shared, own, None, SLOTS, policy, 4_000, np.random.default_rng(1))
    for listed in ([0, 1], [1, 3], [3, 1], [6, 2]):
        count = counted(request, 4_000, listed=listed)
        assert count.step()
        share, error = count.propensity()
        assert (share > 0.0).all()
        assert (error > 0.0).all()
        assert (np.abs(share - chance[listed, [0, 1]]) <= 5.0 * np.sqrt(2.0) * error).all()


def test_candidates_that_are_the_same_keep_their_order():
    predictor, shared, own = asked(2, dim=2)
    twins = own._replace(keys=own.keys[[0, 0, 1, 1]], values=own.values[[0, 0, 1, 1]])
    chance, _ = placements(predictor, shared, twins, None, SLOTS, RankPolicy("thompson"), 500, np.random.default_rng(1))
    assert (chance[[1, 3], 0] == 0.0).all()
    np.testing.assert_allclose(chance[[0, 2], 0], chance[[1, 3], 1])


@pytest.mark.parametrize("kind", ["pair-fm", "fm-mlp"])
def test_counting_goes_on_in_steps_with_draws_of_its_own(kind):
    request = asked(5, kind)
    in_steps, at_once = counted(request, 120, seed=2), counted(request, 120, seed=2)
    steps = 0
    while not in_steps.step(0.0):
        steps += 1
    at_once.step()
    assert steps > 3
    assert (in_steps.hits == at_once.hits).all()
    assert (in_steps.hits.sum(axis=0) == in_steps.draws).all()
    # Fresh randomness differs from count to count.
    others = [counted(request, 120, seed=seed) for seed in range(4)]
    for other in others:
        other.step()
    assert len({other.hits.tobytes() for other in others}) > 1


def test_a_drawing_is_the_draw_of_its_seed():
    for kind in KINDS:
        predictor, shared, own = asked(5, kind)
        draw = predictor.drawing(shared, own)
        for number in range(3):
            with wrapping():
                seed = np.uint64(draw_seed(np.uint64(1), np.uint64(number)))
            np.testing.assert_array_equal(draw(seed), predictor.draw_encoded(shared, own, seed)[1])
