"""The dashboard as the server gives it: the page and its headers, live figures, features, and the token."""

import re
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

import pbodl
from pbodl.data.hashing import hash_value
from pbodl.publishing.curves import Curves
from pbodl.publishing.watch_file import write_watch
from pbodl.serving.dashboard.feature_lists import LEAST, variance_left
from pbodl.serving.models.follower import Version
from pbodl.serving.scoring.predictor import Predictor
from pbodl.serving.web.http_service import HttpService
from pbodl.serving.web.server_limits import Token
from pbodl.training.inspect.feature_names import NameStore
from pbodl.training.inspect.feature_weights import weights_of
from tests.publishing.published import LOG, MODELS
from tests.serving.services import Asking, Fixed, trained


@pytest.fixture(scope="module")
def model():
    return trained()


def client(model=None, run=None, token=None) -> Asking:
    return Asking(HttpService(Fixed(None if model is None else Predictor.of(model)), None, Token(token), run=run))


def test_the_page_loads_nothing_from_elsewhere(model):
    response = client(model).get("/")
    assert response.status_code == 200 and response.headers["Content-Type"].startswith("text/html")
    policy = dict(part.split(" ", 1) for part in response.headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == "'none'" and {policy[kind] for kind in ("script-src", "style-src", "connect-src")} == {"'self'"}
    assert "$" not in response.text and "<title>PBODL live</title>" in response.text
    for address in re.findall(r'(?:src|href)="([^"]+)"', response.text):
        assert address.startswith(("/", "#")), address
        if address.startswith("/dashboard/"):
            assert client(model).get(address).status_code == 200


def test_its_scripts_and_styles_name_no_other_host(model):
    asking = client(model)
    for name in ("page.js", "charts.js", "axes.js", "form.js", "ask.js", "page.css", "charts.css"):
        response = asking.get(f"/dashboard/{name}")
        kind = "text/css" if name.endswith("css") else "text/javascript"
        assert response.status_code == 200 and response.headers["Content-Type"].startswith(kind)
        assert set(re.findall(r"https?://[^\"/]+", response.text)) <= {"http://www.w3.org"}  # the name of SVG, never loaded
    assert asking.get("/dashboard/routes.py").status_code == 404


def test_unchanged_files_are_not_sent_again(model):
    asking = client(model)
    tag = asking.get("/dashboard/page.js").headers["ETag"]
    assert asking.get("/dashboard/page.js", headers={"If-None-Match": tag}).status_code == 304
    assert asking.get("/dashboard/page.js", headers={"If-None-Match": '"another"'}).status_code == 200


def test_the_shell_tells_of_the_model(model):
    text = client(model).get("/").text
    assert ">fm-mlp<" in text and f">{model.rows_learned:,}<" in text


def test_curves_are_those_of_the_run(model, tmp_path):
    asking = client(model, str(tmp_path))
    assert asking.get("/v1/curves").json() | {"now": 0} == {"now": 0, "last": 0, "points": []}
    curves = Curves(tmp_path)
    for rows in (10, 20, 30):
        curves.append({"rows": rows, "models": {}})
    told = asking.get("/v1/curves?after=1").json()
    assert told["last"] == 3 and [point["rows"] for point in told["points"]] == [20, 30]
    assert asking.get("/v1/curves?after=3").json()["points"] == []
    # A number that this run never gave: it was started anew, and everything is new.
    assert len(asking.get("/v1/curves?after=99").json()["points"]) == 3


def test_what_the_learner_watches_is_told_with_names(model, tmp_path):
    asking = client(model, str(tmp_path))
    assert asking.get("/v1/watch").json()["watch"] is None
    mover = {"field": "ad", "key": f"{hash_value('ad', 'a1'):016x}", "count": 3, "before": 0.1, "now": 0.4}
    line = {"field": "ad", "drift": 0.1, "missing": 0.0, "new": None}
    watch = {"time": 1.0, "fields": [line], "movers": [mover], "martingale": 1.2}
    write_watch(tmp_path, watch)
    assert asking.get("/v1/watch").json()["watch"] == {**watch, "movers": [{**mover, "value": None}]}
    store = NameStore(pbodl.Schema(label="click", fields=[pbodl.Field("ad", group="ad")]))
    store.add(pa.table({"ad": ["a1"]}))
    store.save(tmp_path)
    assert asking.get("/v1/watch").json()["watch"]["movers"][0]["value"] == "a1"
    (tmp_path / "watch.json").write_text("{damaged")
    assert asking.get("/v1/watch").json()["watch"] is None


@pytest.mark.parametrize("after", ["-1", "x", "1.5", "9" * 30, ""])
def test_a_wrong_number_is_told(model, after):
    response = client(model).get(f"/v1/curves?after={after}")
    assert response.status_code == 422 and response.json()["error"]["field"] == "after"


def test_without_a_run_folder_there_are_no_curves(model):
    for run in (None, "s3://bucket/models"):
        assert client(model, run).get("/v1/curves").json()["points"] == []


@pytest.mark.parametrize("name", MODELS)
def test_variance_left_is_that_of_inspection(name):
    model = trained(name)
    weights = weights_of(model)
    np.testing.assert_allclose(variance_left(Version.of(model)), weights.variance_left(), rtol=1e-4)


def test_features_by_name(model, tmp_path):
    names = NameStore(model.schema)
    names.add(pa.Table.from_pylist(LOG))
    names.save(tmp_path)
    told = client(model, str(tmp_path)).get("/v1/features").json()
    left = [one["variance_left"] for one in told["uncertain"]]
    assert told["features"] == model.table.size and 0 < len(left) <= 10
    assert left == pytest.approx(sorted(left, reverse=True), abs=1e-3) and all(one["count"] >= LEAST for one in told["uncertain"])
    assert all(f"{one['field']}={one['value']}" in names.names() for one in told["uncertain"])
    fields = {one["field"]: one for one in told["fields"]}
    assert [*fields] == [field.name for field in model.schema.fields]
    assert fields["site"]["frequent"][0] == Counter(row["site"] for row in LOG).most_common(1)[0][0]
    assert fields["price"]["frequent"] == [] and "(missing)" not in fields["ad"]["frequent"]


def test_features_without_names_have_their_keys(model):
    told = client(model).get("/v1/features").json()
    assert all(one["value"] is None and len(one["key"]) == 16 for one in told["uncertain"])
    assert all(one["frequent"] == [] for one in told["fields"])


def test_before_the_first_model():
    asking = client()
    assert asking.get("/").status_code == 200
    response = asking.get("/v1/features")
    assert response.status_code == 503 and response.headers["Retry-After"] == "1"


def test_a_token_guards_the_figures_not_the_page(model, tmp_path):
    asking = client(model, str(tmp_path), "secret")
    page = asking.get("/")
    assert page.status_code == 200 and 'name="pbodl-token" content="required"' in page.text
    assert "fm-mlp" not in page.text and f"{model.rows_learned:,}" not in page.text
    for path in ("/v1/curves", "/v1/features", "/v1/watch"):
        assert asking.get(path).status_code == 401
        assert asking.get(path, headers={"Authorization": "Bearer secret"}).status_code == 200
