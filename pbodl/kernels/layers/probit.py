"""The probit at the top (PBODL eq. 1, eq. 2): y = sign(z_L + noise of variance 1), so that p(y | z_L) = Φ(y z_L).

With z_L ~ N(m, v) the weights integrate out (PBODL eq. 4, eq. 9, eq. 10): p(y) = Z = Φ(y m/√(1+v)); its gradients drive learning.

`sign` is y in {-1, +1}; everywhere else a click is 0 or 1. All is float64: there is one call per sample.
"""

import math

from pbodl._jit import inlined
from pbodl.kernels.normal import cdf, density_over_cdf, log_cdf


@inlined
def probit_forward(m, v):
    """The probability of a click, E[Φ(z)] = Φ(m/√(1+v))."""
    return cdf(m / math.sqrt(1.0 + v))


@inlined
def probit_log_z(m, v, sign):
    """log Z of the label that was seen; finite however impossible it seemed."""
    return log_cdf(sign * m / math.sqrt(1.0 + v))


@inlined
def probit_backward(m, v, sign):
    """∂log Z/∂m = y r/√(1+v) and ∂log Z/∂v = -½ t r/(1+v), with t = y m/√(1+v), r = φ(t)/Φ(t)."""
    s = math.sqrt(1.0 + v)
    t = sign * m / s
    r = density_over_cdf(t)
    return sign * r / s, -0.5 * t * r / (s * s)
