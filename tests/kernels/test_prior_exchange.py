"""Prior variances from the data: the exchange against Bayes from scratch, the estimate against the evidence itself."""

import numpy as np
import pytest

from pbodl.kernels.adf import decay
from pbodl.kernels.arguments import RowPrior, Rows
from pbodl.kernels.guards import LEAST_SHARE
from pbodl.kernels.layers.embedding import standard_draw
from pbodl.kernels.prior_exchange import DETERMINED, exchange_priors, exchanged, field_evidence, followed
from tests.oracles.prior import likeliest_variance, posterior

F32 = np.float32
SEED, SPREAD, DIM = np.uint64(5), F32(0.3), 2


def swapped(m: float, v: float, old: float, new: float) -> tuple[np.float32, np.float32]:
    return exchanged(F32(m), F32(v), F32(0.0), 1.0 / new - 1.0 / old, LEAST_SHARE / F32(new))


def prior_of(embedding: list[list[float]], linear: list[float]) -> RowPrior:
    return RowPrior(np.array(embedding, F32), np.array(linear, F32), SPREAD, SEED)


ALL = -np.inf
OLD = prior_of([[0.5, 0.25], [0.125, 1.0]], [0.75, 0.5])
NEW = prior_of([[2.0, 0.0625], [0.125, 0.5]], [0.03125, 4.0])


class Observed:
    """Rows whose weights were observed with noise, as (row, column); the linear weight is the last column and has no draw."""

    def __init__(self, n: int, seed: int = 0, true: float = 1.0, fields: int = 2) -> None:
        rng = np.random.default_rng(seed)
        self.keys = rng.integers(0, 2**63, n).astype(np.uint64)
        self.fields = rng.integers(0, fields, n).astype(np.uint16)
        self.precision = np.exp(rng.uniform(-2.0, 4.0, (n, DIM + 1)))
        self.seen = rng.normal(0.0, np.sqrt(true), (n, DIM + 1)) + rng.normal(size=(n, DIM + 1)) / np.sqrt(self.precision)
        with np.errstate(over="ignore"):
            draws = [[SPREAD * standard_draw(SEED, key, np.uint64(d)) for d in range(DIM)] + [0.0] for key in self.keys]
        self.draws = np.array(draws, np.float64)

    def rows(self, prior: RowPrior) -> Rows:
        """Their posterior under a prior, from scratch."""
        variances = np.column_stack([prior.variance, prior.linear_variance]).astype(np.float64)[self.fields]
        m, v = posterior(self.seen, self.precision, variances, self.draws)
        n = len(self.keys)
        halves = [part.astype(F32) for part in (m[:, :DIM], v[:, :DIM], m[:, DIM:], v[:, DIM:])]
        return Rows(*(np.ascontiguousarray(part) for part in halves), np.zeros(n), np.ones(n, np.uint32))


@pytest.mark.nojit
def test_an_exchanged_prior_is_as_if_it_had_been_there_from_the_start():
    observed = Observed(40)
    ref, comp = observed.rows(NEW), observed.rows(OLD)
    with np.errstate(over="ignore"):
        exchange_priors(comp, observed.keys, observed.fields, OLD, NEW)
    for name in ("mean", "variance", "linear_mean", "linear_variance"):
        np.testing.assert_allclose(getattr(comp, name), getattr(ref, name), rtol=1e-4, atol=1e-6, err_msg=name)


@pytest.mark.nojit
def test_the_estimate_settles_where_the_evidence_is_largest():
    true = 0.2
    observed = Observed(400, seed=1, true=true, fields=1)
    variances = np.full(DIM + 1, 1.0)
    for _ in range(60):
        prior = prior_of([list(variances[:DIM])], [variances[DIM]])
        squares, determined = np.zeros((1, DIM + 1)), np.zeros((1, DIM + 1))
        with np.errstate(over="ignore"):
            field_evidence(observed.rows(prior), observed.keys, observed.fields, prior, ALL, 0.0, 0.0, squares, determined)
        variances = (squares / determined)[0]
    for column, found in enumerate(variances):
        ref = likeliest_variance(observed.seen[:, column], observed.precision[:, column], np.geomspace(0.01, 5.0, 4000))
        assert found == pytest.approx(ref, rel=0.005)
        assert found == pytest.approx(true, rel=0.3)


