"""What each field is worth to a model, and how far its values have drifted from what the model learned, measured on a log.

Importance: the log loss when the values of one field are exchanged between the rows of a chunk at random, all else unchanged, minus
the log loss of the log as it is. Exchanging keeps the frequencies of the values and breaks what they say about the row. Two fields
that say the same each seem unimportant: the other one stands in.

Drift: the share of rows with a value that the model has never learned, and the population stability index of the values,
    PSI = Σ (q - p) log(q/p)
over the most frequent values that were learned and all others together; p is their share in what was learned, q in the log. As a
rule of thumb, below 0.1 is stable and above 0.25 is another population.

Intervals come from the bootstrap: every replicate weights the rows by Poisson(1), the same for all fields. The stability index of a
replicate has the noise of one more sampling in it, which only ever adds. So its interval is made of the replicates' distances from
their own mean.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pbodl.data.batch import Batch
from pbodl.data.log.log_reader import Chunk
from pbodl.errors import InputError
from pbodl.models.contract import Model
from pbodl.training.inspect.feature_weights import FeatureWeights, weights_of
from pbodl.training.stream_metrics import judged

REPLICATES = 200
INTERVAL = (2.5, 97.5)  # percent
BINS = 20  # values of a field that count for themselves
SEED = 0
Floats = NDArray[np.float64]


def field_importance(
    model: Model, chunks: Iterable[Chunk], rows: int = 100_000, progress: Callable[[int], None] = lambda rows: None
) -> dict[str, Any]:
    """Importance and drift of every field, on the first `rows` rows of a labelled log; `progress` gets the rows so far."""
    fields = model.schema.fields
    generator = np.random.default_rng(SEED)
    weights = weights_of(model)
    drift = None if weights is None else FieldDrift(weights, len(fields))
    losses = np.zeros((1 + REPLICATES, 1 + len(fields)))  # of the log, and of its replicates: as it is, and without each field
    counted = np.zeros(1 + REPLICATES)
    seen = 0
    for chunk in chunks:
        batch = chunk.batch.rows(0, rows - seen)
        assert batch.clicks is not None
        drawn = np.vstack([np.ones(len(batch)), generator.poisson(1.0, (REPLICATES, len(batch)))])
        order = generator.permutation(len(batch))
        exchanged = (_loss(model, with_exchanged(batch, index, order)) for index in range(len(fields)))
        losses += drawn @ np.column_stack([_loss(model, batch), *exchanged])
        counted += drawn.sum(axis=1)
        if drift is not None:
            drift.add(batch, drawn)
        seen += len(batch)
        progress(seen)
        if seen >= rows:
            break
    if not seen:
        raise InputError("the log has no rows to measure the fields on")
    means = losses / counted[:, None]
    lines = [
        {
            "field": field.name,
            "group": field.group,
            "log_loss": float(means[0, 1 + index]),
            "adds": float(means[0, 1 + index] - means[0, 0]),
            "adds_interval": _interval(means[1:, 1 + index] - means[1:, 0]),
            **({} if drift is None or field.is_scaled or field.length else drift.line(index)),  # a scaled number has one feature
        }
        for index, field in enumerate(fields)
    ]
    found = {"what": "fields", "model": model.kind, "rows": seen, "log_loss": float(means[0, 0])}
    return {**found, "fields": sorted(lines, key=lambda line: -line["adds"])}


def with_exchanged(batch: Batch, field: int, order: NDArray[np.int64]) -> Batch:
    """The batch with the features of one field moved between rows: row i gets those of row order[i]."""
    source = np.repeat(np.arange(len(batch)), np.diff(batch.indptr))
    moved = np.empty(len(batch), np.int64)
    moved[order] = np.arange(len(batch))
    target = np.where(batch.fields == field, moved[source], source)
    entries = np.lexsort((batch.fields, target))
    indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(target, minlength=len(batch)))])
    return batch._replace(keys=batch.keys[entries], values=batch.values[entries], fields=batch.fields[entries], indptr=indptr)


def _loss(model: Model, batch: Batch) -> Floats:
    """The log loss of each row."""
    assert batch.clicks is not None
    return judged(model.predict(batch).ctr, batch.clicks, np.ones(len(batch))).loss


class FieldDrift:
    """Counts the values of a log, by field, beside those that a model has learned."""

    def __init__(self, weights: FeatureWeights, n_fields: int) -> None:
        self._weights = weights
        # A bin for each frequent feature of a field, then one for its other features; those of all fields follow one another.
        self._bin_of_row = np.empty(len(weights.keys), np.int64)
        self._learned: list[Floats] = []
        self._first = [0]
        for index in range(n_fields):
            rows = np.flatnonzero(weights.fields == index)
            frequent = rows[np.argsort(-weights.counts[rows], kind="stable")[:BINS]]
            self._bin_of_row[rows] = self._first[-1] + len(frequent)
            self._bin_of_row[frequent] = self._first[-1] + np.arange(len(frequent))
            self._learned.append(np.append(weights.counts[frequent], weights.counts[rows].sum() - weights.counts[frequent].sum()))
            self._first.append(self._first[-1] + len(frequent) + 1)
        self._binned = np.zeros((1 + REPLICATES, self._first[-1]))
        self._new = np.zeros((1 + REPLICATES, n_fields))  # weight of rows with a new value
        self._rows = np.zeros((1 + REPLICATES, n_fields))  # and of all rows with a value

    def add(self, batch: Batch, drawn: Floats) -> None:
        """Count a batch; `drawn` holds the weights of its rows in the log itself and in every replicate."""
        rows = self._weights.rows(batch.keys)
        source = np.repeat(np.arange(len(batch)), np.diff(batch.indptr))
        others = np.array(self._first[1:])[batch.fields] - 1
        bins = np.where(rows >= 0, self._bin_of_row[rows] if len(self._bin_of_row) else 0, others)
        new = np.zeros((len(batch), self._new.shape[1]), bool)
        there = np.zeros_like(new)
        new[source[rows < 0], batch.fields[rows < 0]] = True
        there[source, batch.fields] = True
        self._new += drawn @ new
        self._rows += drawn @ there
        for replicate in range(len(drawn)):
            self._binned[replicate] += np.bincount(bins, drawn[replicate][source], minlength=self._binned.shape[1])

    def line(self, index: int) -> dict[str, Any]:
        """Share of new values and stability index of a field, with intervals."""
        share = self._new[:, index] / np.maximum(self._rows[:, index], 1.0)
        now = self._binned[:, self._first[index] : self._first[index + 1]]
        index_of = stability(self._learned[index], now)
        return {
            "new": float(share[0]),
            "new_interval": _interval(share[1:]),
            "stability": float(index_of[0]),
            "stability_interval": _interval(np.maximum(index_of[0] + index_of[1:] - index_of[1:].mean(), 0.0)),
        }


def stability(learned: Floats, now: Floats) -> Floats:
    """The population stability index of each row of `now` against `learned`; half a row is added to every bin, so none is empty.

    >>> stability(np.array([50.0, 50.0]), np.array([[500.0, 500.0], [900.0, 100.0]])).round(2)
    array([0.  , 0.88])
    """
    p = (learned + 0.5) / (learned + 0.5).sum()
    q = (now + 0.5) / (now + 0.5).sum(axis=1, keepdims=True)
    return ((q - p) * np.log(q / p)).sum(axis=1)


def _interval(replicates: Floats) -> list[float]:
    low, high = np.percentile(replicates, INTERVAL)
    return [float(low), float(high)]
