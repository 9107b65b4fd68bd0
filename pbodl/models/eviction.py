"""Bounded memory: stale rows close to their prior are dropped first, since they hardly differ from new ones; and times to live.

A row's score is the Kullback-Leibler divergence of its weights from those of a new row, halved for every mean age of all rows that
it has not been seen for. Decay (PBODL eq. 28) has already made stale rows forget.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pbodl._jit import jit
from pbodl.data.hashing import wrapping
from pbodl.data.table.feature_table import Table
from pbodl.kernels.layers.embedding import kept_share, means_decay, preview_weight, standard_draw
from pbodl.kernels.normal import ZERO

if TYPE_CHECKING:
    from pbodl.models.deep_probit import DeepProbit

SHARE = 1 / 8  # of the rows are dropped at a time: scanning the table costs the same for one


@jit
def _divergence(m, v, m_start, v_prior):
    """KL(N(m, v) || N(m_start, v_prior))."""
    ratio = np.float64(v / v_prior)
    return 0.5 * (ratio - 1.0 - np.log(ratio) + np.float64(m - m_start) ** 2 / v_prior)


@jit
def _knowledge(rows, keys, fields, now, prior, forgetting, score):
    """The divergence of every row from a new one. MODIFIES: score."""
    for r in range(len(keys)):
        v_linear = prior.linear_variance[fields[r]]
        kept = np.float32(1.0)
        if forgetting.half_life > 0.0:
            kept = kept_share(now - rows.last_seen[r], forgetting.half_life)
        total = 0.0
        for d in range(rows.mean.shape[1]):
            v_prior = prior.variance[fields[r], d]
            m, v = preview_weight(rows.mean[r, d], rows.variance[r, d], v_prior, kept, means_decay(prior, forgetting))
            total += _divergence(m, v, prior.initial_scale * standard_draw(prior.seed, keys[r], np.uint64(d)), v_prior)
        if len(rows.linear_mean) > 0:
            m, v = preview_weight(rows.linear_mean[r, 0], rows.linear_variance[r, 0], v_linear, kept, forgetting.also_mean)
            total += _divergence(m, v, ZERO, v_linear)
        score[r] = total


def row_scores(model: "DeepProbit", now: float) -> NDArray[np.float64]:
    """The score of each row; the lowest are dropped first."""
    table = model.table
    scores = np.empty(table.size)
    with wrapping():
        _knowledge(model.rows(), table.keys, table.field, now, model.row_prior, model.forgetting, scores)
    age = now - table.last_seen
    return scores * 0.5 ** (age / max(float(age.mean()), 1e-9))


def make_room(model: "DeepProbit", now: float) -> None:
    """Drop an eighth of a full table, lowest score first."""
    model.table.evict(row_scores(model, now), max(1, int(SHARE * model.table.size)))


def sweep(table: Table, before: float, clock: NDArray[np.float64]) -> int:
    """Drop rows past their time to live, eight times per time to live; returns how many samples to learn before the next sweep.

    Sweeps happen at fixed moments of the clock, so that a batch is swept exactly as its samples one by one.
    """
    if table.time_to_live is None:
        return len(clock)
    period = np.floor(clock / (SHARE * table.time_to_live))
    if period[0] > np.floor(before / (SHARE * table.time_to_live)):
        table.remove_older(clock[0] - table.time_to_live)
    return int(np.searchsorted(period, period[0], side="right"))
