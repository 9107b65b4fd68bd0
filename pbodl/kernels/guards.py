"""The guards: the bounds that every update of a Gaussian respects, and all of their thresholds.

An ADF step (`adf`, MatchBox) must leave a variance between SMALLEST and LARGEST and a mean within ±LARGEST; otherwise it is
rejected whole. These bounds only keep numbers finite.

erratum E6: a message, a site or a new prior can have negative precision, and so take precision away from a weight. The weight then
keeps a least precision:
    LEAST_SHARE  of its prior's precision, for whole messages (the server's product, EP's cavities, an exchange of priors)
    LEAST_KEPT   of its prior's or its own precision, whichever is less, for the threads of one machine. This bound is looser
                 because threads must leave alone what the sequential kernel allows: a variance above the prior's
A `Guard` also limits the step of a single message: workers that learn side by side can overshoot together.
"""

from typing import NamedTuple

import numpy as np

from pbodl._jit import inlined
from pbodl.kernels.normal import ONE, ZERO

LARGEST = np.float32(1e6)
SMALLEST = np.float32(1e-30)
LEAST_SHARE = 0.5
LEAST_KEPT = 0.1


class Guard(NamedTuple):
    """The most that one message may do to a weight."""

    kept: float  # share of its precision that it keeps
    farthest: float  # step of its mean, in its standard deviations


CAUTIOUS = Guard(0.5, 4.0)


@inlined
def in_bounds(m, v):
    """Whether an update may result in N(m, v); NaN never passes."""
    # In this order `max` hands NaN on, and NaN is never below the largest.
    return (v > SMALLEST) & (max(abs(m), v) < LARGEST)


@inlined
def guarded(m, v, step, loss, good):
    """Add `step` to the mean and subtract `loss` from the variance if `good`, else keep both; and 1 if it kept them, else 0."""
    # Written as a step of zero, not as a choice between m and m', so that the vector loop stores plainly: masked stores are slow.
    # Where the compiler sees through that, `only_if` does it.
    return m + (step if good else ZERO), v - (loss if good else ZERO), (ZERO if good else ONE)


@inlined
def only_if(good, x):
    """x, a float32, if it is good, else 0; by its bits, because the compiler may turn a choice into a much slower masked store."""
    return np.int32(np.float32(x).view(np.int32) & -np.int32(good)).view(np.float32)


@inlined
def least_precision(v_prior):
    """The precision that a weight of this prior variance keeps, whatever a message takes from it."""
    return LEAST_SHARE / v_prior
