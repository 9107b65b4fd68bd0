"""Kafka, over TCP, against the client library's mock cluster: offsets of our own, groups that change, topics that lost events."""

import time
from collections.abc import Iterator

import confluent_kafka
import msgspec
import pytest

from pbodl.errors import InputError
from pbodl.streaming.cluster.partition_list import partitions_of
from pbodl.streaming.sources.event_source import Away, StreamPosition
from pbodl.streaming.sources.kafka_client import address_of
from pbodl.streaming.sources.kafka_sink import KafkaSink
from pbodl.streaming.sources.kafka_topic import KafkaTopic
from tests.streaming.sources.group_member import PATIENCE, Member, ids
from tests.streaming.traffic import click, impression

FAST = "session.timeout.ms=6000&heartbeat.interval.ms=100&topic.metadata.refresh.interval.ms=500"


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    # The cluster lives as long as this client does.
    cluster = confluent_kafka.Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "mock", "log_level": 0})
    brokers = cluster.list_topics(timeout=PATIENCE).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    del cluster


def send(address: str, count: int, first: int = 0, pack: int = 1) -> None:
    sink = KafkaSink(address, pack)
    sink.send([impression(f"i{number}", float(number)) for number in range(first, first + count)])
    sink.close()


def opened(address: str, count: int, pack: int = 1) -> KafkaTopic:
    send(address, count, pack=pack)
    return KafkaTopic(address)


def names(first: int, stop: int) -> list[str]:
    return sorted(f"i{number}" for number in range(first, stop))


def read_all(topic: KafkaTopic, after: StreamPosition, count: int) -> tuple[list[str], StreamPosition]:
    found: list[str] = []
    until = time.monotonic() + PATIENCE
    while len(found) < count and time.monotonic() < until:
        pack = topic.read(after, 0.1)
        found, after = found + ids(pack), pack.position
    return found, after


@pytest.mark.parametrize("pack", [1, 7])
def test_every_event_once_from_our_own_offsets(servers: str, pack: int) -> None:
    address = f"kafka://{servers}/plain{pack}"
    topic = opened(address, 30, pack)
    first, middle = read_all(topic, topic.start("start"), 30)
    send(address, 30, first=30, pack=pack)
    rest, end = read_all(topic, middle, 30)
    assert sorted(first) == names(0, 30) and sorted(rest) == names(30, 60)
    assert middle <= end and not end <= middle
    assert topic.ended(end) and not topic.ended(middle) and topic.start("end") == end
    topic.close()
    # Another reader, from a position that was saved in between: the same events again, and no others.
    again = KafkaTopic(address)
    assert sorted(read_all(again, StreamPosition.of(middle.plain()), 30)[0]) == names(30, 60)
    assert sorted(read_all(again, again.start("start"), 60)[0]) == names(0, 60)
    again.close()


def test_partitions_are_read_one_by_one(servers: str) -> None:
    address = f"kafka://{servers}/apart"
    send(address, 60)
    parts = partitions_of(address)
    assert [part.name for part in parts] == ["0", "1", "2", "3"]
    found = []
    for part in parts:
        topic = KafkaTopic(part.address)
        start = topic.start("start")
        assert set(start.marks) == {part.name}
        own, end = [], start
        while not topic.ended(end):
            pack = topic.read(end, 0.1)
            own, end = own + ids(pack), pack.position
        assert set(end.marks) == {part.name}
        topic.close()
        found.append(own)
    assert sorted(name for own in found for name in own) == names(0, 60) and all(found)


@pytest.mark.parametrize(
    "more, said",
    [("?partition=x", "must be a number"), ("?partition=1&group=g", "leave `group` out"), ("?partition=9", "no partition 9")],
)
def test_partitions_that_cannot_be_read_are_refused(servers: str, more: str, said: str) -> None:
    send(f"kafka://{servers}/refused", 1)
    with pytest.raises(InputError, match=said):
        KafkaTopic(f"kafka://{servers}/refused{more}").start("start")
    with pytest.raises(InputError, match=r"divides the partitions among its workers by itself|must be a number|leave `group` out"):
        partitions_of(f"kafka://{servers}/refused{more}")


def test_an_impression_and_its_click_meet_in_one_partition(servers: str) -> None:
    address = f"kafka://{servers}/pairs"
    sink = KafkaSink(address, 1)
    sink.send([event for n in range(40) for event in (impression(f"p{n}", 1.0), click(f"p{n}", 2.0))])
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "look", "log_level": 0})
    consumer.assign([confluent_kafka.TopicPartition("pairs", part, 0) for part in range(4)])
    homes: dict[str, set[int]] = {}
    until = time.monotonic() + PATIENCE
    while sum(map(len, homes.values())) < 40 and time.monotonic() < until:
        for message in consumer.consume(200, 0.2):
            homes.setdefault(msgspec.msgpack.decode(message.value())["id"], set()).add(message.partition())
    consumer.close()
    assert len(homes) == 40 and all(len(parts) == 1 for parts in homes.values())
    assert len(set.union(*homes.values())) > 1


