"""How a model learns a batch: the one object that `model.learn_with` takes.

`Learning` itself is the default, one sample after the other. Subclasses learn otherwise: several threads
(`parallel.threads.learning_threads`), several passes or expectation propagation (`training.visits`), a worker of a cluster
(`parallel.worker`). The model keeps its table, its clock and its prior; a `Learning` only sees a batch whose features already have
rows.
"""

from typing import TYPE_CHECKING

from pbodl.data.table.feature_table import Spread, at_once
from pbodl.kernels.arguments import LabelledSamples, Network, NetworkWeights, Outputs
from pbodl.kernels.network import learn_batch

if TYPE_CHECKING:
    from pbodl.models.deep_probit import DeepProbit


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
