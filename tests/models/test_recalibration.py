"""What negative sampling does to standard deviations and latent Gaussians."""

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

import pbodl
from pbodl.data.sampling import recalibrate
from pbodl.models.contract import Prediction
from pbodl.models.recalibration import recalibrated_latent

SCHEMA = pbodl.Schema(label="click", fields=[pbodl.Field("ad", group="ad")])
MEANS, VARIANCES = np.array([-2.5, -1.0, 0.3, 1.2]), np.array([0.01, 0.2, 0.05, 0.1])


def predicted(kept: float) -> Prediction:
    return Prediction(recalibrate(ndtr(MEANS / np.sqrt(1.0 + VARIANCES)), kept), MEANS, VARIANCES)


@pytest.mark.parametrize(("kept", "rtol"), [(1.0, 0.02), (0.3, 0.15)])
def test_std_is_that_of_the_ctr(kept, rtol):
    z = MEANS + np.sqrt(VARIANCES) * np.random.default_rng(0).normal(size=(100_000, 4))
    ref = recalibrate(ndtr(z), kept).std(axis=0)
    np.testing.assert_allclose(predicted(kept).std, ref, rtol=rtol)  # recalibrated, it is a first approximation


def test_std_is_zero_without_variance_and_finite_in_the_tails():
    certain = Prediction(ndtr(MEANS), MEANS, np.zeros(4))
    assert certain.std.tolist() == [0.0] * 4
    far = Prediction(np.array([0.0, 1.0]), np.array([-60.0, 60.0]), np.array([0.1, 0.1]))
    assert np.isfinite(far.std).all()


@pytest.mark.parametrize("kept", [1.0, 0.3, 0.01])
def test_the_latent_gaussian_gives_the_recalibrated_ctr(kept):
    model = pbodl.PairFM(SCHEMA, negative_rate=kept)
    mean, std = recalibrated_latent(model, predicted(kept))
    np.testing.assert_allclose(mean / np.sqrt(1.0 + std**2), ndtri(predicted(kept).ctr), atol=1e-9)
    np.testing.assert_allclose(Prediction(predicted(kept).ctr, mean, std**2).std, predicted(kept).std, rtol=0.1)


def test_log_odds_only_shift():
    mean, std = recalibrated_latent(pbodl.FTRLProximal(SCHEMA, negative_rate=0.1), Prediction(MEANS, MEANS, np.zeros(4)))
    np.testing.assert_allclose(mean, MEANS + np.log(0.1))
    assert not std.any()
