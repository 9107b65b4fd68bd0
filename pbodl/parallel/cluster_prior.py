"""The prior of a cluster follows the stream as that of a single model does (`models.adaptation`), at the same moments.

No shard has all rows of a field, but the evidence of their rows adds up. The coordinator asks all shards for it while no minibatch
is being learned, and sends the new prior as a message from a source of its own, as many times as a single model estimates it. Like
every message, it is logged, applied once, and recognised when it comes again.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from pbodl.models.adaptation import estimates
from pbodl.models.deep_probit import DeepProbit
from pbodl.parallel.merge import DEFAULT
from pbodl.parallel.message import Message, prior_message

SOURCE = "prior"


def adapts(model: DeepProbit, workers: int, merge: str) -> bool:
    """Whether the prior is adapted; not with plain addition, whose overshooting weights would widen it and overshoot even more."""
    return model.spec.adapt_prior and (workers == 1 or merge == DEFAULT)


def adapt_cluster(
    model: DeepProbit, evidence: Callable[[], Sequence[NDArray[np.float64]]], push: Callable[[Message], object], sent: int
) -> int:
    """Adapt the prior once; returns how many messages of the source "prior" there are now, `sent` of them before.

    model     the model of any shard
    evidence  asks all shards for their evidence
    push      sends a message to all shards
    """
    for prior in estimates(model, lambda: np.sum(evidence(), axis=0)):
        sent += 1
        variances = np.column_stack([prior.variance[:, :: model.spec.dim], prior.linear_variance])
        push(prior_message(SOURCE, sent, variances, prior.variance.shape[1] + int(model.spec.linear)))
    return sent
