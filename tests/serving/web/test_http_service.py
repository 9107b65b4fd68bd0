"""The HTTP interface: answers that are the model's, in JSON and msgpack, and what is told of the model and the server."""

import asyncio
import gc
import json
import re

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from scipy.stats import norm

import pbodl
from pbodl.models.recalibration import recalibrated_latent
from pbodl.serving.scoring.predictor import Predictor
from pbodl.serving.web.http_service import HttpService
from tests.click_log import RICH
from tests.publishing.published import LOG, MODELS
from tests.serving.services import BOTH, CANDIDATES, CONTEXT, REQUEST, USER, Asking, Fixed, answer, ask, client_of, rows_of, trained


@pytest.fixture(scope="module")
def model():
    return trained()


@pytest.fixture(scope="module")
def client(model):
    return client_of(model)


@pytest.mark.parametrize("name", MODELS)
def test_scores_are_the_models(name):
    model = trained(name)
    expected = model.predict(rows_of(REQUEST))
    mean, deviation = recalibrated_latent(model, expected)
    expected = expected._replace(mean=mean, variance=deviation**2)
    for kind in BOTH:
        given = answer(client_of(model), {**REQUEST, "detail": True}, kind)
        for column in ("ctr", "mean", "variance"):
            np.testing.assert_allclose(given[column], getattr(expected, column), rtol=1e-5, atol=1e-6)
        assert ((given["std"] > 0) & (given["std"] < 0.5)).all()


def test_the_standard_deviation_is_that_of_the_ctr(client):
    given = answer(client, {**REQUEST, "detail": True})
    z = given["mean"] + np.sqrt(given["variance"]) * norm.ppf((np.arange(20_000) + 0.5) / 20_000)[:, None]
    np.testing.assert_allclose(given["std"], norm.cdf(z).std(axis=0), rtol=1e-3)


@pytest.mark.parametrize("kind", [pbodl.PairFM, pbodl.FMMLP])
def test_the_latent_gaussian_is_recalibrated_like_the_ctr(kind):
    model = kind(RICH, negative_rate=0.2)
    model.learn(LOG)
    given = answer(client_of(model), {**REQUEST, "detail": True})
    predicted = model.predict(rows_of(REQUEST))
    np.testing.assert_allclose(given["ctr"], predicted.ctr, rtol=1e-5)
    ratio = np.sqrt(1 + given["variance"])
    np.testing.assert_allclose(norm.cdf(given["mean"] / ratio), given["ctr"], rtol=1e-5)
    assert (given["mean"] < predicted.mean).all()


def test_only_what_was_asked_for_is_told(client):
    assert answer(client, REQUEST).keys() == {"model", "ctr", "std"}


def test_what_is_not_given_is_missing(client, model):
    request = {"context": CONTEXT, "candidates": [{}]}
    expected = model.predict(rows_of({"user": {}, **request})).ctr
    np.testing.assert_allclose(answer(client, request)["ctr"], expected, rtol=1e-5)


def test_no_candidates_no_scores(client):
    for kind in BOTH:
        assert len(answer(client, {**REQUEST, "candidates": []}, kind)["ctr"]) == 0


def test_without_a_time_it_is_now(client, model):
    without_time = {**REQUEST, "context": {"site": "site1"}}
    hours = [model.predict(rows_of({**REQUEST, "context": {**CONTEXT, "time": 3600.0 * hour}})).ctr for hour in range(24)]
    given = answer(client, without_time)["ctr"]
    assert any(np.allclose(given, hour, rtol=1e-5) for hour in hours)


@pytest.mark.parametrize("name", ["fm", "pairs", "sampled"])
def test_thompson_is_one_draw_of_the_weights(name):
    model = trained(name)
    client = client_of(model)
    for seed in range(3):
        for kind in BOTH:
            given = answer(client, {**REQUEST, "explore": "thompson", "seed": seed}, kind)
            np.testing.assert_allclose(given["ctr"], model.sample(rows_of(REQUEST), 1, seed)[0], rtol=2e-4)
            assert given["explore"] == "thompson"


def test_thompson_without_a_key_differs_each_time(client):
    first, second = (answer(client, {**REQUEST, "explore": "thompson"})["ctr"] for _ in range(2))
    assert (first != second).all()


def test_a_key_keeps_its_draw_on_every_server(client, model):
    asked = {**REQUEST, "explore": "thompson", "explore_key": "user 3"}
    first = answer(client, asked)["ctr"]
    np.testing.assert_array_equal(answer(client_of(model), asked)["ctr"], first)
    assert (answer(client, {**asked, "explore_key": "user 4"})["ctr"] != first).all()
    assert (answer(client, {**asked, "seed": 1})["ctr"] != first).all()
    few = answer(client, {**asked, "candidates": CANDIDATES[1:2]})["ctr"]  # the other candidates do not matter
    np.testing.assert_allclose(few, first[1:2], rtol=1e-5)


def test_ucb_raises_all_but_the_least_uncertain(client):
    plain = answer(client, {**REQUEST, "detail": True})
    excess = plain["variance"] - plain["variance"].min()
    for c, spread in ((0.0, 1.0), (1.0, 1.0), (2.5, 0.5)):
        given = answer(client, {**REQUEST, "explore": "ucb", "c": c, "spread": spread, "detail": True})
        e = spread**2 * excess
        np.testing.assert_allclose(
            given["ctr"], norm.cdf((plain["mean"] + c * e**0.5) / (1 + plain["variance"] - e) ** 0.5), rtol=1e-5
        )
        np.testing.assert_array_equal(given["std"], plain["std"])
        assert given["explore"] == "ucb"


