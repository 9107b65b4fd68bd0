"""PairFM (beyond the paper): products of pairs of fields, each with a weight that is learned; the model to start with.

It is the field-weighted factorisation machine (Pan et al. 2018) made Bayesian and, where a schema has several groups, field-aware.
The mathematics is in `kernels.layers.pairs`; the table, the clock and the rest come from `DeepProbit`.
"""

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from pbodl.data.schema import Schema
from pbodl.kernels.arguments import Dense, PairShape
from pbodl.kernels.layers import interaction
from pbodl.kernels.layers.pairs import DOUBT
from pbodl.models.deep_probit import DeepProbit, empty_dense
from pbodl.models.spec import PairSpec, Prior, TableSpec

WITHIN = 0.3


class PairFM(DeepProbit):
    """Bayesian factorisation machine with a learned weight for every pair of fields.

    The model to start with: it is the most accurate one after a single pass over logs that nobody tuned it for, it is fast, and its
    variance is honest: what reaches the prediction in several ways counts with its covariance, and the variance covers what a model
    of this form cannot know of itself. A feature has a linear weight and one vector for each group of fields; fields meet in pairs,
    and the stream decides how much each pair counts.

    Parameters
    ----------
    schema          the columns (`Schema`)
    dim             length of each of a feature's vectors
    pair_weight     mean of the pairs' weights before any data; pairs within one of several groups start with WITHIN of it, as a
                    site's id and its category have less to tell each other than a site and an ad
    prior           prior variances (`Prior`); None is what does well on click logs
    adapt_prior     correct the prior variances of linear weights and vectors, field by field, by what the stream shows
                    (`models.adaptation`); for vectors only their proportions, as the pairs' weights carry the scale

    All others as for `DeepProbit`.

    Examples
    --------
    >>> import pbodl
    >>> schema = pbodl.Schema(label="click", fields=[pbodl.Field("likes", group="user"), pbodl.Field("topic", group="ad")])
    >>> model = pbodl.PairFM(schema)
    >>> _ = model.learn([{"likes": a, "topic": b, "click": int(a == b)} for _ in range(50) for a in "xyz" for b in "xyz"])
    >>> model.predict([{"likes": "x", "topic": "x"}, {"likes": "x", "topic": "y"}]).ctr.round(1)
    array([0.9, 0.1])
    """

    kind: ClassVar[str] = "pair-fm"
    Spec: ClassVar[type[TableSpec]] = PairSpec
    op: ClassVar[int] = interaction.PAIRS
    doubt = float(DOUBT)
    spec: PairSpec

    def __init__(
        self, schema: Schema, dim: int = 8, linear: bool = True, pair_weight: float = 0.35, prior: Prior | None = None,
        adapt_prior: bool = True, half_life: str | None = None, decay_mean: bool = False, step_cap: float | None = None,
        capacity: int | None = None, time_to_live: str | None = None, negative_rate: float = 1.0, base_rate: float | None = None,
        initial_spread: float = 0.03, seed: int = 0,
    ) -> None:  # fmt: skip
        self._build(schema, PairSpec(
            dim=dim, linear=linear, pair_weight=pair_weight, prior=prior or Prior(), adapt_prior=adapt_prior, half_life=half_life,
            decay_mean=decay_mean, step_cap=step_cap, capacity=capacity, time_to_live=time_to_live, negative_rate=negative_rate,
            base_rate=base_rate, initial_spread=initial_spread, seed=seed,
        ))  # fmt: skip

    def _reported(
        self, mean: NDArray[np.float64], variance: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return mean, variance * self.doubt

    def _shape(self, schema: Schema, spec: TableSpec) -> PairShape:
        pairs = interaction.width(self.op, spec.dim, len(schema.fields))
        sizes = np.array((pairs, 1), np.int64)
        exact, plain = np.int64(interaction.EXACT), np.float32(0.0)
        return PairShape(np.int64(self.op), exact, sizes, np.int64(pairs), plain, schema.group_codes, DOUBT)

    def _initial_dense(self) -> Dense:
        """The weights of the pairs, and the bias, before any data."""
        dense, prior, pairs = empty_dense(self.shape.sizes), self.spec.prior, int(self.shape.width)
        groups = self.schema.group_codes
        first, second = np.triu_indices(len(groups), 1)
        within = (groups[first] == groups[second]) & (len(self.schema.groups) > 1)
        dense.mean[0, 0, :pairs] = self.spec.pair_weight * np.where(within, WITHIN, 1.0)
        dense.prior_variance[:] = prior.dense
        dense.prior_variance[0, 0, pairs] = prior.bias
        dense.variance[:] = dense.prior_variance
        return dense
