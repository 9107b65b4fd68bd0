"""The paper's protocol: train on all days but the last ones in one pass in time order, then test with the model frozen.

It also keeps the progressive figures: predict, then learn, over the whole stream, test days included.
"""

import hashlib
import itertools
import resource
import time
from collections.abc import Callable, Sequence
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


def run_model(config: Config, log: SplitLog, progress: Callable[[int, str], None] = lambda rows, text: None) -> ModelOutcome:
    """Train and test one model."""
    tracker = Tracker(config.schema, config.training.period(config.schema))
    test = StreamMetrics()
    predictions: list[NDArray] = []
    clicks: list[NDArray] = []
    model: Model | None = None
    frozen: Model | None = None
    seconds = {"train": 0.0, "test": 0.0}
    rows = 0
    with open_log(log.paths, config.schema) as reader:
        for chunk in reader:
            model = model or new_model(config, chunk.batch)
            for batch, testing in _split(chunk.batch, log.test_start):
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


def first_batches(config: Config, log: SplitLog, rows: int) -> list[Batch]:
    """The first rows of the training days, for tuning."""
    batches: list[Batch] = []
    left = min(rows, log.train_rows)
    with open_log(log.paths, config.schema, batch_rows=16384) as reader:
        for chunk in reader:
            for batch, testing in _split(chunk.batch, log.test_start):
                if not testing and left > 0:
                    batches.append(batch.rows(0, left))
                    left -= len(batches[-1])
            if left <= 0:
                break
    return batches


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
