"""The CPU seconds of every step of the online system, by the real code: events, learning, shards, publications, servers.

Learning is measured for minibatches of two sizes: a line through both gives the costs per call and per row.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

import pbodl
from benchmarks.online_cluster import DELAY, HERE, settings_of
from benchmarks.simulation import Cost, Costs
from benchmarks.workload import make_workload
from pbodl.data.batch import Batch
from pbodl.data.synthetic import World
from pbodl.models.deep_probit import DeepProbit
from pbodl.parallel.cluster.work_format import decode_pulled, encode_pulled
from pbodl.parallel.message import decode, encode
from pbodl.parallel.shard import Shard
from pbodl.parallel.worker import Worker, plan
from pbodl.publishing.delta import changes, mark, moved
from pbodl.publishing.model_folder import DELTA, FolderEntry, ModelFolder
from pbodl.publishing.publisher import Publisher
from pbodl.serving.models.follower import Follower
from pbodl.serving.scoring.predictor import Predictor
from pbodl.serving.scoring.request_encoding import Encoded
from pbodl.streaming.cluster.partition_learner import PartitionLearner
from pbodl.streaming.events import EventDecoder
from pbodl.streaming.replay import DelayedClicks
from pbodl.streaming.stream_learner import StreamOptions

SIZES = (256, 1024)
LAPS = 40
EVENT_ROWS, PUBLISHED_ROWS, PUBLISHED_LAPS, CANDIDATES = 40_000, 10_000, 6, 1000


def measured(rows: int, carry: float) -> Costs:
    """The costs after `rows` rows; carrying a call costs `carry` on either side."""
    workload = make_workload(rows + (LAPS + 2) * sum(SIZES) + PUBLISHED_LAPS * PUBLISHED_ROWS)
    model = pbodl.FMMLP(workload.schema)
    model.learn(workload.batch.rows(0, rows))
    shard, worker = Shard(model), Worker(model, "worker")
    shard.predictive_variance = 0.15
    start, times, sizes = rows, {}, []
    for size in SIZES:
        for _ in range(LAPS):
            seconds, length = _lap(shard, worker, workload.batch.rows(start, start + size))
            start += size
            sizes.append((size, length))
            for name, value in seconds.items():
                times.setdefault((name, size), []).append(value)
    lines = {name: _line(name, times) for name, _ in times}
    per_row = statistics.median(length / size for size, length in sizes if size == SIZES[1])
    event, event_bytes = _events()
    scan, copy, write, take, published, changed = _publications(model, workload.batch, start)
    return Costs(
        Cost(0.0, event), lines["plan"], lines["learn"], lines["encode"], lines["pull"], lines["push"], scan, copy, write, take,
        _score(model, workload.batch), carry, per_row, event_bytes, published, changed,
    )  # fmt: skip


def _timed(seconds: dict[str, float], name: str, work: Callable[[], Any]) -> Any:
    began = time.thread_time()
    result = work()
    seconds[name] = seconds.get(name, 0.0) + time.thread_time() - began
    return result


def _lap(shard: Shard, worker: Worker, part: Batch) -> tuple[dict[str, float], int]:
    seconds: dict[str, float] = {}
    task = _timed(seconds, "plan", lambda: plan(part))
    answer = _timed(seconds, "pull", lambda: encode_pulled(shard.pull(task.keys), 0))
    pulled = _timed(seconds, "plan", lambda: decode_pulled(answer)[0])
    message, _ = _timed(seconds, "learn", lambda: worker.learn(task, [pulled], workers=2))
    content = _timed(seconds, "encode", lambda: encode(message))
    _timed(seconds, "push", lambda: shard.push(decode(content)))
    return seconds, len(content)


def _line(name: str, times: dict[tuple[str, int], list[float]]) -> Cost:
    small, large = (statistics.median(times[name, size]) for size in SIZES)
    row = max((large - small) / (SIZES[1] - SIZES[0]), 0.0)
    return Cost(max(small - row * SIZES[0], 0.0), row)


def _events() -> tuple[float, float]:
    """Seconds to decode and join the events of a row, and their bytes."""
    world = World(rows=EVENT_ROWS)
    config = settings_of(world, "fm-mlp")
    model = config.build()
    assert isinstance(model, DeepProbit)
    decoder, learner = EventDecoder(config.schema), PartitionLearner("p", config, model, StreamOptions(), HERE)
    events = [msgspec.json.encode(event) for event in DelayedClicks(world.schema, DELAY, 0).events(world.batches())]
    seconds = []
    for first in range(0, len(events), 5000):
        part = events[first : first + 5000]
        began = time.thread_time()
        learner.take(learner.screened(decoder.decode(part)), HERE)
        seconds.append((time.thread_time() - began) / len(part))
    return statistics.median(seconds) * len(events) / EVENT_ROWS, sum(map(len, events)) / EVENT_ROWS


def _publications(model: DeepProbit, batch: Batch, start: int) -> tuple[Cost, Cost, Cost, Cost, float, float]:
    """The costs of a delta: scan, copy, write, take; its bytes per changed row, and changed rows for a row learned."""
    with tempfile.TemporaryDirectory() as folder:
        publisher, follower = Publisher(model, folder, compact=True, full_every=1e9), Follower(folder)
        publisher.publish()
        follower.poll()
        laps: dict[str, list[float]] = {}
        for lap in range(PUBLISHED_LAPS):
            since = mark(model)
            began = time.thread_time()
            mark(model), changes(model, since)  # nothing has changed: only the look for changes
            scan = (time.thread_time() - began) / model.table.size
            model.learn(batch.rows(start + lap * PUBLISHED_ROWS, start + (lap + 1) * PUBLISHED_ROWS))
            if moved(model, since):  # the prior has followed the stream: the whole state is published
                publisher.publish()
                follower.poll()
                continue
            began = time.thread_time()
            write = publisher.begin(publisher.version + 1)
            begun = time.thread_time() - began
            began = time.thread_time()
            write()
            written = time.thread_time() - began
            began = time.thread_time()
            follower.poll()
            taken = time.thread_time() - began
            changed = len(changes(model, since)["delta.rows"])
            size = ModelFolder(folder).read(FolderEntry(publisher.version, DELTA)).arrays["compact"].nbytes
            for name, value in (
                ("scan", scan), ("copy", max(begun - scan * model.table.size, 0.0) / changed), ("write", written / changed),
                ("take", taken / changed), ("bytes", size / changed), ("changed", changed / PUBLISHED_ROWS),
            ):  # fmt: skip
                laps.setdefault(name, []).append(value)
    found = {name: statistics.median(values) for name, values in laps.items()}
    costs = (Cost(0.0, found[name]) for name in ("scan", "copy", "write", "take"))
    return (*costs, found["bytes"], found["changed"])  # type: ignore[return-value]


def _score(model: DeepProbit, batch: Batch) -> Cost:
    """Seconds to score one of many candidates whose keys are known."""
    predictor = Predictor.of(model)
    encoder = predictor.encoder
    fields = len(model.schema.fields)
    keys = batch.keys.reshape(-1, fields)
    own, shared = encoder.own_fields[: len(encoder.own)], encoder.shared_fields
    laps = []
    for lap in range(60):
        rows = keys[lap * CANDIDATES : (lap + 1) * CANDIDATES]
        user = Encoded(rows[:1, shared], np.ones((1, len(shared)), np.float32), shared, None)
        began = time.thread_time()
        predictor.score_encoded(user, encoder.from_keys(rows[:, own]))
        laps.append((time.thread_time() - began) / CANDIDATES)
    return Cost(0.0, statistics.median(laps[10:]))