def test_a_group_shares_its_partitions_and_each_event_counts_once(servers: str) -> None:
    address = f"kafka://{servers}/shared?group=learners&{FAST}"
    send(f"kafka://{servers}/shared", 200)
    first = Member(address)
    _until(lambda: len(first.learned) == 200)
    second = Member(address)  # takes some partitions over
    time.sleep(1.0)
    deadline = time.monotonic() + PATIENCE
    sent = 200
    while not second.learned and time.monotonic() < deadline:
        send(f"kafka://{servers}/shared", 40, first=sent)
        sent += 40
        time.sleep(1.0)
    first.leave()  # and gives all to the other
    send(f"kafka://{servers}/shared", 40, first=sent)
    sent += 40
    _until(lambda: len(first.learned) + len(second.learned) >= sent)
    second.leave()
    assert second.learned, "the second member never got a partition"
    assert sorted(first.learned + second.learned) == names(0, sent)


def _until(happened, patience: float = PATIENCE) -> None:
    end = time.monotonic() + patience
    while not happened() and time.monotonic() < end:
        time.sleep(0.05)


def test_lost_events_are_told(servers: str) -> None:
    address = f"kafka://{servers}/short"
    topic = opened(address, 8)
    pack = topic.read(StreamPosition({"0": (1000,)}), 0.0)
    assert "before the position 1000" in str(pack.gap)
    send(f"kafka://{servers}/short", 1, first=8)
    found: list[str] = []
    until = time.monotonic() + PATIENCE
    while not found and time.monotonic() < until:
        pack = topic.read(pack.position, 0.1)
        assert pack.gap is None
        found += ids(pack)
    assert found
    topic.close()


@pytest.mark.parametrize("address", ["kafka://", "kafka://host:9092", "kafka://host:9092/"])
def test_addresses_without_a_topic_are_refused(address: str) -> None:
    with pytest.raises(InputError, match="does not name a topic"):
        KafkaTopic(address)


def test_brokers_that_are_not_there_are_away(monkeypatch) -> None:
    for user in ("kafka_topic", "kafka_sink"):
        monkeypatch.setattr(f"pbodl.streaming.sources.{user}.ANSWER", 0.2)
    topic = KafkaTopic("kafka://127.0.0.1:1/t")
    for call in (lambda: topic.start("start"), lambda: topic.start("end")):
        with pytest.raises(Away, match="does not answer"):
            call()
    assert not topic.read(StreamPosition({"0": (0,)}), 0.02)
    assert topic.away is not None and topic.reconnects >= 1 and topic.lag(StreamPosition()) is None
    topic.close()
    with pytest.raises(Away):
        KafkaSink("kafka://127.0.0.1:1/t")


def test_secrets_come_from_files_and_the_environment(tmp_path, monkeypatch) -> None:
    (tmp_path / "options").write_text("# the cluster\nsasl.username = me\nsasl.password = hunter2\n\nsession.timeout.ms=6000\n")
    (tmp_path / "password").write_text("hunter3\n")
    address = f"kafka://h:9092,i/t?group=g&options_file={tmp_path / 'options'}&session.timeout.ms=7000"
    parts = address_of(address)
    assert (parts.servers, parts.topic, parts.group) == ("h:9092,i", "t", "g")
    assert parts.options == {"sasl.username": "me", "sasl.password": "hunter2", "session.timeout.ms": "7000"}
    assert address_of(f"{address}&password_file={tmp_path / 'password'}").options["sasl.password"] == "hunter3"
    monkeypatch.setenv("PBODL_KAFKA_PASSWORD", "hunter4")
    assert address_of("kafka://h/t").options == {"sasl.password": "hunter4"}
    (tmp_path / "options").write_text("no equals\n")
    with pytest.raises(InputError, match="line 1: an option has the form name=value"):
        address_of(address)


def test_a_refused_client_is_an_error_at_once_without_its_secrets(monkeypatch) -> None:
    monkeypatch.setenv("PBODL_KAFKA_PASSWORD", "hunter2")
    topic = KafkaTopic("kafka://127.0.0.1:1/t")

    class Refusal:
        def code(self) -> int:
            return confluent_kafka.KafkaError._AUTHENTICATION

        def fatal(self) -> bool:
            return False

        def str(self) -> str:
            return "SASL authentication error for me:hunter2"

    topic._hear(Refusal())
    with pytest.raises(InputError, match=r"refuses this client \(SASL authentication error for me:\*\*\*\)") as refused:
        topic.read(StreamPosition({"0": (0,)}), 0.02)
    assert "hunter" not in str(refused.value)
    topic.close()
    for option in ("no.such.option=1", "session.timeout.ms=soon"):
        with pytest.raises(InputError, match="the client library refuses an option"):
            KafkaTopic(f"kafka://h/t?{option}")
