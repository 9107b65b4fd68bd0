"""Coordinator, slots and durable shards together, with and without murder; what Ray adds is tested in test_on_ray."""

import os

import numpy as np
import pytest

from pbodl.models.adaptation import FIRST, ROUNDS
from pbodl.parallel.cluster.coordinator import STALENESS, Coordinator, schedule_of, source_of
from pbodl.parallel.cluster.durable_shard import DurableShard, write_first
from pbodl.parallel.cluster.journal import Superseded
from pbodl.parallel.cluster.ledger import check
from pbodl.parallel.cluster.sharding import deal, empty_part, join
from pbodl.parallel.cluster.work_format import Done
from pbodl.parallel.message import encode
from pbodl.parallel.schedule import Schedule
from pbodl.parallel.shard import Shard
from pbodl.parallel.worker import Worker, plan
from pbodl.system.atomic_files import write_synced
from tests.parallel.crashing import Crashing
from tests.parallel.logs import differing, fm, log_loss, market_log, plain_log


def cluster(folder, slots, shards, risk=0.0, seed=0, rows=32):
    dispatcher = Crashing(fm(), slots, shards, folder, risk, seed)
    return dispatcher, Coordinator(dispatcher, schedule_of(slots, rows), slots, adapt=dispatcher.adapt)


def test_one_lane_is_sequential_training_bit_for_bit(tmp_path):
    batch, ref = plain_log(700), fm()
    ctr = ref.learn(batch)
    dispatcher, coordinator = cluster(tmp_path, slots=1, shards=1)
    comp = np.concatenate([coordinator.learn(batch.rows(start, start + 300)) for start in range(0, 700, 300)])
    np.testing.assert_array_equal(comp, ctr)
    assert differing(ref, dispatcher.hosts[0].shard.model) == []


def test_one_lane_adapts_the_prior_as_sequential_training_does(tmp_path):
    batch, ref = market_log(FIRST + 400), fm()
    ctr = ref.learn(batch)
    dispatcher, coordinator = cluster(tmp_path, slots=1, shards=1, rows=300)
    comp = np.concatenate([coordinator.learn(batch.rows(start, start + 5000)) for start in range(0, len(batch), 5000)])
    np.testing.assert_array_equal(comp, ctr)
    assert differing(ref, dispatcher.hosts[0].shard.model) == []


def test_the_prior_is_exchanged_once_whatever_is_killed(tmp_path):
    batch = market_log(FIRST + 200)
    dispatcher, coordinator = cluster(tmp_path, slots=3, shards=2, risk=0.1, rows=256)
    coordinator.learn(batch)
    dispatcher.adapt()  # once more, among murders: whatever was lost on the way was sent again
    shards = [host.shard for host in dispatcher.hosts]
    assert [shard.ledger["prior"].sequence for shard in shards] == [2 * ROUNDS] * 2
    assert np.array_equal(*(shard.model.row_prior.variance for shard in shards))
    for number, shard in enumerate(shards):
        dispatcher._restart(number)
        assert np.array_equal(dispatcher.hosts[number].shard.model.row_prior.variance, shard.model.row_prior.variance)
    assert check(coordinator.accounts, [shard.ledger for shard in shards], len(batch)).asdict()["sound"]


@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_killed_every_row_counts_once(tmp_path, seed):
    batch = market_log(3000, seed)
    dispatcher, coordinator = cluster(tmp_path, slots=3, shards=2, risk=0.03, seed=seed)
    ctr = coordinator.learn(batch)
    assert min(dispatcher.killed.values()) > 3
    shards: list[Shard] = [host.shard for host in dispatcher.hosts]
    ledger = check(coordinator.accounts, [shard.ledger for shard in shards], len(batch))
    assert ledger.asdict()["sound"]
    model = join(shards)
    assert model.rows_learned == len(batch)
    # Beside the ledger: every feature of every row is counted in its own row of the table, once.
    keys, counts = np.unique(batch.keys, return_counts=True)
    np.testing.assert_array_equal(model.table.count[model.table.find(keys)], counts)
    assert coordinator.lost_predictions == np.isnan(ctr).sum() > 0
    quiet = cluster(tmp_path / "quiet", slots=3, shards=2)[1].learn(batch)
    known = ~np.isnan(ctr)
    kept = batch.rows(0, 0)._replace(clicks=batch.clicks[known])
    assert abs(log_loss(kept, ctr[known]) - log_loss(kept, quiet[known])) < 0.01


def test_a_restarted_shard_has_every_bit_of_the_one_before(tmp_path):
    dispatcher, coordinator = cluster(tmp_path, slots=2, shards=2)
    coordinator.learn(market_log(2000))
    for number, host in enumerate(dispatcher.hosts):
        before = host.shard.state()
        dispatcher._restart(number)
        after = dispatcher.hosts[number].shard.state()
        assert [name for name in before if not np.array_equal(before[name], after[name])] == []
        assert dispatcher.hosts[number].replayed > 0


