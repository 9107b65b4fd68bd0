"""The whole network by the paper's definitions, in plain float64 loops over weights that have names.

z_0 is written down as what it is, a list of polynomials in the embeddings; its mean and variance come from enumerating all pairs of
its terms, and their covariances from the raw moments of independent Gaussians. Nothing here knows a closed form for FM or FFM.
"""

import itertools
import math
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from scipy.special import log_ndtr, ndtr

from tests.oracles.differences import derivative

Name = tuple  # ("embedding", row, group, k), ("linear", row), ("dense", layer, out, in); the bias is the last input
Gauss = tuple[float, float]  # mean, variance
Term = tuple  # a product of variables, by their names


class Feature(NamedTuple):
    row: int
    x: float
    field: int


@dataclass
class Network:
    """What a model is made of; `weights` maps a weight's name to its mean and variance."""

    op: str  # "concat", "sum", "fm", "ffm", "group-fm"
    dim: int
    hidden: tuple[int, ...]
    linear: bool
    group_of_field: tuple[int, ...]
    fm_variance: str = "exact"
    straight: float = 0.0  # the multiple of the sum of z_0 that reaches z_L beside the hidden layers
    weights: dict[Name, Gauss] = field(default_factory=dict)
    centre: dict[tuple[int, int], float] = field(default_factory=dict)  # by (layer, input): what its inputs are less

    @property
    def sizes(self) -> tuple[int, ...]:
        """Units of z_0, of the hidden layers, and of the output; nothing is below the bias if there is no hidden layer."""
        width = self.dim * len(self.group_of_field) if self.op == "concat" else self.dim
        return (width, *self.hidden, 1) if self.hidden else (0, 1)

    @property
    def shortcut(self) -> float:
        """Without hidden layers all of z_0's sum goes straight to z_L."""
        return self.straight if self.hidden else 1.0

    @property
    def groups(self) -> int:
        return max(self.group_of_field) + 1 if self.op == "ffm" else 1

    def names(self, rows: int) -> list[Name]:
        """All weights that a network with so many features has."""
        found: list[Name] = []
        for row in range(rows):
            found += [("embedding", row, g, k) for g in range(self.groups) for k in range(self.dim)]
            found += [("linear", row)] if self.linear else []
        for layer, (n_in, n_out) in enumerate(itertools.pairwise(self.sizes)):
            found += [("dense", layer, o, i) for o in range(n_out) for i in range(n_in + 1)]
        return found


def raw_moment(gauss: Gauss, power: int) -> float:
    """E[z^power] of a Gaussian."""
    m, v = gauss
    return (1.0, m, m**2 + v, m**3 + 3 * m * v, m**4 + 6 * m**2 * v + 3 * v**2)[power]


def expectation(term: Term, values: dict[Name, Gauss]) -> float:
    """E of a product of independent Gaussians, some of which may occur twice."""
    return math.prod(raw_moment(values[name], power) for name, power in Counter(term).items())


def polynomial(terms: list[Term], values: dict[Name, Gauss]) -> Gauss:
    """Mean and variance of a sum of products, covariance by covariance."""
    mean = [expectation(term, values) for term in terms]
    variance = 0.0
    for a, term in enumerate(terms):
        for b, other in enumerate(terms):
            variance += expectation(term + other, values) - mean[a] * mean[b]
    return sum(mean), variance


def pairs(network: Network, sample: list[Feature], k: int) -> dict[tuple, list[Term]]:
    """The products of FM and FFM in dimension k, by the groups of their two factors (PBODL eq. 19, eq. 22).

    FM between groups has those of two different groups, of the one vector that a feature has.
    """
    found: dict[tuple, list[Term]] = {}
    for (i, one), (j, two) in itertools.combinations(enumerate(sample), 2):
        f, g = (0 if network.op == "fm" else network.group_of_field[item.field] for item in (one, two))
        if network.op == "ffm" or f != g or network.op == "fm":
            a, b = (g, f) if network.op == "ffm" else (0, 0)
            found.setdefault((min(f, g), max(f, g)), []).append(((i, a, k), (j, b, k)))
    return found


