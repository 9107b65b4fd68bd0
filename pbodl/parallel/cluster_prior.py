"""The prior of a cluster follows the stream as that of one model does (`models.adaptation`), at the same moments.

No shard has all rows of a field, but what their rows say about the prior adds up. Whoever leads the shards asks all of them when
nothing is under way, and sends the prior that they are to take as a message of a source of its own: it is written down, applied
once and recognised as every other.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pbodl.models.adaptation import estimated
from pbodl.models.deep_probit import DeepProbit
from pbodl.parallel.merge import DEFAULT
from pbodl.parallel.message import Message, prior_message

SOURCE = "prior"


def adapts(model: DeepProbit, workers: int, merge: str) -> bool:
    """Whether the prior is adapted: not under plain addition, whose overshooting weights would widen it, and overshoot the more."""
    return model.spec.adapt_prior and (workers == 1 or merge == DEFAULT)


def take_prior(model: DeepProbit, evidence: Sequence[NDArray[np.float64]], sequence: int) -> Message:
    """Message number `sequence` of the source "prior", by the evidence of all shards; `model` is one of their kind."""
    prior = estimated(model, np.sum(evidence, axis=0))
    variances = np.column_stack([prior.variance[:, :: model.spec.dim], prior.linear_variance])
    return prior_message(SOURCE, sequence, variances, prior.variance.shape[1] + int(model.spec.linear))
