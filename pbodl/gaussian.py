"""A Gaussian in its two forms, and the products and quotients of Bayes' rule.

Letters: mean m, variance v; precision π = 1/v, precision-mean π m. In natural form a product of densities is a sum and a quotient a
difference; what the data added to a weight is the posterior divided by the prior. A quotient need not be a Gaussian: its precision
may be zero or negative (erratum E6), so it stays in natural form; only a product with a proper Gaussian is converted back.
"""

from typing import Any, NamedTuple

from pbodl._jit import inlined


class Gaussian(NamedTuple):
    """A number, or one for each weight of an array."""

    mean: Any
    variance: Any


class Natural(NamedTuple):
    """The same in natural parameters."""

    precision: Any
    precision_mean: Any


@inlined
def natural(gaussian):
    """The natural form: π = 1/v, π m."""
    precision = 1.0 / gaussian.variance
    return Natural(precision, precision * gaussian.mean)


@inlined
def moments(factor):
    """Back to mean and variance; the precision must be above zero."""
    variance = 1.0 / factor.precision
    return Gaussian(variance * factor.precision_mean, variance)


@inlined
def multiply(a, b):
    """The product of two factors, up to scale."""
    return Natural(a.precision + b.precision, a.precision_mean + b.precision_mean)


@inlined
def divide(a, b):
    """The quotient of two factors, up to scale: multiply(divide(a, b), b) is a."""
    return Natural(a.precision - b.precision, a.precision_mean - b.precision_mean)