def operation(network: Network, sample: list[Feature], values: dict[Name, Gauss]) -> list[Gauss]:
    """z_0, where values[i, g, k] is number k of feature i's vector for group g."""
    dims = range(network.dim)
    if network.op == "concat":
        fields = range(len(network.group_of_field))
        columns = [[((i, 0, k),) for i, item in enumerate(sample) if item.field == f] for f in fields for k in dims]
        return [polynomial(terms, values) for terms in columns]
    if network.op == "sum":
        return [polynomial([((i, 0, k),) for i in range(len(sample))], values) for k in dims]
    outputs = []
    for k in dims:
        by_groups = pairs(network, sample, k)
        if network.fm_variance == "slopes":
            outputs.append(linear_part([term for terms in by_groups.values() for term in terms], values))
            continue
        if network.fm_variance == "exact":
            parts = [[term for terms in by_groups.values() for term in terms]]
        else:  # as printed: pairs of one group as if independent (PBODL eq. 20), pairs of two groups as a product of sums (eq. 24)
            parts = [[term] for (f, g), terms in by_groups.items() if f == g for term in terms]
            parts += [terms for (f, g), terms in by_groups.items() if f != g]
        moments = [polynomial(part, values) for part in parts]
        outputs.append((sum(m for m, _ in moments), sum(v for _, v in moments)))
    return outputs


def dense(inputs: list[Gauss], weights: list[list[Gauss]]) -> list[Gauss]:
    """a = W (z, 1)/√(n_in + 1), by the definition of a_l in PBODL §2.1; Var(w z) = E w² E z² - (E w E z)²."""
    with_bias = [*inputs, (1.0, 0.0)]
    outputs = []
    for row in weights:
        mean = sum(w[0] * z[0] for w, z in zip(row, with_bias, strict=True))
        variance = sum(raw_moment(w, 2) * raw_moment(z, 2) - (w[0] * z[0]) ** 2 for w, z in zip(row, with_bias, strict=True))
        outputs.append((mean / math.sqrt(len(with_bias)), variance / len(with_bias)))
    return outputs


def relu(a: Gauss) -> Gauss:
    """Moments of max(0, a) in the paper's own letters (PBODL eq. 14, eq. 15), v^a on the right (erratum E2)."""
    m, v = a
    alpha = m / math.sqrt(v)
    gamma = math.exp(-0.5 * alpha**2) / math.sqrt(2 * math.pi) / ndtr(alpha)
    v_prime = m + math.sqrt(v) * gamma
    mean = ndtr(alpha) * v_prime
    return mean, ndtr(alpha) * v * (1 - gamma * (gamma + alpha)) + mean * ndtr(-alpha) * v_prime


def mean_with_frozen_units(network: Network, sample: list[Feature], frozen: list[list[Gauss]] | None) -> tuple[float, list]:
    """The mean of z_L and the moments of all activations, whose variances are those of `frozen`, if it is given."""
    weights, values = network.weights, {}
    for i, item in enumerate(sample):
        for g, k in itertools.product(range(network.groups), range(network.dim)):
            m, v = weights["embedding", item.row, g, k]
            values[i, g, k] = (item.x * m, item.x**2 * v)
    z = operation(network, sample, values)
    mean = network.shortcut * sum(m for m, _ in z)
    if network.linear:
        mean += sum(item.x * weights["linear", item.row][0] for item in sample)
    z, found = z if network.hidden else [], []
    layers = list(itertools.pairwise(network.sizes))
    for layer, (n_in, n_out) in enumerate(layers):
        a = dense(z, [[weights["dense", layer, o, i] for i in range(n_in + 1)] for o in range(n_out)])
        if frozen is not None:
            a = [(m, v) for (m, _), (_, v) in zip(a, frozen[layer], strict=True)]
        found.append(a)
        if layer < len(layers) - 1:
            z = [(m - network.centre.get((layer + 1, i), 0.0), v) for i, (m, v) in enumerate(map(relu, a))]
    return mean + found[-1][0][0], found


