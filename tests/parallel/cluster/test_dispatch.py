"""Minibatches over sockets, in several threads: connections break before and after a call, and every row counts once."""

import contextlib
import random
import threading

import numpy as np
import pytest

from pbodl.errors import InputError
from pbodl.parallel.cluster.coordinator import Coordinator, source_of
from pbodl.parallel.cluster.dispatch import SocketDispatcher
from pbodl.parallel.cluster.durable_shard import DurableShard, write_first
from pbodl.parallel.cluster.journal import Superseded
from pbodl.parallel.cluster.ledger import check
from pbodl.parallel.cluster.remote_calls import TOKEN, CallClients, CallServer
from pbodl.parallel.cluster.sharding import deal, empty_part, join
from pbodl.parallel.cluster.work_format import decode_work, encode_done
from pbodl.parallel.cluster.worker_slot import DEPTH, WorkerSlot
from pbodl.parallel.schedule import Schedule
from tests.parallel.logs import fm, market_log, plain_log

SECRET = bytes(TOKEN)
SLOTS, SHARDS = 2, 2


def open_server(**methods) -> CallServer:
    return CallServer(methods, "127.0.0.1", SECRET)


class Breaking:
    """Makes a method hang up on its caller with probability `risk`, before or after it did what it was asked."""

    def __init__(self, risk: float) -> None:
        self._risk, self._chance, self.broken = risk, random.Random(0), 0

    def __call__(self, method, lock):
        def broken(*given):
            if self._chance.random() < self._risk:
                self.broken += 1
                raise Superseded
            with lock:
                answer = method(*given)
            if self._chance.random() < self._risk:
                self.broken += 1
                raise Superseded
            return answer

        return broken


@pytest.mark.parametrize("risk", [0.0, 0.05])
def test_broken_connections_lose_nothing_and_count_nothing_twice(tmp_path, monkeypatch, risk):
    monkeypatch.setattr("pbodl.parallel.cluster.remote_calls.PAUSE", 0.0)
    breaking, model, batch = Breaking(risk), fm(), market_log(3000)
    shards = []
    for shard in deal(model, SHARDS):
        write_first(shard, tmp_path / str(shard.number))
        shards.append(DurableShard(empty_part(model, SHARDS), shard.number, tmp_path / str(shard.number)))
    locked = [(one, threading.Lock()) for one in shards]
    servers = [open_server(pull=breaking(one.pull, lock), push=breaking(one.push, lock)) for one, lock in locked]
    worker_servers = []
    for number in range(SLOTS):
        clients = CallClients(SHARDS, lambda shard: servers[shard].address, SECRET)
        slot = WorkerSlot(model, source_of(number), SHARDS, clients.ask)
        learn = lambda content, slot=slot: encode_done(slot.learn(decode_work(content)))  # noqa: E731
        worker_servers.append(open_server(learn=breaking(learn, contextlib.nullcontext())))
    dispatcher = SocketDispatcher(SLOTS, lambda number: worker_servers[number].address, SECRET)
    coordinator = Coordinator(dispatcher, Schedule(DEPTH * SLOTS, 32), SLOTS, seen=1_000_000)
    ctr = coordinator.learn(batch)
    dispatcher.close()
    assert (breaking.broken > 10) == (risk > 0)
    ledger = check(coordinator.accounts, [one.shard.ledger for one in shards], len(batch))
    assert ledger.asdict()["sound"]
    learned = join([one.shard for one in shards])
    keys, counts = np.unique(batch.keys, return_counts=True)
    np.testing.assert_array_equal(learned.table.count[learned.table.find(keys)], counts)
    assert coordinator.lost_predictions == np.isnan(ctr).sum() < len(batch) / 2
    assert risk or coordinator.lost_predictions == 0


def test_an_error_of_a_lane_ends_the_training():
    def learn(content):
        raise InputError("no room for it")

    server = open_server(learn=learn)
    dispatcher = SocketDispatcher(1, lambda _: server.address, SECRET)
    with pytest.raises(InputError, match="no room for it"):
        Coordinator(dispatcher, Schedule(1, 32), 1).learn(plain_log(40))
    dispatcher.close()
