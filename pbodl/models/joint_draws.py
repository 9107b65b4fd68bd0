"""CTRs under draws of the weights: what `Model.sample` returns.

A model draws z for all rows of a batch under the same weights (`Model._draw`); everything else is here. A draw becomes the CTR
Φ(z). `spread` scales the deviation of z from its mean m. With a spread below 1, the variance that is left out stays in the CTR,
    Φ((m + spread (z - m))/√(1 + (1 - spread²) v))
so that the average of the draws is the predicted CTR whatever the spread is, and at 0 every draw is that CTR. A model whose
reported variance is `doubt` times that of its weights has the deviations of its draws multiplied by √doubt.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pbodl.data.batch import Batch
from pbodl.data.hashing import wrapping
from pbodl.data.sampling import recalibrate
from pbodl.kernels.draws import draw_seed
from pbodl.kernels.network import click_probability
from pbodl.models.parameter_checks import check_number, check_whole

if TYPE_CHECKING:
    from pbodl.models.contract import Model

MOST_DRAWS, LARGEST_SEED = 100_000, 2**63 - 1


def draw_seeds(seed: int, draws: int) -> NDArray[np.uint64]:
    """The seeds of draws 0, 1, 2, ..."""
    with wrapping():
        return np.array([draw_seed(np.uint64(seed), np.uint64(draw)) for draw in range(draws)], np.uint64)


def spread_out(
    mean: NDArray[np.float64],
    variance: NDArray[np.float64],
    z: NDArray[np.float64],
    spread: float,
    doubt: float,
    ctr: NDArray[np.float64],
) -> None:
    """The CTRs of a draw, not yet recalibrated. MODIFIES: ctr, which may be z."""
    left, factor = max(1.0 - spread**2, 0.0) * variance, spread * doubt**0.5
    click_probability(z if factor == 1.0 else mean + factor * (z - mean), left, ctr)


def sampled_ctr(model: "Model", batches: Iterable[Batch], draws: int, seed: int, spread: float) -> NDArray[np.float64]:
    """CTRs of all rows under each draw, (draws, rows)."""
    check_whole("draws", draws, 1, MOST_DRAWS)
    check_whole("seed", seed, 0, LARGEST_SEED)
    check_number("spread", spread, least=0.0, most=100.0)
    seeds, parts = draw_seeds(seed, draws), [np.zeros((draws, 0))]
    for batch in batches:
        z, (_, mean, variance) = model._draw(batch, seeds), model._predict(batch)
        for line in z:
            spread_out(mean, variance, line, spread, model.doubt, line)
        parts.append(z)
    return recalibrate(np.concatenate(parts, axis=1), model.negative_rate)
