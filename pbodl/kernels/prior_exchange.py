"""Prior variances from the data (empirical Bayes, beyond the paper): evidence about a field's prior, and exchange of priors.

Letters: a weight has the posterior N(m, v), made of its prior N(0, v₀), of its draw δ (erratum E7: it started at mean δ) and of
the likelihood:  1/v = 1/v₀ + λ,  m/v = δ/v₀ + η.
    γ = 1 - v/v₀                   how much of the weight the data have determined, 0 to 1
    w = m - δ v/v₀ = v η           its mean without the draw
The prior variance under which the weights are likeliest satisfies v₀ = Σ w²/Σ γ (MacKay 1992). Unlike the mean of m² + v, to which
it is equal there, this does not drift where most rows were seen a few times and have learned almost nothing.

Forgetting by variance alone (PBODL eq. 28) takes λ away and leaves m as it is. What is left then tells of more weight than of
evidence: Σ w²/Σ γ would grow, and the next estimate with it. If the stream tells of a weight θ at a steady rate, m is s θ + noise.
With X = ln 2 · age/half-life, L = γ/((1-γ)(1-e^-X)) the evidence at its height times v₀, Γ = L/(1+L) and r = (1-Γ)/(e^X - Γ),
following mean and variance step by step gives
    s = 1 - r^Γ        E w² = v₀ f        w = m - δ (1-s)
    f = s² + (1-Γ) [(1 - r^2Γ)/2 + Γ² (1 - r^(2Γ-1))/((2Γ-1)(e^X - Γ))]
so v₀ = Σ w²/Σ f. Without forgetting, X = 0, this is s = f = γ. Where nothing tells how old a model is, only weights with γ of at
least DETERMINED count, which the stream tells as much as it makes them forget.

Exchanging v₀ for v₁ leaves λ and η as they are, so it is exact for Gaussian weights:
    1/v' = 1/v + 1/v₁ - 1/v₀       m'/v' = m/v + δ (1/v₁ - 1/v₀)
Decay (PBODL eq. 28) removes a share of λ, so decay and exchange can come in either order.
erratum E6: λ can be negative; a weight keeps a share of the new prior's precision (`guards`).
"""

import numpy as np

from pbodl._jit import inlined, jit, kernel
from pbodl.kernels.guards import LEAST_SHARE, in_bounds
from pbodl.kernels.layers.embedding import draw_of, stirred_dimensions
from pbodl.kernels.normal import ZERO

DETERMINED = 0.8


@inlined
def exchanged(m, v, draw, change, least):
    """N(m, v) with another prior, change = 1/v₁ - 1/v₀, and a precision of at least `least`; unchanged if it would not stay finite.

    With one division for both: v' = v/(1 + v change), m' = (m + δ v change)/(1 + v change).
    """
    shift = np.float64(v) * change
    scale = 1.0 / max(1.0 + shift, v * least)
    m_new, v_new = (m + draw * shift) * scale, v * scale
    good = in_bounds(m_new, v_new)
    # A shift of zero, not a choice between old and new: the compiler would make a masked store of that choice, which is slow.
    shift, scale = (shift, scale) if good else (0.0, 1.0)
    return np.float32((m + draw * shift) * scale), np.float32(v * scale)


@kernel
def draws_of(key, stirred, scale, draws):
    """A row's draws, all dimensions, times `scale`. MODIFIES: draws."""
    for d in range(len(stirred)):
        draws[d] = scale * draw_of(key, stirred[d])


@kernel
def add_evidence(m, v, draws, precision, least, squares, determined):
    """Add w² and γ of those of a row's weights whose γ is at least `least`. MODIFIES: squares, determined."""
    for d in range(len(draws)):
        share = v[d] * precision[d]
        w, known = m[d] - draws[d] * share, 1.0 - share
        counts = known >= least
        squares[d] += w * w if counts else 0.0
        determined[d] += known if counts else 0.0


