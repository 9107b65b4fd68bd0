"""Looking inside a run: overview, one feature, one prediction; as data and as tables."""

import json

import numpy as np
import pytest

from pbodl.baselines import AdPredictor, FTRLProximal
from pbodl.data.hashing import hash_value
from pbodl.errors import InputError
from pbodl.models.snapshot import load
from pbodl.training.display import console
from pbodl.training.inspect import inspection
from tests.click_log import click_log
from tests.training.logs import small_config, trained_run

LOG = click_log(600)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return trained_run(tmp_path_factory.mktemp("named"))


@pytest.fixture(scope="module")
def nameless(tmp_path_factory):
    return trained_run(tmp_path_factory.mktemp("nameless"), keep_names=False)


def shown(found) -> str:
    json.dumps(found, allow_nan=False)
    with console.capture() as captured:
        for table in inspection.tables(found):
            console.print(table)
    return captured.get()


def test_overview(run):
    found = inspection.overview(run)
    model = load(run)
    assert found["features"] == model.table.size == sum(line["features"] for line in found["fields"])
    assert found["counters"] == model.metrics()
    assert found["bytes"] > found["features"] * 8
    users = next(line for line in found["fields"] if line["field"] == "user")
    assert users["features"] == len({row["user"] for row in LOG})
    left = [round(one["variance_left"], 3) for one in found["most_certain"]]
    assert left == sorted(left)
    assert found["most_certain"][0]["variance_left"] < found["most_uncertain"][0]["variance_left"]
    text = shown(found)
    for words in ("fm-mlp model", "features by field", "most certain features", "most uncertain features", "rejected linear"):
        assert words in text
    assert "=" in found["most_certain"][0]["feature"]


def test_overview_without_names(nameless):
    found = inspection.overview(nameless)
    assert found["names"] == 0
    assert " #" in found["most_certain"][0]["feature"]
    assert "--keep-names" in shown(found)


def test_a_feature(run):
    ad = LOG[0]["ad"]
    found = inspection.feature(run, f"ad={ad}")
    model = load(run)
    row = int(model.table.find(np.array([hash_value("ad", ad)], np.uint64))[0])
    assert found["seen"]
    assert found["count"] == sum(one["ad"] == ad for one in LOG)
    assert found["last_seen"] == max(one["time"] for one in LOG if one["ad"] == ad)
    np.testing.assert_allclose(found["parts"]["embedding"]["mean"], model.table.column("mean")[row])
    np.testing.assert_allclose(found["parts"]["linear"]["variance"], model.table.column("linear_variance")[row])
    text = shown(found)
    assert f"ad={ad}" in text
    assert "embedding 2" in text
    assert "2014-10-" in text


@pytest.mark.parametrize("text", ["price=12.5", "tags=tag0", "hour=18", "age=50", "site=", "user=3"])
def test_features_of_every_kind_of_field(run, text):
    assert inspection.feature(run, text)["seen"]


def test_an_unseen_feature(run, nameless):
    found = inspection.feature(run, "ad=ad33")
    assert not found["seen"]
    assert found["count"] == 0
    assert found["parts"]["linear"]["prior_variance"] == [pytest.approx(0.03)]
    assert "ad=ad3" in found["nearest"]
    assert "never" in shown(found)
    assert inspection.feature(nameless, "ad=ad33")["nearest"] == []


@pytest.mark.parametrize(("text", "words"), [("ad", "field=value"), ("add=1", "did you mean 'ad'"), ("price=x", "not a number")])
def test_what_is_no_feature(run, text, words):
    with pytest.raises(InputError, match=words):
        inspection.feature(run, text)


def test_an_explanation(run, tmp_path):
    (tmp_path / "row.json").write_text(json.dumps({**LOG[3], "site": "[x]"}))
    found = inspection.explain(run, tmp_path / "row.json")
    text = shown(found)
    assert "site=[x]" in text
    assert "predicted CTR" in text
    assert "linear part" in text
    assert "(no feature at all)" in text


@pytest.mark.parametrize("kind", [AdPredictor.kind, FTRLProximal.kind])
def test_other_kinds(kind, tmp_path):
    run = trained_run(tmp_path, 200, config=small_config(kind=kind))
    text = shown(inspection.overview(run))
    assert f"{kind} model" in text
    assert ("most certain" in text) == (kind == AdPredictor.kind)
    assert shown(inspection.feature(run, f"ad={LOG[0]['ad']}"))
    assert shown(inspection.feature(run, "ad=none"))
    (tmp_path / "row.json").write_text(json.dumps(LOG[3]))
    assert "linear part" not in shown(inspection.explain(run, tmp_path / "row.json"))


def test_no_run(tmp_path):
    with pytest.raises(InputError, match="holds no snapshot"):
        inspection.overview(tmp_path)
