"""A discrete-event simulation of a cluster that learns from a stream: queues with measured service times, and a network.

A worker has one core and one minibatch at a time. A minibatch passes
    broker: fetch → core: decode, join, plan → shards: pull → core: learn, encode → shards: decode, push → acknowledged
and the network's latency precedes every step except those of the cores. Partitions are spread evenly over the brokers. All shards
get a part of every call at the same moment and have the same load, so the simulation has one for all, and one for all brokers.
Every few seconds the shards stop for the copy that they publish.
"""

import heapq
import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

VERSIONS = 3


class Cost(NamedTuple):
    """Seconds: for a call, and for every row."""

    call: float
    row: float

    def of(self, rows: float) -> float:
        return self.call + self.row * rows


class Costs(NamedTuple):
    """CPU seconds; rows are those of a minibatch, or, for publications, rows of the table."""

    events: Cost  # decoding and joining the events of a row
    plan: Cost
    learn: Cost
    encode: Cost
    pull: Cost  # at the shards, all together
    push: Cost  # at the shards, decoding included
    scan: Cost  # publication: looking for changes, for every row of the table
    copy: Cost  # publication: copying a changed row
    write: Cost  # publication: rounding and compressing a changed row, in another thread
    take: Cost  # a server: decoding a changed row, and taking it over
    score: Cost  # a server: scoring a candidate
    carry: float  # to carry one call, on either side
    bytes_row: float  # of a message; a pull is about as large
    bytes_event: float  # in the broker, for every row
    bytes_published: float  # for every changed row
    changed: float  # rows of the table that change with each row learned


class Network(NamedTuple):
    latency: float = 0.0002  # one way, seconds
    bandwidth: float = 1.25e9  # of a machine, bytes a second


class ClusterSize(NamedTuple):
    workers: int
    shards: int
    brokers: int
    rows: int  # of a minibatch
    features: int  # of the model
    every: float  # seconds between publications


class Outcome(NamedTuple):
    rows_per_second: float
    staleness: float  # messages applied between a pull and its push, on average
    cores: float  # share of the workers' cores that is busy
    shards: float  # the same of the shards
    brokers: float  # the same of the brokers' network
    pause: float  # seconds that a shard stops for a publication


class Queue:
    """One server, first come, first served."""

    def __init__(self) -> None:
        self.free, self.busy = 0.0, 0.0

    def serve(self, now: float, seconds: float) -> float:
        self.free = max(now, self.free) + seconds
        self.busy += seconds
        return self.free


def simulate(costs: Costs, network: Network, size: ClusterSize, minibatches: int) -> Outcome:
    """Run until `minibatches` are acknowledged, and some versions are published."""
    broker, shard, wire = Queue(), Queue(), Queue()
    workers, shards, rows = size.workers, size.shards, size.rows
    cores = [Queue() for _ in range(workers)]
    state = {"version": 0, "done": 0, "stale": 0, "published": 0}
    pauses = [0.0]
    pull, push = costs.carry + costs.pull.of(rows) / shards, costs.carry + costs.push.of(rows) / shards
    transfer = costs.bytes_row * rows / shards / network.bandwidth
    fetch = costs.bytes_event * rows / size.brokers / network.bandwidth

    def life(worker: int) -> Iterator[Callable[[float], float]]:
        """The steps of a worker: each takes the current time and yields that of the next."""
        core = cores[worker]
        while True:
            yield lambda now: broker.serve(now, fetch) + network.latency
            prepared = costs.carry * (1 + shards) + costs.events.of(rows) + costs.plan.of(rows)
            yield lambda now: core.serve(now, prepared) + network.latency  # noqa: B023
            yield lambda now: shard.serve(now, pull)
            version = state["version"]
            yield lambda now: wire.serve(now, transfer) + network.latency
            yield lambda now: core.serve(now, costs.carry * shards + costs.learn.of(rows) + costs.encode.of(rows)) + network.latency
            yield lambda now: wire.serve(now, transfer)
            yield lambda now: shard.serve(now, push) + network.latency
            state["stale"] += state["version"] - version
            state["version"] += 1
            state["done"] += 1
            yield lambda now: core.serve(now, costs.carry) + network.latency

    def publications() -> Iterator[Callable[[float], float]]:
        """The shards stop for the copy of a version, every few seconds."""
        while True:
            changed = min((state["done"] - state["published"]) * rows * costs.changed, size.features) / shards
            state["published"] = state["done"]
            pause = costs.scan.of(size.features / shards) + costs.copy.of(changed)
            pauses.append(pause)

            written = costs.write.of(changed)

            def stop(now: float, pause: float = pause, written: float = written) -> float:
                return max(shard.serve(now, pause) + written, now + size.every)  # one version after the other

            yield stop

    order = itertools.count()
    lives = [life(worker) for worker in range(workers)]
    events = [(0.0, next(order), one) for one in lives]
    heapq.heappush(events, (size.every, next(order), publications()))
    now = 0.0
    while state["done"] < minibatches or now < VERSIONS * size.every:
        now, _, one = heapq.heappop(events)
        heapq.heappush(events, (next(one)(now), next(order), one))
    return Outcome(
        state["done"] * rows / now, state["stale"] / state["done"], min(sum(core.busy for core in cores) / now / workers, 1.0),
        min(shard.busy / now, 1.0), min(broker.busy / now, 1.0), max(pauses),
    )  # fmt: skip
