"""Many requests in one call are answered as each of them alone."""

import itertools

import numpy as np
import pytest

import pbodl
from pbodl.serving.models.follower import Version
from pbodl.serving.scoring import exploration
from pbodl.serving.scoring.exploration import Exploration, explore, explore_requests
from pbodl.serving.scoring.predictor import Predictor
from pbodl.serving.scoring.request_encoding import Encoded

SCHEMA = pbodl.Schema(
    label="click",
    fields=[
        pbodl.Field("age", group="user"),
        pbodl.Field("ad", group="ad"),
        pbodl.Field("campaign", group="ad"),
        pbodl.Field("site", group="context"),
    ],
)
KINDS = {"pairs": pbodl.PairFM, "layers": pbodl.FMMLP}
INDPTR = np.array([0, 3, 4, 9])


@pytest.fixture(scope="module")
def predictors():
    rng = np.random.default_rng(0)
    rows = [
        {"age": int(a), "ad": int(b), "campaign": int(b) // 3, "site": int(c), "click": int(rng.random() < 0.1 + 0.2 * (a == c))}
        for a, b, c in rng.integers(0, 9, (600, 3))
    ]
    found = {}
    for name, kind in KINDS.items():
        model = kind(SCHEMA)
        model.learn(rows)
        found[name] = Predictor.of(model)
    return found


def requests(predictor):
    """Keys of three requests with nine candidates, one of them never seen, one in two requests."""
    encoder = predictor.encoder
    shared = np.concatenate([encoder.encode_shared({"age": age, "site": site}).keys for age, site in ((1, 2), (3, 3), (99, 0))])
    ads = (0, 1, 2, 5, 0, 4, 99, 7, 8)
    return shared, encoder.encode_own([(ad, ad // 3) for ad in ads]).keys


@pytest.mark.parametrize("rule", ["none", "thompson", "ucb"])
@pytest.mark.parametrize("kind", list(KINDS))
def test_many_requests_are_answered_as_each_alone(predictors, kind, rule, monkeypatch):
    predictor, seeds = predictors[kind], np.array([5, 6, 2**53 - 1], np.uint64)
    shared, own = requests(predictor)
    comp, comp_ctr = explore_requests(predictor, shared, own, INDPTR, rule, seeds, 0.7, 1.5)
    for i, (first, last) in enumerate(itertools.pairwise(INDPTR)):
        fields = predictor.encoder.shared_fields
        common = Encoded(shared[i : i + 1], np.ones((1, len(fields)), np.float32), fields, None)
        asked = Exploration(rule, seed=int(seeds[i]), spread=0.7, c=1.5)
        ref, ref_ctr = explore(predictor, common, predictor.encoder.from_keys(own[first:last]), asked)
        np.testing.assert_allclose(comp_ctr[first:last], ref_ctr, rtol=1e-6)
        for one, other in zip(comp, ref, strict=True):
            np.testing.assert_allclose(one[first:last], other, rtol=1e-6)
    monkeypatch.setattr(exploration, "CAPACITY", 4)  # more parts; the second request with the third does not fit
    again, again_ctr = explore_requests(predictor, shared, own, INDPTR, rule, seeds, 0.7, 1.5)
    np.testing.assert_array_equal(again_ctr, comp_ctr)
    np.testing.assert_array_equal(again.std, comp.std)


def test_a_lent_model_is_served_as_its_copy(predictors):
    learned = pbodl.PairFM(SCHEMA)
    learned.learn([{"age": i % 3, "ad": i % 5, "campaign": 0, "site": 1, "click": i % 2} for i in range(40)])
    shared, own = requests(predictors["pairs"])
    lent, copy = Predictor(Version.lent(learned)), Predictor.of(learned)
    for rule in ("none", "thompson"):
        answers = [explore_requests(each, shared, own, INDPTR, rule, np.arange(3, dtype=np.uint64))[1] for each in (lent, copy)]
        np.testing.assert_array_equal(*answers)
    assert lent.version.model is learned
    assert copy.version.model is not learned
