"""The normal distribution: density φ, distribution Φ, and functions for their tails.

There are two precisions. The float64 functions serve the one probit per sample. The float32 functions serve the ReLU layers,
hundreds of calls per sample. Both are polynomials without a branch, so that a loop over them becomes vector instructions.

Letters: x ≥ 0 a distance from the mean, α = m/√v, t = 1/(1 + 0.25 x), in float64 1/(1 + 0.2 x).
  Mills ratio           R(x) = Φ(-x)/φ(x)
  first excess moment   J(x) = E[(Z-x)₊]/φ(x)  = 1 - x R(x)
  second excess moment  G(x) = E[(Z-x)₊²]/φ(x) = (1 + x²) R(x) - x
R and J follow from G without cancellation, in the tails too: R = (x + G)/(1 + x²), J = (1 - x G)/(1 + x²).
Hence one polynomial, for G, gives every moment of a rectified Gaussian with a small *relative* error.

Error bounds (tests/kernels/test_normal.py holds them against scipy and mpmath over the whole range): `density` 1e-6 + 1e-7 x²
relative while φ is a normal float32 (x ≤ 13.2), and then 0; `excess` 1e-6 relative as far, and 2e-3 up to 40, where φ = 0 hides it.
In float64 `mills_ratio` 1e-13 relative however far, `cdf` 1e-12 while it is a normal number (a ≥ -37), and then 0.
"""

import math

import numpy as np

from pbodl._jit import inlined

LOG_SQRT_2PI = 0.9189385332046727

F = np.float32
ZERO, ONE, TWO, HALF = F(0.0), F(1.0), F(2.0), F(0.5)
EXPONENT_PER_X2 = F(-0.5 * 1.4426950408889634)  # φ(x) = 2^(-x² log2(e)/2 - log2(2π)/2)
EXPONENT_AT_0 = F(-1.3257480647361593)
LOWEST_EXPONENT = F(-127.0)
FARTHEST = F(40.0)  # φ(40) = 0 in float32: beyond, nothing changes

# 2^f on [-1/2, 1/2], and G(x)/t³ in powers of t: least-maximum fits of the relative error.
E1, E2, E3, E4, E5 = F(0.693146977591), F(0.240222420688), F(0.0555073374572), F(0.00967151372624), F(0.00132647303344)
G0, G1, G2, G3, G4, G5, G6, G7, G8 = (
    F(0.0317671731782), F(0.0829044044875), F(0.273889222462), F(-0.246940204721), F(1.87941390626),
    F(-2.87683843589), F(4.09714996418), F(-2.53810129749), F(0.550069215751)
)  # fmt: skip
T_SLOPE = F(0.25)

# The same in float64: 2^f, and R(x)/t in powers of t.
WIDE_EXPONENT_PER_X2 = -0.5 * 1.4426950408889634
WIDE_INV_SQRT_2PI = 0.3989422804014327
WIDE_LOWEST_EXPONENT = -1020.0
W1, W2, W3, W4, W5, W6, W7, W8, W9, W10 = (
    0.69314718055995, 0.24022650695910097, 0.05550410866444772, 0.009618129107606888, 0.0013333558230164974,
    0.0001540353044173605, 1.5252657260200837e-05, 1.321544258792169e-06, 1.0208690299958306e-07, 7.072585949269223e-09
)  # fmt: skip
R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10, R11, R12, R13, R14, R15, R16, R17, R18 = (
    0.19999999999999496, 0.20000000000365076, 0.19199999955236413, 0.17600002212873442, 0.15295941360109563,
    0.12480959813479049, 0.09410258140665091, 0.06507479657600151, 0.03322282167419572, 0.03712444965000427,
    -0.06026534407482275, 0.154239233958806, -0.3001680028614914, 0.4135714193077231, -0.4332707642352615,
    0.31617188962484466, -0.14638422602161896, 0.03854459082457385, -0.00441834193474877
)  # fmt: skip
WIDE_T_SLOPE = 0.2


@inlined
def density(x):
    """φ(x) in float32; 0 where it would be denormal."""
    exponent = max(x * x * EXPONENT_PER_X2 + EXPONENT_AT_0, LOWEST_EXPONENT)
    whole = np.floor(exponent + HALF)
    f = exponent - whole
    power = ONE + f * (E1 + f * (E2 + f * (E3 + f * (E4 + f * E5))))
    # The bits of 2^whole, which at the lowest exponent are those of 0.
    return power * np.int32((np.int32(whole) + np.int32(127)) << np.int32(23)).view(np.float32)


@inlined
def excess(x):
    """G(x) = E[(Z-x)₊²]/φ(x) in float32, for x ≥ 0."""
    t = ONE / (ONE + T_SLOPE * x)
    high = G5 + t * (G6 + t * (G7 + t * G8))
    return t * t * t * (G0 + t * (G1 + t * (G2 + t * (G3 + t * (G4 + t * high)))))


@inlined
def wide_density(x):
    """φ(x) in float64; 0 where it would be denormal."""
    exponent = x * x * WIDE_EXPONENT_PER_X2
    inside = exponent > WIDE_LOWEST_EXPONENT
    exponent = max(exponent, WIDE_LOWEST_EXPONENT)
    whole = np.floor(exponent + 0.5)
    f = exponent - whole
    high = W5 + f * (W6 + f * (W7 + f * (W8 + f * (W9 + f * W10))))
    power = 1.0 + f * (W1 + f * (W2 + f * (W3 + f * (W4 + f * high))))
    scale = np.int64((np.int64(np.int32(whole)) + np.int64(1023)) << np.int64(52)).view(np.float64)
    return WIDE_INV_SQRT_2PI * power * scale if inside else 0.0


@inlined
def mills_ratio(x):
    """R(x) = Φ(-x)/φ(x) in float64, for x ≥ 0."""
    t = 1.0 / (1.0 + WIDE_T_SLOPE * x)
    high = R12 + t * (R13 + t * (R14 + t * (R15 + t * (R16 + t * (R17 + t * R18)))))
    middle = R6 + t * (R7 + t * (R8 + t * (R9 + t * (R10 + t * (R11 + t * high)))))
    return t * (R0 + t * (R1 + t * (R2 + t * (R3 + t * (R4 + t * (R5 + t * middle))))))


@inlined
def cdf(a):
    """Φ(a) in float64."""
    x = abs(a)
    tail = wide_density(x) * mills_ratio(x)
    return tail if a < 0.0 else 1.0 - tail


@inlined
def log_cdf(a):
    """log Φ(a) in float64, finite for every finite a."""
    if a > -5.0:
        return math.log(cdf(a))
    return -0.5 * a * a - LOG_SQRT_2PI + math.log(mills_ratio(-a))


@inlined
def density_over_cdf(a):
    """φ(a)/Φ(a) in float64: the pull of an observed sign on the mean of a unit Gaussian."""
    return wide_density(a) / cdf(a) if a > 0.0 else 1.0 / mills_ratio(-a)


@inlined
def corrections(t):
    """v(t) = φ(t)/Φ(t) and w(t) = v (v + t): what an observed sign does to mean and variance; rounding keeps w within [0, 1]."""
    v = density_over_cdf(t)
    return v, min(max(v * (v + t), 0.0), 1.0)
