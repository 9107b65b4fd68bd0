"""Events of a replay: every row an impression, every click after it, all in the order of their times."""

import numpy as np
import pyarrow as pa

from pbodl.data.schema import Field, Schema
from pbodl.data.synthetic import World
from pbodl.streaming.replay import CHUNK, DelayedClicks, replay

SCHEMA = Schema(label="click", time="time", fields=[Field("ad")])


class Kept:
    """A sink that keeps what it is sent."""

    def __init__(self):
        self.sent = []

    def send(self, events):
        self.sent.append(list(events))

    def close(self): ...


def test_clicks_follow_their_impressions_by_the_delay():
    n = 4000
    columns = {"ad": np.arange(n), "click": np.arange(n) % 2, "time": np.arange(n) / 10.0, "p_true": np.zeros(n)}
    table = pa.table(columns)
    events = list(DelayedClicks(SCHEMA, delay=30.0, seed=1).events(iter(table.to_batches(1000))))
    times = [event["time"] for event in events]
    assert times == sorted(times)
    shown = {event["id"]: event for event in events if event["event"] == "impression"}
    clicks = {event["id"]: event["time"] for event in events if event["event"] == "click"}
    assert len(shown) == n and all(set(event) == {"event", "id", "ad", "time"} for event in shown.values())
    assert sorted(clicks) == sorted(name for name, event in shown.items() if event["ad"] % 2)
    delays = np.array([at - shown[name]["time"] for name, at in clicks.items()])
    assert (delays >= 0).all()
    assert abs(delays.mean() - 30.0) < 5 * 30.0 / np.sqrt(len(delays))


def test_a_world_is_sent_whole_and_in_chunks():
    world, sink = World(rows=3000, seed=2), Kept()
    sent = replay(world, sink, delay=60.0)
    events = [event for chunk in sink.sent for event in chunk]
    assert sent == len(events) and max(map(len, sink.sent)) <= CHUNK
    assert sum(event["event"] == "impression" for event in events) == 3000


def test_at_a_high_speed_the_same_events_come():
    sinks = Kept(), Kept()
    for sink, speed in zip(sinks, (None, 1e9), strict=True):
        replay(World(rows=200, seed=2), sink, delay=60.0, speed=speed)
    first, second = ([event for chunk in sink.sent for event in chunk] for sink in sinks)
    assert first == second
