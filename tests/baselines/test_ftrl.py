"""FTRL-Proximal against a naive transcription of its algorithm."""

import itertools
from typing import Any

import numpy as np
import pytest

from pbodl.baselines import FTRLProximal
from pbodl.data.convert import from_data
from pbodl.data.schema import Field, Schema
from pbodl.errors import InputError
from tests.click_log import PLAIN, RICH, click_log
from tests.oracles.ftrl import NaiveFTRL

LOG = click_log(500)
PARAMETERS = [(0.1, 1.0, 0.0, 1.0), (0.5, 0.0, 0.3, 0.0), (0.05, 1.0, 2.0, 10.0), (2.0, 0.1, 0.01, 0.5)]


@pytest.mark.parametrize(("alpha", "beta", "l1", "l2"), PARAMETERS)
def test_naive_transcription(alpha: float, beta: float, l1: float, l2: float) -> None:
    # Numbers, lists and weights included; the numbers as they are standardised, which is not this model's doing.
    ref, comp = NaiveFTRL(alpha, beta, l1, l2), FTRLProximal(RICH, alpha, beta, l1, l2)
    batch = from_data(RICH, LOG, labelled=True)
    values = FTRLProximal(RICH).scale.learn(batch)
    expected = []
    for i, (first, last) in enumerate(itertools.pairwise(batch.indptr.tolist())):
        x = dict(zip(batch.keys[first:last].tolist(), values[first:last].tolist(), strict=True))
        expected.append(ref.learn(x, LOG[i]["click"], LOG[i]["weight"]))
    np.testing.assert_allclose(comp.learn(LOG), expected, rtol=1e-9)
    state = comp.state()
    for key, z, n in zip(state["weight.keys"].tolist(), state["weight.z"], state["weight.n"], strict=True):
        assert z == pytest.approx(ref.z[key], rel=1e-9, abs=1e-12)
        assert n == pytest.approx(ref.n[key], rel=1e-9, abs=1e-12)
    assert state["bias.z"][0] == pytest.approx(ref.z["bias"], rel=1e-9)
    zeros = sum(ref.weight(key) == 0.0 for key in state["weight.keys"].tolist())
    assert comp.metrics()["zero_weights"] == zeros


def test_more_l1_leaves_fewer_weights() -> None:
    shares = []
    for l1 in (0.0, 0.3, 1.0, 1e5):
        model = FTRLProximal(PLAIN, l1=l1)
        model.learn(LOG)
        shares.append(model.sparsity)
    assert shares == sorted(shares)
    assert shares[0] == 0.0
    assert shares[-1] == 1.0
    assert (model.predict(LOG).ctr == 0.5).all()


@pytest.mark.nojit
def test_prediction_is_the_logit_without_variance() -> None:
    model = FTRLProximal(PLAIN)
    assert model.sparsity == 0.0
    model.learn(LOG[:50])
    prediction = model.predict([LOG[0], {"user": "new", "ad": "new", "site": "new"}])
    np.testing.assert_allclose(prediction.ctr, 1 / (1 + np.exp(-prediction.mean)))
    assert not prediction.variance.any()
    state = model.state()
    bias = -state["bias.z"][0] / ((1.0 + np.sqrt(state["bias.n"][0])) / 0.1 + 1.0)
    assert prediction.mean[1] == pytest.approx(bias)


def test_rates_fall_for_each_coordinate_by_itself() -> None:
    schema = Schema(label="click", fields=[Field("ad", group="ad")])
    model = FTRLProximal(schema, l2=0.0)
    model.learn([{"ad": "often", "click": i % 2} for i in range(1000)])
    before = model.predict([{"ad": "often"}, {"ad": "rare"}]).mean
    model.learn([{"ad": "often", "click": 1}, {"ad": "rare", "click": 1}])
    steps = model.predict([{"ad": "often"}, {"ad": "rare"}]).mean - before
    assert steps[1] > 3 * steps[0] > 0


@pytest.mark.parametrize(
    ("options", "words"),
    [({"alpha": 0}, "alpha is 0; it must be a number above 0"), ({"beta": -1}, "from 0"), ({"l1": True}, "l1"), ({"l2": ""}, "l2")],
)
def test_bad_parameters_are_refused_in_prose(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        FTRLProximal(PLAIN, **options)
