"""Serving a `PairFM` gives the answers of `model.predict`, whatever the candidates are."""

import numpy as np
import pytest

import pbodl
from pbodl.serving.scoring.pair_candidates import pair_indices
from pbodl.serving.scoring.predictor import Predictor
from tests.serving.scoring.test_predictor import CONTEXT, ODD, SCHEMA, USER, assert_as_predicted, candidates, expanded, rows

OPTIONS = {
    "as it comes": {},
    "another dimension": {"dim": 5},
    "the usual dimension of others": {"dim": 16},
    "no linear term": {"linear": False},
    "forgetting": {"half_life": "1d", "decay_mean": True},
    "sampled": {"negative_rate": 0.1},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_scores_are_those_of_the_expanded_rows(options):
    model = pbodl.PairFM(SCHEMA, **options)
    model.learn(rows(300, 1))
    given = [*candidates(37), *ODD]
    predictor = Predictor.of(model)
    assert_as_predicted(predictor.score(USER, CONTEXT, given), model, expanded(USER, CONTEXT, given))
    assert_as_predicted(predictor.score({}, {}, given), model, expanded({}, {}, given))


def test_candidates_of_plain_categories_are_remembered():
    fields = [pbodl.Field(name, group=group) for name, group in (("u", "user"), ("a", "ad"), ("c", "context"), ("b", "ad"))]
    model = pbodl.PairFM(pbodl.Schema(label="click", fields=fields))
    rng = np.random.default_rng(1)
    model.learn([{**{name: int(rng.integers(5)) for name in "uabc"}, "click": int(rng.random() < 0.4)} for _ in range(400)])
    given = [{"a": a, "b": b} for a in range(5) for b in range(5)]
    predictor = Predictor.of(model)
    for user in range(3):  # computed the first time, remembered then
        scores = predictor.score({"u": user}, {"c": 2}, given)
        assert_as_predicted(scores, model, [{"u": user, "c": 2, **candidate} for candidate in given])


def test_pairs_are_counted_row_by_row():
    assert pair_indices(4).tolist() == [[0, 0, 1, 2], [0, 0, 3, 4], [1, 3, 0, 5], [2, 4, 5, 0]]


def test_candidates_without_fields_of_their_own_get_what_the_request_says():
    schema = pbodl.Schema(label="click", fields=[pbodl.Field("u", group="user"), pbodl.Field("c", group="context")])
    model = pbodl.PairFM(schema)
    model.learn([{"u": n % 3, "c": n % 4, "click": n % 2} for n in range(200)])
    assert_as_predicted(Predictor.of(model).score({"u": 1}, {"c": 2}, [{}, {}]), model, [{"u": 1, "c": 2}] * 2)