def forward_by_slopes(network: Network, sample: list[Feature]) -> Gauss:
    """Mean of z_L, and Σ (∂m/∂m_w)² v_w over all weights, numerically, while the activations' variances stay."""
    mean, frozen = mean_with_frozen_units(network, sample, None)
    variance = 0.0
    for name in involved(network, sample):
        kept = m, v = network.weights[name]

        def moved(value: float, name: Name = name, v: float = v) -> float:
            network.weights[name] = (value, v)
            return mean_with_frozen_units(network, sample, frozen)[0]

        variance += derivative(moved, m, 1e-3 * max(1.0, abs(m))) ** 2 * v
        network.weights[name] = kept
    return mean, variance


def linear_part(terms: list[Term], values: dict[Name, Gauss]) -> Gauss:
    """Mean of a sum of products of different Gaussians, and Σ (∂/∂m)² v."""
    at_means = {name: (m, 0.0) for name, (m, _) in values.items()}
    slopes: Counter = Counter()
    for term in terms:
        for place, name in enumerate(term):
            slopes[name] += expectation(term[:place] + term[place + 1 :], at_means)  # type: ignore[assignment]
    mean = sum(expectation(term, at_means) for term in terms)
    return mean, sum(slope**2 * values[name][1] for name, slope in slopes.items())


def forward(network: Network, sample: list[Feature]) -> Gauss:
    """Mean and variance of z_L."""
    if network.fm_variance == "slopes":
        return forward_by_slopes(network, sample)
    weights, values = network.weights, {}
    for i, item in enumerate(sample):
        for g, k in itertools.product(range(network.groups), range(network.dim)):
            m, v = weights["embedding", item.row, g, k]
            values[i, g, k] = (item.x * m, item.x**2 * v)
    z = operation(network, sample, values)
    mean = network.shortcut * sum(m for m, _ in z)
    variance = network.shortcut**2 * sum(v for _, v in z)
    z = z if network.hidden else []
    layers = list(itertools.pairwise(network.sizes))
    for layer, (n_in, n_out) in enumerate(layers):
        z = dense(z, [[weights["dense", layer, o, i] for i in range(n_in + 1)] for o in range(n_out)])
        if layer < len(layers) - 1:
            z = [(m - network.centre.get((layer + 1, i), 0.0), v) for i, (m, v) in enumerate(map(relu, z))]
    mean, variance = mean + z[0][0], variance + z[0][1]
    if network.linear:
        for item in sample:
            m, v = weights["linear", item.row]
            mean, variance = mean + item.x * m, variance + item.x**2 * v
    return mean, variance


def log_z(network: Network, sample: list[Feature], click: int) -> float:
    """log of PBODL eq. 10."""
    m, v = forward(network, sample)
    return float(log_ndtr((2 * click - 1) * m / math.sqrt(1 + v)))


def involved(network: Network, sample: list[Feature]) -> list[Name]:
    """The weights that a sample has to do with."""
    rows = {item.row for item in sample}
    return [name for name in network.weights if name[0] == "dense" or name[1] in rows]


def gradients(network: Network, sample: list[Feature], click: int) -> dict[Name, Gauss]:
    """∂log Z/∂m and ∂log Z/∂v of every weight involved, numerically."""

    def by(name: Name, place: int, step: float) -> float:
        kept = network.weights[name]

        def moved(value: float) -> float:
            network.weights[name] = (value, kept[1]) if place == 0 else (kept[0], value)
            return log_z(network, sample, click)

        found = derivative(moved, kept[place], step)
        network.weights[name] = kept
        return found

    found = {}
    for name in involved(network, sample):
        m, v = network.weights[name]
        found[name] = (by(name, 0, 1e-3 * max(1.0, abs(m))), by(name, 1, 1e-2 * v))
    return found


def adf(gauss: Gauss, gradient: Gauss) -> Gauss:
    """PBODL eq. 6 and eq. 7."""
    (m, v), (dm, dv) = gauss, gradient
    return m + v * dm, v - v**2 * (dm**2 - 2 * dv)


def learn(network: Network, sample: list[Feature], click: int) -> None:
    """One sample's update of every weight involved, all from the weights as they were before it."""
    for name, gradient in gradients(network, sample, click).items():
        network.weights[name] = adf(network.weights[name], gradient)
