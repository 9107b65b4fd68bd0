"""The traffic of `pbodl up --engine ray`: a generated world as impressions and late clicks, sent to a topic at a steady rate.

A file in the run folder counts the events that the broker has. A new start sends the rest; what was sent and not yet counted is
sent again, and the learner knows it by its ids.
"""

import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pbodl.experiments.live_training import Traffic
from pbodl.streaming.replay import DelayedClicks
from pbodl.streaming.sources.event_sink import Sink
from pbodl.system.atomic_files import write_file

COUNTED = "traffic.json"
DELAY = 60.0  # seconds, of the events' time, from an impression to its click, on average
STEP = 0.2  # seconds between two messages
Stopped = Callable[[float], bool]


def counted(folder: Path) -> tuple[int, int | None]:
    """How many events were sent, and how many rows the traffic has; None before its start."""
    try:
        told: dict[str, Any] = json.loads((folder / COUNTED).read_bytes())
    except FileNotFoundError:
        return 0, None
    return int(told["events"]), int(told["rows"])


def send_traffic(folder: Path, rows: int | None, rate: float, sink: Sink, stopped: Stopped) -> bool:
    """Send events until all are sent or `stopped(seconds)`, which waits, says so; returns whether all are sent.

    rows  of the traffic; None: as the run began, or the default
    """
    sent, begun = counted(folder)
    rows = begun or rows or Traffic().rows
    world = Traffic(rows=rows).world()
    events = DelayedClicks(world.schema, DELAY, world.seed).events(world.batches())
    next(itertools.islice(events, sent, sent), None)
    due, size = time.monotonic(), max(1, round(rate * STEP))
    while chunk := list(itertools.islice(events, size)):
        if stopped(max(0.0, due - time.monotonic())):
            return False
        sink.send(chunk)
        sent += len(chunk)
        write_file(folder / COUNTED, json.dumps({"events": sent, "rows": rows}).encode())
        due = max(due + len(chunk) / rate, time.monotonic() - 1.0)
    return True
