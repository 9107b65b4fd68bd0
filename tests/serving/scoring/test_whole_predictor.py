"""Models without kernels for candidates are served as well: with the same answers as `model.predict`, by the same API."""

import numpy as np
import pytest

import pbodl
import pbodl.serving
from pbodl.models.contract import Model
from pbodl.serving.models.follower import Version
from pbodl.serving.scoring.exploration import Exploration, explore
from pbodl.serving.scoring.predictor import Predictor
from pbodl.serving.scoring.whole_predictor import WholePredictor, predictor_of
from pbodl.serving.web.http_service import HttpService
from tests.click_log import RICH
from tests.publishing.published import LOG
from tests.serving.processes import ServerProcess
from tests.serving.services import CANDIDATES, CONTEXT, REQUEST, USER, Asking, Fixed, rows_of

KINDS = {
    "adpredictor": lambda: pbodl.AdPredictor(RICH, prior_variance=0.3, half_life="3h"),
    "ftrl": lambda: pbodl.FTRLProximal(RICH, negative_rate=0.5),
    "matchbox": lambda: pbodl.MatchBox(RICH),
    "sparse": lambda: pbodl.SparseMLP(RICH, dim=2, hidden=()),
}


def trained(kind: str) -> Model:
    model = KINDS[kind]()
    model.learn(LOG)
    return model


def explored(predictor: Predictor, asked: Exploration) -> np.ndarray:
    names = [field.name for field in predictor.encoder.own]
    own = predictor.encoder.encode_own([tuple(map(candidate.get, names)) for candidate in CANDIDATES])
    return explore(predictor, predictor.encoder.encode_shared({**USER, **CONTEXT}), own, asked)[1]


@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_those_of_predict(kind):
    model = trained(kind)
    predictor = WholePredictor(Version.of(model)) if kind != "sparse" else predictor_of(Version.of(model))
    model.learn(LOG[:50])  # a version is a copy
    ref = trained(kind).predict(rows_of(REQUEST))
    scores = predictor.score(USER, CONTEXT, CANDIDATES)
    np.testing.assert_allclose(scores.ctr, ref.ctr, atol=1e-7)
    np.testing.assert_allclose(scores.std, ref.std, atol=1e-6)
    assert isinstance(predictor, WholePredictor) == (kind != "sparse")
    assert predictor.score(USER, CONTEXT, []).ctr.shape == (0,)


def test_models_without_uncertainty_explore_nothing():
    predictor = WholePredictor.of(trained("ftrl"))
    scores = predictor.score(USER, CONTEXT, CANDIDATES)
    assert not scores.std.any() and not scores.variance.any()
    for rule in ("ucb", "thompson"):
        np.testing.assert_allclose(explored(predictor, Exploration(rule, c=2.0)), scores.ctr, atol=1e-6)


@pytest.mark.parametrize("kind", ["adpredictor", "matchbox"])
def test_thompson_is_one_draw_of_the_weights(kind):
    model = trained(kind)
    drawn = explored(WholePredictor.of(model), Exploration("thompson", seed=3))
    np.testing.assert_allclose(drawn, model.sample(rows_of(REQUEST), 1, seed=3)[0], rtol=1e-5)


@pytest.mark.parametrize("kind", ["adpredictor", "ftrl", "matchbox"])
def test_the_api_is_the_same(kind):
    asking = Asking(HttpService(Fixed(predictor_of(Version.of(trained(kind))))))
    answer = asking.post("/v1/score", json=REQUEST).json()
    np.testing.assert_allclose(answer["ctr"], trained(kind).predict(rows_of(REQUEST)).ctr, atol=1e-6)
    assert asking.post("/v1/score", json={**REQUEST, "explore": "ucb"}).status_code == 200
    assert asking.get("/v1/model").json()["kind"] == kind
    told = asking.get("/v1/features").json()
    assert told["features"] == trained(kind).metrics()["features"]
    assert bool(told["uncertain"]) == (kind != "ftrl")


def test_a_server_serves_a_baseline(tmp_path):
    trained("ftrl").save(tmp_path / "run")
    with ServerProcess(tmp_path / "run") as server:
        server.wait_until_ready()
        with pbodl.serving.Client(server.url) as client:
            answer = client.score(USER, CONTEXT, CANDIDATES)
    np.testing.assert_allclose(answer.ctr, trained("ftrl").predict(rows_of(REQUEST)).ctr, atol=1e-6)
    assert not np.any(answer.std)


def test_the_fast_predictor_refuses_them():
    with pytest.raises(pbodl.InputError, match="has no kernels for candidates"):
        Predictor.of(trained("ftrl"))