def test_a_shard_that_was_taken_for_dead_applies_nothing_more(tmp_path):
    dispatcher, coordinator = cluster(tmp_path, slots=1, shards=1)
    coordinator.learn(market_log(500))
    zombie = dispatcher.hosts[0]
    successor = dispatcher.hosts[0] = dispatcher._host(0)
    before = zombie.shard.state()
    assert all(np.array_equal(before[name], array) for name, array in successor.shard.state().items())
    task = plan(market_log(32, seed=1))
    worker = Worker(fm(), source_of(0))
    worker.sequence = coordinator.accounts[source_of(0)].sequence
    content = encode(worker.learn(task, [successor.shard.pull(task.keys)])[0])
    with pytest.raises(Superseded):
        zombie.push(content)
    assert all(np.array_equal(before[name], array) for name, array in zombie.shard.state().items())
    successor.push(content)
    dispatcher._restart(0)
    assert dispatcher.hosts[0].shard.model.rows_learned == 532


def test_a_long_log_becomes_a_snapshot(tmp_path, monkeypatch):
    monkeypatch.setattr("pbodl.parallel.cluster.durable_shard.LOG_BYTES", 20_000)
    dispatcher, coordinator = cluster(tmp_path, slots=1, shards=1)
    host, log = dispatcher.hosts[0], plain_log(2000)
    for start in range(0, 2000, 100):
        coordinator.learn(log.rows(start, start + 100))
        if host._compacting is not None:
            host._compacting.join()
    assert host.journal.number > 2 and host.journal.size <= max(20_000, 2 * host.journal.state_size) + 20_000
    before = host.shard.state()
    dispatcher._restart(0)
    assert dispatcher.hosts[0].replayed < 2000 / 32
    assert all(np.array_equal(before[name], array) for name, array in dispatcher.hosts[0].shard.state().items())


class Slow:
    """A dispatcher whose first work never ends while there is other work; notes how much is under way."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.most = 0
        self.behind = 0

    def send(self, slot, work):
        self.sent.append(len(work.batch))
        return len(self.sent) - 1

    def wait(self, tickets):
        self.most = max(self.most, len(tickets))
        self.behind = max(self.behind, len(self.sent) - 1 - min(tickets))
        ticket = max(tickets)
        return ticket, Done(np.full(self.sent[ticket], 0.5), 0.1, 0)


def test_what_is_under_way_and_how_old_it_is_are_bounded():
    dispatcher = Slow()
    coordinator = Coordinator(dispatcher, Schedule(4, 10), slots=4, seen=1_000_000)
    ctr = coordinator.learn(plain_log(3000))
    assert sum(dispatcher.sent) == 3000 == coordinator.seen - 1_000_000 and (ctr == 0.5).all()
    assert dispatcher.most == 4
    assert dispatcher.behind == STALENESS * 4 - 1
    assert sum(account.rows for account in coordinator.accounts.values()) == 3000


def test_a_full_disk_under_the_journal_loses_and_doubles_nothing(tmp_path, monkeypatch):
    """The message is refused, the shard stays as it was, and the same message is applied once there is room."""
    model = fm()
    write_first(deal(model, 1)[0], tmp_path / "0")
    shard = DurableShard(empty_part(model, 1), 0, tmp_path / "0")
    worker, batch = Worker(model, "w"), plain_log(60)
    task = plan(batch)
    message, _ = worker.learn(task, [shard.shard.pull(task.keys)], 1)
    write, room = os.write, [40]

    def full(descriptor: int, content) -> int:
        if len(content) > room[0]:
            raise OSError(28, "No space left on device")
        return write(descriptor, content)

    monkeypatch.setattr("pbodl.parallel.cluster.journal.os.write", full)
    for _ in range(2):
        with pytest.raises(OSError, match="No space left"):
            shard.push(encode(message))
    assert shard.shard.model.rows_learned == 0
    room[0] = 1 << 30
    shard.push(encode(message))
    shard.push(encode(message))
    after = DurableShard(empty_part(model, 1), 0, tmp_path / "0")  # as if it had been killed
    for one in (shard, after):
        assert (one.shard.model.rows_learned, int(one.shard.model.table.count.sum())) == (60, len(batch.keys))


def test_a_shard_that_restarts_on_a_full_disk_waits_for_room(tmp_path, monkeypatch):
    """A process that failed while it starts would not be started again, and the run would end."""
    monkeypatch.setattr("pbodl.system.patience.AGAIN", 0.0)
    model = fm()
    write_first(deal(model, 1)[0], tmp_path / "0")
    shard = DurableShard(empty_part(model, 1), 0, tmp_path / "0")
    task = plan(plain_log(60))
    message, _ = Worker(model, "w").learn(task, [shard.shard.pull(task.keys)], 1)
    shard.push(encode(message))
    failures = [3]

    def full(path, *pieces) -> None:
        if failures[0]:
            failures[0] -= 1
            path.write_bytes(b"".join(pieces)[:100])
            raise OSError(28, "No space left on device")
        write_synced(path, *pieces)

    monkeypatch.setattr("pbodl.parallel.cluster.journal.write_synced", full)
    for _ in range(2):
        after = DurableShard(empty_part(model, 1), 0, tmp_path / "0")
        assert failures == [0] and after.shard.model.rows_learned == 60
        failures[0] = 2
    after.push(encode(message))  # a repeat
    assert after.shard.model.rows_learned == 60
    assert not list((tmp_path / "0").glob("*.writing"))
