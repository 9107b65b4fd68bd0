"""A discrete-event simulation of a training cluster: queues with measured service times, and a network between them.

Every worker has one core and two minibatches in flight. A minibatch passes
    reader (one queue) → core: plan → shards: pull → core: learn, encode → shards: decode, push → acknowledged
and the network's latency precedes every step except those of the cores. All shards get a part of every call at the same moment and
have the same load, so the simulation has one for all.
"""

import heapq
import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

DEPTH = 2


class Cost(NamedTuple):
    """Seconds: for a call, and for every row of a minibatch."""

    call: float
    row: float

    def of(self, rows: float) -> float:
        return self.call + self.row * rows


class Costs(NamedTuple):
    read: Cost  # reading, hashing, handing out
    plan: Cost
    learn: Cost
    encode: Cost
    pull: Cost  # at the shards, all together
    push: Cost  # at the shards, decoding included
    carry: float  # CPU seconds to carry one call, on either side
    bytes_row: float  # of a message; a pull is about as large


class Network(NamedTuple):
    latency: float = 0.0002  # one way, seconds
    bandwidth: float = 1.25e9  # of a shard's machine, bytes a second


class Outcome(NamedTuple):
    rows_per_second: float
    staleness: float  # messages applied between a pull and its push, on average
    cores: float  # share of the workers' cores that is busy
    shards: float  # the same of the shards
    reader: float


class Queue:
    """One server, first come, first served."""

    def __init__(self) -> None:
        self.free, self.busy = 0.0, 0.0

    def serve(self, now: float, seconds: float) -> float:
        self.free = max(now, self.free) + seconds
        self.busy += seconds
        return self.free


def simulate(costs: Costs, network: Network, workers: int, shards: int, rows: int, minibatches: int) -> Outcome:
    """Run until `minibatches` are acknowledged."""
    reader, shard, wire = Queue(), Queue(), Queue()
    cores = [Queue() for _ in range(workers)]
    state = {"version": 0, "done": 0, "stale": 0}
    pull, push = costs.carry + costs.pull.of(rows) / shards, costs.carry + costs.push.of(rows) / shards
    transfer = costs.bytes_row * rows / shards / network.bandwidth

    def life(worker: int) -> Iterator[Callable[[float], float]]:
        """The steps of one of a worker's two minibatches: each takes the current time and yields that of the next."""
        core = cores[worker]
        while True:
            yield lambda now: reader.serve(now, costs.carry + costs.read.of(rows)) + network.latency
            yield lambda now: core.serve(now, costs.carry * (1 + shards) + costs.plan.of(rows)) + network.latency
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

    order = itertools.count()
    lives = [life(worker) for worker in range(workers) for _ in range(DEPTH)]
    events = [(0.0, next(order), one) for one in lives]
    now = 0.0
    while state["done"] < minibatches:
        now, _, one = heapq.heappop(events)
        heapq.heappush(events, (next(one)(now), next(order), one))
    return Outcome(
        state["done"] * rows / now, state["stale"] / state["done"], min(sum(core.busy for core in cores) / now / workers, 1.0),
        min(shard.busy / now, 1.0), min(reader.busy / now, 1.0),
    )  # fmt: skip
