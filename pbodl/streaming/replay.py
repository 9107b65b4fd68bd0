"""Sends a generated log as a live stream: impressions, and clicks some time later.

The log is the world of `pbodl data synth`; `DelayedClicks` turns rows into events in the order of their times.
"""

import heapq
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from pbodl.data.schema import Schema
from pbodl.data.synthetic import World
from pbodl.streaming.sources.event_sink import Sink

CHUNK = 2000  # events sent at a time


class DelayedClicks:
    """Turns rows into impressions, each followed by its click, if any, after a delay drawn from an exponential distribution.

    delay  mean delay, in seconds of the events' time
    seed   seed of the delays
    """

    def __init__(self, schema: Schema, delay: float, seed: int = 0) -> None:
        self._schema, self._delay, self._time = schema, delay, str(schema.time)
        self._draws = np.random.default_rng(seed)
        self._clicks: list[tuple[float, str]] = []  # (time, id), a heap
        self._number = 0

    def events(self, batches: Iterator[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
        """All events, in the order of their times."""
        schema = self._schema
        columns = schema.sources
        for batch in batches:
            delays = self._draws.exponential(self._delay, batch.num_rows)
            rows = batch.select([*dict.fromkeys([*columns, schema.label, self._time])]).to_pylist()
            for row, delay in zip(rows, delays.tolist(), strict=True):
                clicked, now = row.pop(schema.label), row[self._time]
                yield from self._due(now)
                self._number += 1
                name = f"{self._number:x}"
                if clicked:
                    heapq.heappush(self._clicks, (now + delay, name))
                yield {"event": "impression", "id": name, **row}
        yield from self._due(float("inf"))

    def _due(self, now: float) -> Iterator[dict[str, Any]]:
        while self._clicks and self._clicks[0][0] <= now:
            at, name = heapq.heappop(self._clicks)
            yield {"event": "click", "id": name, self._time: at}


def replay(world: World, sink: Sink, delay: float, speed: float | None = None) -> int:
    """Send a world's events, at `speed` times their own pace if it is given; returns how many."""
    began: tuple[float, float] | None = None
    sent, chunk = 0, list[dict[str, Any]]()
    for event in DelayedClicks(world.schema, delay, world.seed).events(world.batches()):
        left = 0.0
        if speed is not None:
            at = float(event[str(world.schema.time)])
            began = began or (time.monotonic(), at)
            left = began[0] + (at - began[1]) / speed - time.monotonic()
        if left > 0 or len(chunk) >= CHUNK:
            sink.send(chunk)
            sent, chunk = sent + len(chunk), []
            time.sleep(max(left, 0.0))
        chunk.append(event)
    sink.send(chunk)
    return sent + len(chunk)
