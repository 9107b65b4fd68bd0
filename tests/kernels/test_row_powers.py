"""Learning to powers: with powers of 1 the ordinary kernel; for a linear model the likelihood to that power."""

import numpy as np
import pytest

import pbodl
from pbodl.kernels.row_powers import learn_to_powers
from pbodl.models.learning import Learning
from tests.click_log import PLAIN
from tests.parallel.logs import plain_log


def with_powers(model, power):
    """Let a model learn every row to this power."""

    class ToThePower(Learning):
        def learn(self, weights, network, samples, outputs):
            learn_to_powers(np.full(len(weights.rows.count), power, np.float32), weights, network, samples, outputs)

    model.learn_with(ToThePower())
    return model


@pytest.mark.parametrize("kind", [pbodl.DeepProbit, pbodl.SparseMLP, pbodl.FMMLP, pbodl.FFMMLP])
@pytest.mark.parametrize("hidden", [(8,), ()])
def test_powers_of_one_are_the_ordinary_kernel(kind, hidden):
    batch = plain_log(300)
    ref, comp = kind(PLAIN, dim=3, hidden=hidden), with_powers(kind(PLAIN, dim=3, hidden=hidden), 1.0)
    np.testing.assert_allclose(comp.learn(batch), ref.learn(batch), rtol=1e-5)
    for name in ("embedding.mean", "embedding.variance", "linear.mean", "linear.variance", "embedding.count", "counters"):
        np.testing.assert_allclose(comp.state()[name], ref.state()[name], rtol=1e-4, atol=1e-6, err_msg=name)


def linear(**options):
    return pbodl.SparseMLP(PLAIN, dim=1, hidden=(), linear=False, initial_spread=0.0, **options)


def test_a_power_learns_about_that_many_times_as_much():
    # Wide likelihood, narrow prior: in this limit the message of a likelihood to the power c is c times that of the likelihood.
    batch = plain_log(1)
    prior = pbodl.Prior(embedding=1e-4, dense=1e-4)
    once, often = linear(prior=prior), with_powers(linear(prior=prior), 5.0)
    once.learn(batch)
    often.learn(batch)
    a, b = once.state(), often.state()
    np.testing.assert_allclose(b["embedding.mean"], 5.0 * a["embedding.mean"], rtol=5e-3)
    precision = [1.0 / state["embedding.variance"].astype(float) - 1e4 for state in (a, b)]
    np.testing.assert_allclose(precision[1], 5.0 * precision[0], rtol=2e-2)


def test_large_powers_do_not_overshoot_the_sample():
    # A Gaussian likelihood to any power moves the sum of the weights at most to the label's side, never far past it.
    batch = plain_log(1)
    model = with_powers(linear(prior=pbodl.Prior(embedding=1.0, dense=1e-6)), 1000.0)
    model.learn(batch)
    moved = abs(float(model.state()["embedding.mean"].sum()))
    assert 0.5 < moved < 4.0
    assert model.rejected.sum() == 0
