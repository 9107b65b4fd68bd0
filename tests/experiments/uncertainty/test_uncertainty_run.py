"""The whole experiment on small logs."""

import json

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import norm

from pbodl.errors import InputError
from pbodl.experiments.uncertainty import uncertainty_run
from pbodl.experiments.uncertainty.uncertainty_run import uncertainty
from pbodl.training.config import check_config

TABLES = {
    "schema": {"label": "click", "fields": [{"name": "user", "group": "user"}, {"name": "ad", "group": "ad"}]},
    "model": {"kind": "sparse-mlp", "dim": 1, "hidden": [], "linear": False, "adapt_prior": False, "initial_spread": 0.0},
}


def log(rows: int, seed: int = 0) -> pa.Table:
    """Ads with a quality of their own, drawn as the model's prior says it."""
    rng = np.random.default_rng(seed)
    quality, taste = rng.normal(0.0, 0.22**0.5, (2, 400))
    ads, users = rng.integers(0, 400, (2, rows))
    p = norm.cdf(quality[ads] + taste[users] - 0.3)
    clicks = (rng.random(rows) < p).astype(np.int8)
    return pa.table({"ad": ads, "user": users, "click": clicks, "p_true": p})


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(uncertainty_run, "CHUNK", 500)


@pytest.mark.usefixtures("small_chunks")
def test_a_model_that_is_the_truth_is_honest(tmp_path):
    """A linear probit world, learned by the linear probit model with the world's own prior."""
    result = uncertainty(check_config(TABLES), log(30_000), tmp_path)
    whole = result["figures"][0]
    assert result["truth"] == "p_true" and result["field"] == "ad"
    np.testing.assert_allclose(list(whole["inside"].values()), (0.5, 0.8, 0.95), atol=0.05)
    assert [line["rows of"] for line in result["figures"]][:2] == ["all", "seen 1 to 99 times"]
    assert len(result["martingale"]) == 3
    for check in result["martingale"]:
        assert check["ratio"] == pytest.approx(1.0, abs=0.35)
    assert json.loads((tmp_path / "uncertainty.json").read_text())["judged"] == result["judged"] == 27_000
    assert "inside 80 %" in (tmp_path / "uncertainty.md").read_text()
    assert "Coverage" in (tmp_path / "report.html").read_text()


@pytest.mark.usefixtures("small_chunks")
def test_a_log_without_truth_has_the_checks_that_need_none(tmp_path):
    result = uncertainty(check_config(TABLES), log(5000).drop_columns(["p_true"]), tmp_path)
    assert result["truth"] is None and "inside" not in result["figures"][0]
    assert len(result["reliability"]) == 20 and len(result["martingale"]) == 3
    assert "rms error" not in (tmp_path / "uncertainty.md").read_text()


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize(
    ("options", "words"),
    [({"by": "usr"}, "unknown field 'usr' (did you mean 'user'?)"), ({"truth": "ad"}, "from 0 to 1"), ({"truth": "p"}, "'p'")],
)
def test_wrong_columns_are_named(options, words, tmp_path):
    with pytest.raises(InputError) as caught:
        uncertainty(check_config(TABLES), log(2000), tmp_path / "out", **options)
    assert words in str(caught.value)
    assert not (tmp_path / "out").exists()
