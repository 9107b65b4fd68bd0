"""Kafka brokers that die, groups that grow and shrink, topics that lose events: every event counts once, or the loss is told."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pbodl.streaming.sources.kafka_sink import KafkaSink
from pbodl.streaming.sources.kafka_topic import KafkaTopic
from tests.streaming.kafka_broker import KafkaBrokers, needs_kafka
from tests.streaming.sources.group_member import PATIENCE, Member, ids
from tests.streaming.sources.test_kafka_topic import FAST, names, opened, read_all, send
from tests.streaming.traffic import impression

pytestmark = [*needs_kafka, pytest.mark.slow]
PROTOCOLS = {
    "eager": f"{FAST}&partition.assignment.strategy=range",
    "cooperative": f"{FAST}&partition.assignment.strategy=cooperative-sticky",
    "of Kafka 4": "group.protocol=consumer",
}


class StoppedMember:
    """A member in a process of its own, which can be stopped."""

    def __init__(self, address: str) -> None:
        command = [sys.executable, "-m", "tests.streaming.sources.group_member", address]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout

    def tell(self, word: str) -> None:
        self._in.write(word + "\n")
        self._in.flush()

    def hear(self, what: str) -> Any:
        while line := self._out.readline():
            if what in (heard := json.loads(line)):
                return heard[what] if len(heard) == 1 else heard
        raise AssertionError(f"the member ended before it told: {what}")

    def stop(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def until(happened: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end, f"waited in vain for: {what}"
        time.sleep(0.05)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_groups_that_grow_and_shrink_learn_every_event_once(kafka: KafkaBrokers, protocol: str) -> None:
    name = f"group-{protocol.replace(' ', '-')}"
    plain = kafka.create(name, partitions=6)
    address = f"{plain}?group={name}&{PROTOCOLS[protocol]}"
    sink, sent = KafkaSink(plain, 1), 0

    def trickle(happened: Callable[[], bool], what: str) -> None:
        nonlocal sent
        end = time.monotonic() + PATIENCE
        while not happened():
            assert time.monotonic() < end, f"waited in vain for: {what}"
            sink.send([impression(f"i{n}", float(n)) for n in range(sent, sent + 20)])
            sent += 20
            time.sleep(0.05)

    first = Member(address)
    trickle(lambda: len(first.learned) > 100, "the first member")
    second = Member(address)
    trickle(lambda: len(second.learned) > 100, "the second member")
    third = Member(address)
    trickle(lambda: len(third.learned) > 100, "the third member")
    first.leave()
    known = len(second.learned) + len(third.learned)
    trickle(lambda: len(second.learned) + len(third.learned) > known + 300, "the two that stay")
    third.leave()
    members = (first, second, third)
    until(lambda: sum(len(member.learned) for member in members) >= sent, "the last to learn the rest")
    second.leave()
    sink.close()
    assert sorted(name for member in members for name in member.learned) == names(0, sent)
    assert first.losses > 0


@pytest.mark.parametrize("moment", ["before it saves", "while it writes"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_that_stands_still_until_others_have_its_partitions_does_not_count(
    kafka: KafkaBrokers, protocol: str, moment: str
) -> None:
    """It is stopped for longer than its session lasts, and saves at once when it goes on: the brokers refuse that."""
    name = f"still-{protocol}-{moment}".replace(" ", "-")
    plain = kafka.create(name, partitions=3)
    address = f"{plain}?group={name}&{PROTOCOLS[protocol]}"
    send(plain, 60)
    stopped = StoppedMember(address)
    others: list[Member] = []
    try:
        while stopped.hear("read") < 60:
            pass
        stopped.tell("save")
        assert stopped.hear("saved") == 60
        send(plain, 60, first=60)
        while stopped.hear("read") < 60:
            pass
        if moment == "while it writes":
            stopped.tell("save slowly")
            stopped.hear("writing")
        stopped.stop()
        others.append(Member(address))
        until(lambda: len(others[0].learned) >= 60, "another member to learn what the stopped one had not saved")
        stopped.tell("save")
        stopped.go_on()
        assert stopped.hear("saved") == 60
        send(plain, 60, first=120)
        stopped.tell("leave")
        told = stopped.hear("learned")
        assert told["losses"] > 0 and told["voids"] == (moment == "while it writes")
        until(lambda: len(told["learned"]) + len(others[0].learned) >= 180, "the other to learn the rest")
        others[0].leave()
        assert sorted(told["learned"] + others[0].learned) == names(0, 180)
    finally:
        stopped.kill()
        for other in others:
            other.leave()


def test_retention_by_time_is_a_gap(kafka: KafkaBrokers) -> None:
    address = kafka.create("retained", retention_ms=1000, segment_ms=200, segment_bytes=1 << 20)
    topic = opened(address, 20)
    start = topic.start("start")
    end = time.monotonic() + PATIENCE
    sent = 20
    # Kafka deletes whole segments; new events close the old one.
    while topic.start("start") == start:
        assert time.monotonic() < end
        send(address, 1, first=sent)
        sent += 1
        time.sleep(0.5)
    pack = topic.read(start, 1.0)
    assert "keep events longer (retention.ms)" in str(pack.gap)
    assert not topic.read(pack.position, 0.2).gap
    topic.close()


def test_a_compacted_topic_gives_what_is_left(kafka: KafkaBrokers) -> None:
    import confluent_kafka
    import msgspec

    address = kafka.create(
        "compacted", cleanup_policy="compact", segment_ms=200, min_cleanable_dirty_ratio=0.01, max_compaction_lag_ms=500
    )
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.servers(), "log_level": 0})

    def produce(first: int, stop: int) -> None:
        for n in range(first, stop):
            producer.produce("compacted", msgspec.msgpack.encode(impression(f"i{n}", float(n))), key=str(n % 5))
        producer.flush(30)

    produce(0, 100)
    count, end = 100, time.monotonic() + PATIENCE
    while True:
        assert time.monotonic() < end, "the broker never compacted the topic"
        time.sleep(0.5)
        produce(count, count + 1)
        count += 1
        topic = KafkaTopic(address)
        position, found = topic.start("start"), []
        while not topic.ended(position):
            pack = topic.read(position, 0.1)
            assert pack.gap is None
            found, position = found + ids(pack), pack.position
        topic.close()
        if len(found) < count:
            break
    assert found[-1] == f"i{count - 1}" and set(found) <= set(names(0, count))


def test_a_broker_that_is_killed_and_starts_again(tmp_path: Path) -> None:
    brokers = KafkaBrokers(tmp_path)
    try:
        address = brokers.create("killed", partitions=2)
        sent = 0
        for _ in range(3):
            send(address, 50, first=sent)
            sent += 50
            topic = KafkaTopic(address)
            found, position = read_all(topic, topic.start("start"), sent)
            assert sorted(found) == names(0, sent)
            brokers.kill()
            for _ in range(10):
                assert not topic.read(position, 0.1)
            brokers.start()
            send(address, 50, first=sent)
            rest, position = read_all(topic, position, 50)
            assert sorted(rest) == names(sent, sent + 50)
            sent += 50
            topic.close()
    finally:
        brokers.close()


@pytest.fixture
def three_brokers(tmp_path: Path) -> Iterator[KafkaBrokers]:
    brokers = KafkaBrokers(tmp_path, count=3)
    yield brokers
    brokers.close()


def test_three_brokers_of_which_one_dies(three_brokers: KafkaBrokers) -> None:
    address = three_brokers.create("three", partitions=6)
    send(address, 100)
    topic = KafkaTopic(address)
    found, position = read_all(topic, topic.start("start"), 100)
    sent, everything = 100, found
    for victim in (0, 1, 2):
        three_brokers.kill(victim)
        # Partitions of the dead broker get another leader; sending and reading wait for that, and lose nothing.
        send(address, 100, first=sent)
        sent += 100
        until_all = time.monotonic() + PATIENCE
        while len(everything) < sent and time.monotonic() < until_all:
            more, position = read_all(topic, position, sent - len(everything))
            everything += more
        assert sorted(everything) == names(0, sent)
        three_brokers.start(victim)
        time.sleep(5)  # to catch up with the others, so that the next may die
    topic.close()
