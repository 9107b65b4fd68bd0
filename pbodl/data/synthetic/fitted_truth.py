"""A known truth in the likeness of a log: log-odds that are a sum of one table per field and one per strong pair of fields.

Letters: η the log-odds of a click, y the click, p = 1/(1 + e^-η); e the effect of one value, with the prior N(0, τ²).
    e += (Σ (y - p) - e/τ²) / (Σ p (1 - p) + 1/τ²)          sums over the samples with the value; Newton's step, field by field

A pair of fields is strong if its own table would add more to the likelihood than chance does. To first order, a table gains
Σ G²/(2 (H + 1/τ²)) with G = Σ (y - p) and H = Σ p (1 - p) of each cell, and chance gives Σ H/(2 (H + 1/τ²)) of that.

The effects are shrunk, so the truth is a little tamer than the log. That is no loss here: it need not be the log's own truth, only
one that a log of this kind could have.
"""

import itertools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl.data.batch import Batch

VARIANCE = 0.3  # τ², of single values and of cells of a pair
ROUNDS = 6
JUDGED = 200_000  # rows by which pairs are judged
SEED = np.uint64(0x9E3779B97F4A7C15)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Keys = NDArray[np.uint64]
Part = tuple[Ints, Keys]  # the samples and the keys of a field's entries


class ValueEffects(NamedTuple):
    """The effects of values, by key; a key that is not there has none."""

    keys: Keys  # in order
    effect: Floats

    def of(self, keys: Keys) -> Floats:
        """The effect of each key."""
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[at] == keys, self.effect[at], 0.0)


class FittedTruth(NamedTuple):
    """Log-odds of any sample of a schema."""

    n_fields: int
    level: float
    fields: list[tuple[int, ValueEffects]]
    pairs: list[tuple[int, int, ValueEffects]]

    def log_odds(self, batch: Batch) -> Floats:
        """η of every sample."""
        parts = _parts(batch, self.n_fields)
        eta = np.full(len(batch), self.level)
        for field, effects in self.fields:
            sample, keys = parts[field]
            eta += np.bincount(sample, effects.of(keys), len(batch))
        for f, g, effects in self.pairs:
            eta += effects.of(_crossed(parts[f][1], parts[g][1]))
        return eta


def fit_truth(batch: Batch, fields: int, pairs: int) -> FittedTruth:
    """Fit tables of all fields, and of up to `pairs` pairs of fields that have one value in each sample."""
    assert batch.clicks is not None
    clicks, parts = batch.clicks.astype(np.float64), _parts(batch, fields)
    share = min(max(clicks.mean(), 1e-6), 1.0 - 1e-6)
    level = float(np.log(share / (1.0 - share)))
    tables = [(field, *np.unique(parts[field][1], return_inverse=True)) for field in range(fields) if len(parts[field][1])]
    sums = [(parts[field][0], codes) for field, _, codes in tables]
    effects = [np.zeros(len(keys)) for _, keys, _ in tables]
    eta = _fit(clicks, np.full(len(clicks), level), sums, effects)
    single = [field for field in range(fields) if len(parts[field][0]) == len(batch)]
    found = _strongest(clicks, eta, parts, single, pairs)
    crosses = [(f, g, *np.unique(_crossed(parts[f][1], parts[g][1]), return_inverse=True)) for f, g in found]
    cells = [np.zeros(len(keys)) for _, _, keys, _ in crosses]
    everyone = np.arange(len(batch))
    _fit(clicks, eta, [*sums, *((everyone, codes) for *_, codes in crosses)], [*effects, *cells])
    return FittedTruth(
        fields,
        level,
        [(field, ValueEffects(keys, effect)) for (field, keys, _), effect in zip(tables, effects, strict=True)],
        [(f, g, ValueEffects(keys, effect)) for (f, g, keys, _), effect in zip(crosses, cells, strict=True)],
    )


def strongest_pairs(batch: Batch, fields: int, most: int) -> list[tuple[int, int]]:
    """Up to `most` pairs of fields that tell more together than each by itself, the strongest first."""
    assert batch.clicks is not None
    truth, parts = fit_truth(batch, fields, 0), _parts(batch, fields)
    single = [field for field in range(fields) if len(parts[field][0]) == len(batch)]
    return _strongest(batch.clicks.astype(np.float64), truth.log_odds(batch), parts, single, most)


def probability(eta: Floats) -> Floats:
    """1/(1 + e^-η)."""
    return 1.0 / (1.0 + np.exp(-np.clip(eta, -30.0, 30.0)))


def _parts(batch: Batch, fields: int) -> list[Part]:
    """The entries of each field."""
    sample = np.repeat(np.arange(len(batch)), np.diff(batch.indptr))
    order = np.argsort(batch.fields, kind="stable")
    edges = np.searchsorted(batch.fields[order], np.arange(fields + 1))
    return [(sample[order[a:b]], batch.keys[order[a:b]]) for a, b in itertools.pairwise(edges)]


def _crossed(left: Keys, right: Keys) -> Keys:
    """One key for each pair of keys."""
    return (left ^ SEED) * SEED + right


def _fit(clicks: Floats, eta: Floats, sums: list[tuple[Ints, Ints]], effects: list[Floats]) -> Floats:
    """Newton's steps, table by table, in a few rounds; returns the log-odds at the end. MODIFIES: effects."""
    eta = eta.copy()
    for _ in range(ROUNDS):
        for (sample, codes), effect in zip(sums, effects, strict=True):
            slope, curve = _derivatives(clicks, eta, sample, codes, len(effect))
            step = (slope - effect / VARIANCE) / (curve + 1.0 / VARIANCE)
            effect += step
            eta += np.bincount(sample, step[codes], len(clicks))
    return eta


def _derivatives(clicks: Floats, eta: Floats, sample: Ints, codes: Ints, cells: int) -> tuple[Floats, Floats]:
    """G and H of every cell."""
    p = probability(eta)[sample]
    slope: Floats = np.bincount(codes, clicks[sample] - p, cells).astype(np.float64)
    curve: Floats = np.bincount(codes, p * (1.0 - p), cells).astype(np.float64)
    return slope, curve


def _strongest(clicks: Floats, eta: Floats, parts: list[Part], single: list[int], most: int) -> list[tuple[int, int]]:
    """The pairs of these fields whose tables would gain the most, if they gain anything beyond chance."""
    gains, rows = [], np.arange(min(len(clicks), JUDGED))
    for f, g in itertools.combinations(single, 2):
        keys, codes = np.unique(_crossed(parts[f][1][rows], parts[g][1][rows]), return_inverse=True)
        slope, curve = _derivatives(clicks, eta, rows, codes, len(keys))
        gain = ((slope**2 - curve) / (2.0 * (curve + 1.0 / VARIANCE))).sum()
        gains.append((float(gain), f, g))
    return [(f, g) for gain, f, g in sorted(gains, reverse=True)[:most] if gain > 0.0]