@pytest.mark.nojit
def test_rows_that_know_nothing_say_nothing():
    observed = Observed(10)
    observed.precision[:] = 1e-12
    squares, determined = np.zeros((2, DIM + 1)), np.zeros((2, DIM + 1))
    with np.errstate(over="ignore"):
        field_evidence(observed.rows(OLD), observed.keys, observed.fields, OLD, ALL, 0.0, 0.0, squares, determined)
    np.testing.assert_allclose(squares, 0.0, atol=1e-10)  # the draws do not count as something learned
    np.testing.assert_allclose(determined, 0.0, atol=1e-5)


@pytest.mark.nojit
def test_where_variances_alone_decay_the_estimate_does_not_grow_by_itself():
    # Rare rows have forgotten most of their precision and kept their means; frequent rows know their weight all the time.
    true, rng, observed = 0.2, np.random.default_rng(2), Observed(400, seed=1, fields=1)
    observed.precision[:200], observed.precision[200:] = 1.0, 1e3
    observed.seen[:] = rng.normal(0.0, true**0.5, observed.seen.shape)
    prior = prior_of([[true] * DIM], [true])
    found = {}
    rows = observed.rows(prior)
    for table in (rows.mean, rows.linear_mean):
        table[:200] = rng.normal(0.0, true**0.5, table[:200].shape)
    for name, least in {"all": ALL, "determined": DETERMINED}.items():
        squares, determined = np.zeros((1, DIM + 1)), np.zeros((1, DIM + 1))
        with np.errstate(over="ignore"):
            field_evidence(rows, observed.keys, observed.fields, prior, least, 0.0, 0.0, squares, determined)
        found[name] = squares[0] / determined[0]
    np.testing.assert_allclose(found["determined"], true, rtol=0.3)
    assert (found["all"] > 1.5 * true).all()


@pytest.mark.nojit
@pytest.mark.parametrize("half_lives", [0.02, 0.5, 2.0, 8.0])
@pytest.mark.parametrize("rate", [0.3, 2.0, 30.0])
def test_the_evidence_of_weights_that_forget_by_variance_alone(rate, half_lives):
    # Weights of a known variance, observed with noise of variance 1 at a steady rate, followed step by step as learning does it.
    true, steps, n, rng = 0.5, 400, 20_000, np.random.default_rng(3)
    kept, informs = 2.0 ** (-half_lives / steps), rate * half_lives / steps
    weights, draws = rng.normal(0.0, true**0.5, n), rng.normal(0.0, 0.3, n)
    m, v = draws.copy(), true
    for _ in range(steps):
        v = 1.0 / (kept / v + (1.0 - kept) / true)
        v = 1.0 / (1.0 / v + informs)
        m += v * informs * (weights + rng.normal(size=n) / informs**0.5 - m)
    s, f = followed(1.0 - v / true, half_lives * np.log(2.0))
    assert f == pytest.approx(np.mean((m - draws * (1.0 - s)) ** 2) / true, rel=0.04)
    assert s == pytest.approx(np.mean(m * weights) / np.mean(weights**2), abs=0.02)


@pytest.mark.nojit
def test_without_forgetting_the_evidence_is_what_is_determined():
    for known in (-0.5, 0.0, 0.1, 0.5, 0.9, 0.9999, 1.0):
        assert followed(known, 1e-9) == pytest.approx((known, known), abs=1e-6)


@pytest.mark.nojit
@pytest.mark.parametrize("also_mean", [True, False])
def test_decay_and_exchange_may_come_in_either_order(also_mean):
    m, v, old, new, kept = F32(0.4), F32(0.1), F32(0.5), F32(0.2), F32(0.3)
    _, first = decay(*swapped(m, v, old, new), new, kept, also_mean)
    _, last = swapped(*decay(m, v, old, kept, also_mean), old, new)
    assert first == pytest.approx(last, rel=1e-5)


@pytest.mark.nojit
def test_a_weight_keeps_half_of_its_new_priors_precision():
    # ADF raised its variance to eight times the prior's: no Gaussian has that likelihood and a prior twice as wide.
    m, v = swapped(0.3, 4.0, old=0.5, new=1.0)
    assert v == pytest.approx(2.0) and m == pytest.approx(0.3 / 4.0 * 2.0)


@pytest.mark.nojit
def test_numbers_that_would_not_stay_finite_leave_a_weight_alone():
    assert swapped(9e5, 1e-3, old=1e-3, new=1e5) == (F32(9e5), F32(1e-3))
