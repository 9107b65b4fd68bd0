"""Exploration: CTRs that give uncertain candidates a chance.

Thompson sampling draws one z for each candidate from N(mean, variance), and returns Φ(z). An upper confidence bound returns
Φ(mean + c √variance). Both are recalibrated like the CTR itself.
"""

import numpy as np

from pbodl.data.sampling import recalibrate
from pbodl.kernels.network import click_probability
from pbodl.serving.scoring.predictor import Scores

_ANY = np.random.default_rng()


def explored(scores: Scores, explore: str, kept: float, seed: int | None = None, c: float = 1.0) -> Scores:
    """The scores with explored CTRs; `kept` is the model's negative rate. The same seed gives the same draws."""
    if explore == "none":
        return scores
    deviation = np.sqrt(scores.variance)
    if explore == "thompson":
        generator = _ANY if seed is None else np.random.default_rng(seed)
        z = scores.mean + deviation * generator.standard_normal(len(deviation))
    else:
        z = scores.mean + c * deviation
    ctr = np.empty(len(z))
    click_probability(z, np.zeros(len(z)), ctr)
    return scores._replace(ctr=recalibrate(ctr, kept))
