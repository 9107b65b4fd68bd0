"""A model without data predicts the base rate, whatever its seed."""

import numpy as np
import pytest

import pbodl
from pbodl.errors import InputError
from tests.click_log import PLAIN, click_log, without

ROWS = without(click_log(5), "click")
NETWORKS = [pbodl.FMMLP, pbodl.FFMMLP, pbodl.SparseMLP, pbodl.DeepProbit]
FORMS = [{}, {"shortcut": True}, {"hidden": (64,)}, {"hidden": ()}, {"fm_variance": "exact"}, {"negative_rate": 0.2}]


@pytest.mark.parametrize("options", FORMS)
@pytest.mark.parametrize("kind", NETWORKS)
def test_a_cold_network_predicts_the_base_rate(kind, options):
    for seed in range(3):
        given = kind(PLAIN, base_rate=0.05, seed=seed, **options).predict(ROWS).ctr
        np.testing.assert_allclose(given, 0.05, rtol=0.4)  # the drawn vectors move it a little
        if "negative_rate" not in options:
            np.testing.assert_allclose(kind(PLAIN, seed=seed, **options).predict(ROWS).ctr, 0.5, atol=0.06)


@pytest.mark.parametrize("options", [{}, {"negative_rate": 0.2}, {"linear": False}])
def test_a_cold_model_of_pairs_predicts_the_base_rate(options):
    np.testing.assert_allclose(pbodl.PairFM(PLAIN, base_rate=0.05, **options).predict(ROWS).ctr, 0.05, rtol=0.05)
    if "negative_rate" not in options:
        np.testing.assert_allclose(pbodl.PairFM(PLAIN, **options).predict(ROWS).ctr, 0.5, atol=0.01)


@pytest.mark.parametrize("kind", [pbodl.PairFM, pbodl.FMMLP])
def test_the_first_rows_tell_the_level_where_nobody_else_did(kind):
    rng = np.random.default_rng(0)
    log = [{**row, "click": int(rng.random() < 0.05)} for row in click_log(300)]
    given, told = (kind(PLAIN, base_rate=rate).learn(log) for rate in (0.05, None))
    assert given[0] == pytest.approx(0.05, rel=0.4) and told[0] == pytest.approx(0.5, abs=0.06)
    assert told[-50:].mean() < 0.12 and given[-50:].mean() < 0.12


def test_the_base_rate_is_saved(tmp_path):
    model = pbodl.PairFM(PLAIN, base_rate=0.05)
    model.save(tmp_path)
    loaded = pbodl.load(tmp_path)
    assert loaded.spec.base_rate == 0.05
    np.testing.assert_array_equal(loaded.predict(ROWS).ctr, model.predict(ROWS).ctr)


@pytest.mark.parametrize("rate", [0.0, 1.0, -0.1, "often"])
def test_other_rates_are_refused(rate):
    with pytest.raises(InputError, match="base_rate is"):
        pbodl.PairFM(PLAIN, base_rate=rate)