@pytest.mark.parametrize("rule", ["thompson", "ucb"])
def test_without_spread_nothing_is_explored(client, rule):
    given = answer(client, {**REQUEST, "explore": rule, "spread": 0})
    np.testing.assert_allclose(given["ctr"], answer(client, REQUEST)["ctr"], rtol=1e-6)
    assert len(answer(client, {**REQUEST, "explore": rule, "candidates": []})["ctr"]) == 0


def test_the_model_is_told(client, model):
    told = client.get("/v1/model").json()
    assert told["kind"] == "fm-mlp"
    assert told["rows_learned"] == model.rows_learned
    assert told["features"] == model.table.size
    assert told["counters"] == model.metrics()
    assert [field["name"] for field in told["schema"]["fields"]] == [field.name for field in model.schema.fields]
    assert told["spec"]["dim"] == 3
    assert 0 <= told["age"] < 1000


def test_alive_and_ready(client):
    waiting = client_of(None)
    assert [client.get(path).status_code for path in ("/healthz", "/readyz")] == [200, 200]
    assert [waiting.get(path).status_code for path in ("/healthz", "/readyz", "/v1/model")] == [200, 503, 503]
    refused = ask(waiting, REQUEST)
    assert refused.status_code == 503
    assert refused.headers["Retry-After"] == "1"
    assert [waiting.get(path).status_code for path in ("/openapi.json", "/docs", "/metrics")] == [200, 200, 200]


def test_metrics_count_what_happened(model):
    client = client_of(model)
    sums = [answer(client, REQUEST)["ctr"].mean() for _ in range(3)]
    ask(client, {"candidates": [{"nonsense": 1}]})
    client.get("/nowhere")
    samples = {}
    for family in text_string_to_metric_families(client.get("/metrics").text):
        samples |= {(sample.name, *sorted(sample.labels.items())): sample.value for sample in family.samples}
    assert samples["pbodl_requests_total", ("endpoint", "score"), ("status", "200")] == 3
    assert samples["pbodl_requests_total", ("endpoint", "score"), ("status", "422")] == 1
    assert samples["pbodl_requests_total", ("endpoint", "other"), ("status", "404")] == 1
    assert samples[("pbodl_request_seconds_count",)] == 3
    assert samples[("pbodl_candidates_total",)] == 3 * len(CANDIDATES)
    assert samples[("pbodl_prediction_mean",)] == pytest.approx(sums[0])
    assert samples[("pbodl_model_version",)] == 0
    assert samples[("pbodl_model_rows_learned",)] == model.rows_learned
    assert samples[("pbodl_model_features",)] == model.table.size
    assert samples["pbodl_model_rejected_updates_total", ("part", "dense")] == 0
    assert samples[("pbodl_model_age_seconds",)] >= 0


def test_the_documentation_says_where_the_token_goes(model):
    assert "Bearer TOKEN" in client_of(model, token="secret").get("/docs").text


def test_the_documentation_needs_nothing_from_outside(client):
    page = client.get("/docs").text
    assert "/v1/score" in page
    assert "curl -s http://test/v1/score" in page
    assert "Bearer TOKEN" not in page
    assert not re.search(r"(src|href|@import|url\()\s*=?\s*['\"]?(https?:)?//", page)
    assert "<script" not in page


def test_the_example_in_the_documentation_works(client):
    example = client.get("/openapi.json").json()["components"]["schemas"]["ScoreRequest"]["example"]
    assert len(answer(client, example)["ctr"]) == 1


def test_a_new_predictor_takes_over_by_one_reference(model):
    other = trained("ffm")
    source = Fixed(Predictor.of(model))
    client = Asking(HttpService(source))
    before = answer(client, REQUEST)["ctr"]
    source.predictor = Predictor.of(other)
    after = answer(client, REQUEST)["ctr"]
    np.testing.assert_allclose(before, model.predict(rows_of(REQUEST)).ctr, rtol=1e-5)
    np.testing.assert_allclose(after, other.predict(rows_of(REQUEST)).ctr, rtol=1e-5)


def test_json_may_be_spelt_in_many_ways(client):
    expected = answer(client, REQUEST)["ctr"]
    body = json.dumps(REQUEST, indent=3, ensure_ascii=True)
    given = client.post("/v1/score", content=body, headers={"Content-Type": "Application/JSON; charset=utf-8"})
    np.testing.assert_array_equal(given.json()["ctr"], expected)
    texts = {**REQUEST, "user": {**USER, "user": "3"}, "candidates": CANDIDATES}
    np.testing.assert_array_equal(answer(client, texts)["ctr"], expected)  # 3 and "3" are one value


def test_garbage_is_collected_between_requests(model):
    service = HttpService(Fixed(Predictor.of(model)))

    async def run():
        async with service._lifespan(service._others):
            return gc.isenabled(), gc.get_freeze_count()

    enabled, frozen = asyncio.run(run())
    assert not enabled
    assert frozen > 10_000  # all that was there at the start
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
