"""Prior variances from the data (empirical Bayes, beyond the paper): what the rows of a field say of their prior, and its exchange.

Letters: a weight has the posterior N(m, v), made of its prior N(0, v₀), of its draw δ (erratum E7: it started at mean δ) and of
what the likelihood said:  1/v = 1/v₀ + λ,  m/v = δ/v₀ + η.
    γ = 1 - v/v₀                   how much of the weight the data have determined, 0 to 1
    w = m - δ v/v₀ = v η           its mean without the draw
The prior variance under which the weights are likeliest satisfies v₀ = Σ w²/Σ γ (MacKay 1992). Unlike the mean of m² + v, to which
it is equal there, this does not creep where most rows were seen a few times and know next to nothing.

Exchanging v₀ for v₁ leaves λ and η as they are, so it is exact for Gaussian weights:
    1/v' = 1/v + 1/v₁ - 1/v₀       m'/v' = m/v + δ (1/v₁ - 1/v₀)
Decay (PBODL eq. 28) takes a share of λ away, so it makes no difference which of the two comes first.
erratum E6: λ can be negative; a weight keeps LEAST_SHARE of the new prior's precision.
"""

import numpy as np

from pbodl._jit import inlined, jit
from pbodl.kernels.adf import LARGEST, SMALLEST
from pbodl.kernels.embedding import standard_draw
from pbodl.kernels.message import LEAST_SHARE


@inlined
def exchanged(m, v, draw, old, new):
    """N(m, v) with a prior of variance `new` in place of `old`; as it was where the numbers would not stay finite."""
    change = 1.0 / np.float64(new) - 1.0 / np.float64(old)
    precision = max(1.0 / np.float64(v) + change, LEAST_SHARE / np.float64(new))
    mean = (np.float64(m) / np.float64(v) + np.float64(draw) * change) / precision
    good = abs(mean) < LARGEST and SMALLEST < 1.0 / precision < LARGEST
    return (np.float32(mean), np.float32(1.0 / precision)) if good else (m, v)


@jit
def field_evidence(rows, keys, fields, prior, squares, determined):
    """Sums of w² and of γ over each field's rows, one for every column, the linear weight's last. MODIFIES: squares, determined."""
    width = rows.mean.shape[1]
    for r in range(len(keys)):
        field = fields[r]
        for d in range(width):
            share = np.float64(rows.variance[r, d]) / np.float64(prior.variance[field, d])
            draw = prior.initial_scale * standard_draw(prior.seed, keys[r], np.uint64(d))
            squares[field, d] += (np.float64(rows.mean[r, d]) - np.float64(draw) * share) ** 2
            determined[field, d] += 1.0 - share
        if len(rows.linear_mean) > 0:
            squares[field, width] += np.float64(rows.linear_mean[r, 0]) ** 2
            determined[field, width] += 1.0 - np.float64(rows.linear_variance[r, 0]) / np.float64(prior.linear_variance[field])


@jit
def exchange_priors(rows, keys, fields, old, new):
    """Exchange the prior of every row. MODIFIES: rows."""
    for r in range(len(keys)):
        field = fields[r]
        for d in range(rows.mean.shape[1]):
            draw = old.initial_scale * standard_draw(old.seed, keys[r], np.uint64(d))
            rows.mean[r, d], rows.variance[r, d] = exchanged(
                rows.mean[r, d], rows.variance[r, d], draw, old.variance[field, d], new.variance[field, d]
            )
        if len(rows.linear_mean) > 0:
            rows.linear_mean[r, 0], rows.linear_variance[r, 0] = exchanged(
                rows.linear_mean[r, 0], rows.linear_variance[r, 0], np.float32(0.0), old.linear_variance[field],
                new.linear_variance[field],
            )  # fmt: skip
