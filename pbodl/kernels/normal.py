"""The normal distribution: density φ, distribution Φ, and what their tails need.

Two precisions live here. The float64 functions serve the one probit per sample. The float32 functions serve the ReLU layers,
hundreds of calls per sample: they are polynomials without a branch, so that a loop over them becomes vector instructions.

Letters: x ≥ 0 a distance from the mean, α = m/√v, t = 1/(1 + 0.3 x).
  Mills ratio           R(x) = Φ(-x)/φ(x)
  first excess moment   J(x) = E[(Z-x)₊]/φ(x)  = 1 - x R(x)
  second excess moment  G(x) = E[(Z-x)₊²]/φ(x) = (1 + x²) R(x) - x
R and J follow from G without cancellation, in the tails too: R = (x + G)/(1 + x²), J = (1 - x G)/(1 + x²).
Hence one polynomial, for G, gives every moment of a rectified Gaussian with a small *relative* error.

Error bounds (tests/kernels/test_normal.py holds them against scipy and mpmath over the whole range): `density` 1e-6 + 1e-7 x²
relative while φ is a normal float32 (x ≤ 13.2), and then 0; `excess` 1e-6 relative as far, and 4e-4 up to 40, where φ = 0 hides it.
"""

import math

import numpy as np

from pbodl._jit import inlined

LOG_SQRT_2PI = 0.9189385332046727
SQRT_HALF = 0.7071067811865476

F = np.float32
ZERO, ONE, TWO, HALF = F(0.0), F(1.0), F(2.0), F(0.5)
EXPONENT_PER_X2 = F(-0.5 * 1.4426950408889634)  # φ(x) = 2^(-x² log2(e)/2) / √(2π)
INV_SQRT_2PI = F(0.3989422804014327)
LOWEST_EXPONENT = F(-126.0)
FARTHEST = F(40.0)  # φ(40) = 0 in float32: beyond, nothing changes

# 2^f on [-1/2, 1/2], and G(x)/t³ in powers of t: least-maximum fits of the relative error.
E1, E2, E3, E4, E5, E6 = (
    F(0.69314718), F(0.24022651), F(0.055504109), F(0.0096181291), F(0.0013333558), F(0.00015403530)
)  # fmt: skip
G0, G1, G2, G3, G4, G5, G6, G7, G8, G9 = (
    F(0.053823448924), F(0.165787630177), F(0.261275903961), F(0.550269587701), F(0.007345015199),
    F(0.599882375303), F(0.594729194832), F(-2.171619532924), F(1.554692120085), F(-0.362871887683)
)  # fmt: skip
T_SLOPE = F(0.3)


@inlined
def density(x):
    """φ(x) in float32; 0 where it would be denormal."""
    exponent = x * x * EXPONENT_PER_X2
    inside = exponent > LOWEST_EXPONENT
    exponent = max(exponent, LOWEST_EXPONENT)
    whole = np.floor(exponent + HALF)
    f = exponent - whole
    power = ONE + f * (E1 + f * (E2 + f * (E3 + f * (E4 + f * (E5 + f * E6)))))
    scale = np.int32((np.int32(whole) + np.int32(127)) << np.int32(23)).view(np.float32)
    return INV_SQRT_2PI * power * scale if inside else ZERO


@inlined
def excess(x):
    """G(x) = E[(Z-x)₊²]/φ(x) in float32, for x ≥ 0."""
    t = ONE / (ONE + T_SLOPE * x)
    high = G5 + t * (G6 + t * (G7 + t * (G8 + t * G9)))
    return t * t * t * (G0 + t * (G1 + t * (G2 + t * (G3 + t * (G4 + t * high)))))


@inlined
def cdf(a):
    """Φ(a) in float64."""
    return 0.5 * math.erfc(-a * SQRT_HALF)


@inlined
def mills_ratio(x):
    """R(x) = Φ(-x)/φ(x) in float64, for x ≥ 5, by Laplace's continued fraction: 1/(x + 1/(x + 2/(x + 3/...)))."""
    fraction = x
    for k in range(40, 0, -1):
        fraction = x + k / fraction
    return 1.0 / fraction


@inlined
def log_cdf(a):
    """log Φ(a) in float64, finite for every finite a."""
    if a > -5.0:
        return math.log(cdf(a))
    return -0.5 * a * a - LOG_SQRT_2PI + math.log(mills_ratio(-a))


@inlined
def density_over_cdf(a):
    """φ(a)/Φ(a) in float64: the pull of an observed sign on the mean of a unit Gaussian."""
    if a > -5.0:
        return math.exp(-0.5 * a * a - LOG_SQRT_2PI) / cdf(a)
    return 1.0 / mills_ratio(-a)