@inlined
def followed(known, age):
    """s and f of a weight with this γ whose variance has decayed for so long, in units of half-life/ln 2."""
    if known <= 0.0:
        return known, known
    grown = np.expm1(age)
    height = known * (grown + 1.0) / ((1.0 - known) * grown + 1e-30)  # L
    first, top = 1.0 / (1.0 + height), height / (1.0 + height)  # 1-Γ, Γ
    last = grown + first  # e^X - Γ
    ratio = np.log(first / last)
    power = 2.0 * top - 1.0
    middle = -np.expm1(power * ratio) / power if abs(power) > 1e-9 else -ratio
    s = -np.expm1(top * ratio)
    return s, s * s + first * (-0.5 * np.expm1(2.0 * top * ratio) + top * top * middle / last)


@kernel
def add_followed_evidence(m, v, draws, precision, age, squares, determined):
    """As `add_evidence`, of weights that forgot by variance alone. MODIFIES: squares, determined."""
    for d in range(len(draws)):
        s, f = followed(1.0 - v[d] * precision[d], age)
        w = m[d] - draws[d] * (1.0 - s)
        squares[d] += w * w
        determined[d] += f


@kernel
def exchange_row(m, v, draws, change, least):
    """Exchange the prior of a row's weights. MODIFIES: m, v."""
    for d in range(len(draws)):
        m[d], v[d] = exchanged(m[d], v[d], draws[d], change[d], least[d])


@jit
def field_evidence(rows, keys, fields, prior, least, age, linear_age, squares, determined):
    """Sums of w² and of γ over each field's rows, one for every column, the linear weight's last. MODIFIES: squares, determined.

    Only weights with γ of at least `least` count. Where means do not decay, f counts in place of γ: the ages are those of the
    model, in units of half-life/ln 2, and n visits at random times span (n-1)/(n+1) of them. Where means decay, they are 0.
    """
    width = rows.mean.shape[1]
    stirred, draws = stirred_dimensions(prior.seed, width), np.empty(width, np.float32)
    precision, linear_precision = 1.0 / prior.variance.astype(np.float64), 1.0 / prior.linear_variance.astype(np.float64)
    for r in range(len(keys)):
        field = fields[r]
        draws_of(keys[r], stirred, prior.initial_scale, draws)
        span = (rows.count[r] - 1.0) / (rows.count[r] + 1.0)
        if age * span > 0.0:
            add_followed_evidence(
                rows.mean[r], rows.variance[r], draws, precision[field], age * span, squares[field], determined[field]
            )
        else:
            add_evidence(rows.mean[r], rows.variance[r], draws, precision[field], least, squares[field], determined[field])
        if len(rows.linear_mean) > 0:
            known = 1.0 - rows.linear_variance[r, 0] * linear_precision[field]
            if known >= least:
                squares[field, width] += np.float64(rows.linear_mean[r, 0]) ** 2
                determined[field, width] += followed(known, linear_age * span)[1] if linear_age * span > 0.0 else known


@jit
def exchange_priors(rows, keys, fields, old, new):
    """Exchange the prior of every row. MODIFIES: rows."""
    width = rows.mean.shape[1]
    stirred, draws = stirred_dimensions(old.seed, width), np.empty(width, np.float32)
    change = 1.0 / new.variance.astype(np.float64) - 1.0 / old.variance.astype(np.float64)
    linear_change = 1.0 / new.linear_variance.astype(np.float64) - 1.0 / old.linear_variance.astype(np.float64)
    least, linear_least = LEAST_SHARE / new.variance.astype(np.float64), LEAST_SHARE / new.linear_variance.astype(np.float64)
    for r in range(len(keys)):
        field = fields[r]
        draws_of(keys[r], stirred, old.initial_scale, draws)
        exchange_row(rows.mean[r], rows.variance[r], draws, change[field], least[field])
        if len(rows.linear_mean) > 0:
            rows.linear_mean[r, 0], rows.linear_variance[r, 0] = exchanged(
                rows.linear_mean[r, 0], rows.linear_variance[r, 0], ZERO, linear_change[field], linear_least[field]
            )
