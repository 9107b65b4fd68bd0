"""Expectation propagation over a minibatch (PBODL §4.5, batch training): ADF that visits a sample again without counting it twice.

Every sample has a site: for each weight that it touches, the Gaussian factor that it contributed. Before the next visit the
sample's site is divided out, which leaves the cavity. The ordinary update by one sample (`learn_batch`) takes the cavity to a new
posterior, and their quotient is the new site. The first pass starts from sites of 1 and is ADF. Later passes let early samples use
what late ones taught, so that the order of the samples matters little in the end; in these, sites move by the share `damping` to
the new ones. A stage of an impression is a sample with a site of its own.

Letters: a site has precision λ and precision-mean θ; a weight N(m, v) has the cavity 1/v - λ, m/v - θ.
"""

from typing import NamedTuple

import numpy as np

from pbodl._jit import inlined, jit
from pbodl.gaussian import Gaussian, Natural, divide, moments, multiply, natural
from pbodl.kernels.arguments import counted, outputs_between, samples_between
from pbodl.kernels.guards import least_precision
from pbodl.kernels.network import learn_batch
from pbodl.kernels.normal import ZERO


class Sites(NamedTuple):
    """One factor (λ, θ) per sample and weight, float64; rows have one per entry of the batch, dense weights one per sample."""

    rows: np.ndarray  # (entries, 2, D)
    linear: np.ndarray  # (entries, 2, 1)
    dense: np.ndarray  # (samples, 2, weights), layer after layer, without padding


class Cavity(NamedTuple):
    """One sample's weights without its site; a negative variance marks a weight that the visit leaves alone."""

    rows: np.ndarray  # float32 (2, features, D)
    linear: np.ndarray  # (2, features, 1)
    dense: np.ndarray  # (2, L, widest out, widest in + 1)


@inlined
def factor(m, v):
    """A weight in natural form, in float64."""
    return natural(Gaussian(np.float64(m), np.float64(v)))


@jit
def divide_out(m, v, n, site, v_prior, cavity_m, cavity_v):
    """Divide a site out of n weights; one that would not stay a proper Gaussian keeps it. MODIFIES: m, v, cavity_m, cavity_v."""
    for i in range(n):
        left = divide(factor(m[i], v[i]), Natural(site[0, i], site[1, i]))
        cavity_m[i], cavity_v[i] = m[i], -v[i]
        if left.precision > least_precision(np.float64(v_prior[i])):
            cavity = moments(left)
            m[i], v[i] = cavity.mean, cavity.variance
            cavity_m[i], cavity_v[i] = m[i], v[i]


@jit
def multiply_in(m, v, n, site, v_prior, damping, cavity_m, cavity_v):
    """Multiply cavity and new site, for n weights whose cavity an update took to (m, v). MODIFIES: m, v, site."""
    for i in range(n):
        if cavity_v[i] < 0.0:
            m[i], v[i] = cavity_m[i], -cavity_v[i]
            continue
        cavity, old = factor(cavity_m[i], cavity_v[i]), Natural(site[0, i], site[1, i])
        step = divide(divide(factor(m[i], v[i]), cavity), old)
        new = Natural(old.precision + damping * step.precision, old.precision_mean + damping * step.precision_mean)
        if not multiply(cavity, new).precision > least_precision(np.float64(v_prior[i])):
            new = old
        posterior = moments(multiply(cavity, new))
        m[i], v[i] = posterior.mean, posterior.variance
        site[0, i], site[1, i] = new.precision, new.precision_mean


@jit
def ep_pass(first_pass, damping, sites, cavity, weights, network, samples, outputs):
    """Visit every sample of a minibatch once. MODIFIES: sites, cavity; and as `learn_batch`."""
    rows, dense, prior, sizes, features = weights.rows, weights.dense, network.prior, network.shape.sizes, samples.features
    linear = len(rows.linear_mean) > 0
    for s in range(len(samples.clicks)):
        if samples.powers[s] == ZERO:  # a prediction alone: its site stays 1
            if first_pass:
                learn_batch(weights, network, samples_between(samples, s, s + 1), outputs_between(outputs, s, s + 1))
            continue
        first, last = features.indptr[s], features.indptr[s + 1]
        for e in range(first, last):
            r, j, f, c = features.rows[e], e - first, features.fields[e], cavity.rows
            divide_out(rows.mean[r], rows.variance[r], rows.mean.shape[1], sites.rows[e], prior.variance[f], c[0, j], c[1, j])
            if linear:
                m_l, v_l, c = rows.linear_mean[r], rows.linear_variance[r], cavity.linear
                divide_out(m_l, v_l, 1, sites.linear[e], prior.linear_variance[f : f + 1], c[0, j], c[1, j])
        begin = 0
        for l in range(len(sizes) - 1):  # noqa: E741
            n, c = sizes[l] + 1, cavity.dense
            for o in range(sizes[l + 1]):
                m_w, v_w, site = dense.mean[l, o], dense.variance[l, o], sites.dense[s, :, begin : begin + n]
                divide_out(m_w, v_w, n, site, dense.prior_variance[l, o], c[0, l, o], c[1, l, o])
                begin += n
        learn_batch(weights, network, samples_between(samples, s, s + 1), outputs_between(outputs, s, s + 1))
        for e in range(first, last):
            r, j, f, c = features.rows[e], e - first, features.fields[e], cavity.rows
            m_w, v_w, site = rows.mean[r], rows.variance[r], sites.rows[e]
            multiply_in(m_w, v_w, len(m_w), site, prior.variance[f], damping, c[0, j], c[1, j])
            if linear:
                m_l, v_l, site, c = rows.linear_mean[r], rows.linear_variance[r], sites.linear[e], cavity.linear
                multiply_in(m_l, v_l, 1, site, prior.linear_variance[f : f + 1], damping, c[0, j], c[1, j])
            if not first_pass:
                rows.count[r] -= counted(samples, s)
        begin = 0
        for l in range(len(sizes) - 1):  # noqa: E741
            n, c = sizes[l] + 1, cavity.dense
            for o in range(sizes[l + 1]):
                m_w, v_w, site = dense.mean[l, o], dense.variance[l, o], sites.dense[s, :, begin : begin + n]
                multiply_in(m_w, v_w, n, site, dense.prior_variance[l, o], damping, c[0, l, o], c[1, l, o])
                begin += n
