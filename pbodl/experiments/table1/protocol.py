"""The paper's protocol: train on all days but the last ones in one pass in time order, then test with the model frozen.

It also keeps the progressive figures: predict, then learn, over the whole stream, test days included.
"""

import hashlib
import itertools
import resource
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from pbodl.data.batch import Batch
from pbodl.data.log.log_reader import open_log
from pbodl.data.log.log_sources import find_sources, reading
from pbodl.data.schema import Field, Schema
from pbodl.errors import InputError
from pbodl.models.contract import Model
from pbodl.training.config import Config
from pbodl.training.run import learn_rows, new_model
from pbodl.training.stream_metrics import StreamMetrics
from pbodl.training.tracker import Tracker, plain

DAY = 86400.0
TUNED = 16384  # rows of a batch for tuning
KEPT = 100_000_000  # features that are kept in memory, at most; 16 bytes each


class SplitLog(NamedTuple):
    """A log, and the start of its test days."""

    paths: tuple[str, ...]
    rows: int
    train_rows: int
    first_day: float
    test_start: float
    checksum: str


class ModelOutcome(NamedTuple):
    """The outcome of one model."""

    facts: dict[str, Any]  # plain data, for JSON
    arrays: dict[str, NDArray]  # predictions and clicks of the test days


def survey(paths: Sequence[str], schema: Schema, test_days: int, progress: Callable[[int], None] = lambda rows: None) -> SplitLog:
    """Read the log's times once, to find its days and the number of training rows."""
    if schema.time is None:
        raise InputError("the experiment splits the log by days; name the schema's time column with time = '...'")
    narrow = msgspec.structs.replace(schema, fields=(Field("day", derive="hour_of_day"),), weight=None)
    counts: dict[float, int] = {}
    rows = 0
    with open_log(paths, narrow) as reader:
        for chunk in reader:
            found, n = np.unique(np.floor(chunk.batch.times / DAY), return_counts=True)
            for day, count in zip(found.tolist(), n.tolist(), strict=True):
                counts[day] = counts.get(day, 0) + count
            rows += len(chunk.batch)
            progress(rows)
    days = sorted(counts)
    if len(days) <= test_days:
        raise InputError(f"the log has {len(days)} day(s); testing on the last {test_days} leaves none to train on")
    start = days[-test_days]
    train_rows = sum(count for day, count in counts.items() if day < start)
    return SplitLog(tuple(paths), rows, train_rows, days[0] * DAY, start * DAY, _checksum(paths))


class LogRows:
    """The rows of a log, in batches, for one model after the other: parsed once and kept, or, of a large log, parsed each time."""

    def __init__(self, log: SplitLog, schema: Schema, most: int = KEPT) -> None:
        self._paths, self._schema, self._kept = log.paths, schema, list[Batch]()
        self._whole = False  # all are kept
        self._fits = log.rows * len(schema.fields) <= most

    def __iter__(self) -> Iterator[Batch]:
        if self._whole:
            yield from self._kept
            return
        self._kept.clear()
        with open_log(self._paths, self._schema) as reader:
            for chunk in reader:
                if self._fits:
                    self._kept.append(chunk.batch)
                yield chunk.batch
        self._whole = self._fits


def run_model(
    config: Config, log: SplitLog, batches: Iterable[Batch], progress: Callable[[int, str], None] = lambda rows, text: None
) -> ModelOutcome:
    """Train and test one model on the rows of the log."""
    tracker = Tracker(config.schema, config.training.period(config.schema))
    test = StreamMetrics()
    predictions: list[NDArray] = []
    clicks: list[NDArray] = []
    model: Model | None = None
    frozen: Model | None = None
    seconds = {"train": 0.0, "test": 0.0}
    rows = 0
    for part in batches:
        model = model or new_model(config, part)
        for batch, testing in _split(part, log.test_start):
            began = time.perf_counter()
            if testing:
                assert batch.clicks is not None
                frozen = frozen or copy_of(model)
                predicted = frozen.predict(batch).ctr
                seconds["test"] += time.perf_counter() - began
                test.add(predicted, batch.clicks)
                predictions.append(predicted.astype(np.float32))
                clicks.append(batch.clicks.astype(np.uint8))
                began = time.perf_counter()
            tracker.add(*learn_rows(model, batch, rows))
            rows += len(batch)
            if not testing:
                seconds["train"] += time.perf_counter() - began
        progress(rows, f"AUC {tracker.overall().auc:.4f}  log loss {tracker.overall().log_loss:.4f}")
    assert model is not None
    facts = {
        "test": plain(test.figures()),
        "progressive": tracker.summary(),
        "curve": tracker.curve(),
        "seconds": seconds,
        "rows_per_second": log.train_rows / max(seconds["train"], 1e-9),
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "counters": model.metrics(),
    }
    return ModelOutcome(facts, {"predicted": np.concatenate(predictions), "clicks": np.concatenate(clicks)})


def first_batches(batches: Iterable[Batch], log: SplitLog, rows: int) -> list[Batch]:
    """The first rows of the training days, for tuning."""
    first: list[Batch] = []
    left = min(rows, log.train_rows)
    for part in batches:
        for batch, testing in _split(part, log.test_start):
            end = 0 if testing else min(left, len(batch))
            first += [batch.rows(start, min(start + TUNED, end)) for start in range(0, end, TUNED)]
            left -= end
        if left <= 0:
            break
    return first


def copy_of(model: Model) -> Model:
    """An independent model with the same state."""
    copy = type(model).from_spec(model.schema, model.spec)
    copy.load_state(model.state())
    return copy


def _split(batch: Batch, test_start: float) -> list[tuple[Batch, bool]]:
    """The batch, split where the test days begin; logs are in time order except for stragglers, which keep their positions."""
    testing = batch.times >= test_start
    if testing.all() or not testing.any():
        return [(batch, bool(testing.all()))]
    edges = [0, *(np.flatnonzero(np.diff(testing)) + 1).tolist(), len(batch)]
    return [(batch.rows(a, b), bool(testing[a])) for a, b in itertools.pairwise(edges)]


def _checksum(paths: Sequence[str]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for source in find_sources(paths):
        with reading(source.name), source.filesystem.open_input_stream(source.path, compression=None) as stream:
            while block := stream.read(1 << 22):
                digest.update(block)
    return digest.hexdigest()
