"""How a model learns a batch: the one object that `model.learn_with` takes.

`Learning` itself is the default, one sample after the other. Subclasses learn otherwise: several threads
(`parallel.threads.learning_threads`), several passes or expectation propagation (`training.visits`), a worker of a cluster
(`parallel.worker`). The model keeps its table, its clock and its prior; a `Learning` only sees a batch whose features already have
rows.

Rows with weights are counted, whoever learns them: how many were damped, and the sums of weights (`kernels.arguments.Outputs`).
The sums tell how much more rows seem to say than they do, which bounds the priors that follow the stream (`adaptation`).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pbodl.data.table.feature_table import Spread, at_once
from pbodl.kernels.adf import DAMPED, EXTRA, EXTRA_SQUARES
from pbodl.kernels.arguments import LabelledSamples, Network, NetworkWeights, Outputs
from pbodl.kernels.network import learn_batch
from pbodl.models.contract import State

if TYPE_CHECKING:
    from pbodl.models.deep_probit import DeepProbit

POWERS = "powers"  # in a state; releases that did not count such rows wrote none
NONE = np.zeros(3, np.int64)


class Learning:
    """Sequential learning, and the base class of all other ways.

    spare   number of unused rows that `learn` needs behind the last row of the table, for copies
    """

    spare: int = 0

    def start(self, model: "DeepProbit") -> None:
        """Prepare for a model, or refuse it; `model.learn_with` calls this once."""

    def learn(self, weights: NetworkWeights, network: Network, samples: LabelledSamples, outputs: Outputs) -> None:
        """Learn the samples. MODIFIES: weights; outputs, where mean and variance are those of the first visit to each sample."""
        learn_batch(weights, network, samples, outputs)

    # Who does work that is independent row by row, such as making new rows: here the calling thread.
    spread: Spread = staticmethod(at_once)


def powers_of(model: "DeepProbit") -> State:
    """For the state: the counts of rows with weights."""
    return {POWERS: model.rejected[DAMPED:].copy()}


def rejected_of(state: Mapping[str, NDArray]) -> NDArray[np.int64]:
    """All that the guards counted, from a state."""
    return np.concatenate([state["counters"][1:], state.get(POWERS, NONE)])


def weight_sums(model: "DeepProbit", learned: int) -> tuple[float, float]:
    """The sums of the weights of `learned` rows, and of their squares; weights below 1 count as 1."""
    return float(learned + model.rejected[EXTRA]), float(learned + model.rejected[EXTRA_SQUARES])


def bounded_reach(reach: tuple[float, float], total: float, squares: float) -> tuple[float, float]:
    """How far a prior variance may go from its specification, in multiples of it, if the rows' weights have these sums.

    What chance did to one row of weight 10 looks like ten rows that agree. A prior that believes it widens, and believes the next
    row even more. So the mean weight, of rows counted by their weights, divides how far it may grow.

    >>> bounded_reach((0.02, 10.0), 1000.0, 1000.0), bounded_reach((0.02, 10.0), 5000.0, 25000.0)
    ((0.02, 10.0), (0.02, 2.0))
    """
    return reach[0], max(reach[1] / max(squares / max(total, 1.0), 1.0), 1.0)
