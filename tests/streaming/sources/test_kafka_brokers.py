"""A Kafka topic on a real broker: offsets, packs, keys, transactions, and events that are gone."""

import confluent_kafka
import msgspec
import pytest

from pbodl.errors import InputError
from pbodl.streaming.dead_letters import DeadLetters
from pbodl.streaming.events import BadEvent
from pbodl.streaming.sources.event_source import StreamPosition
from pbodl.streaming.sources.kafka_sink import KafkaSink
from pbodl.streaming.sources.kafka_topic import KafkaTopic
from tests.streaming.kafka_broker import PASSWORD, USER, KafkaBrokers, needs_kafka
from tests.streaming.sources.test_kafka_topic import names, opened, read_all, send
from tests.streaming.traffic import impression

pytestmark = needs_kafka


@pytest.mark.parametrize("pack", [1, 7])
def test_every_event_once_from_our_own_offsets(kafka: KafkaBrokers, pack: int) -> None:
    address = kafka.create(f"plain{pack}", partitions=3)
    topic = opened(address, 30, pack)
    first, middle = read_all(topic, topic.start("start"), 30)
    send(address, 30, first=30, pack=pack)
    rest, end = read_all(topic, middle, 30)
    assert sorted(first) == names(0, 30) and sorted(rest) == names(30, 60)
    assert topic.ended(end) and not topic.ended(middle) and topic.start("end") == end
    topic.close()
    again = KafkaTopic(address)
    assert sorted(read_all(again, StreamPosition.of(middle.plain()), 30)[0]) == names(30, 60)
    again.close()


def test_keys_decide_the_partition_and_order_holds_within_it(kafka: KafkaBrokers) -> None:
    address = kafka.create("keyed", partitions=4)
    sink = KafkaSink(address, 1)
    sink.send([impression(f"k{n % 20}", float(n)) for n in range(100)])
    sink.close()
    topic = KafkaTopic(address)
    found, _ = read_all(topic, topic.start("start"), 100)
    topic.close()
    assert sorted(found) == sorted(f"k{n % 20}" for n in range(100))


def transaction(kafka: KafkaBrokers, topic: str, first: int, count: int, commit: bool) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.servers(), "transactional.id": "t1", "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(first, first + count):
        producer.produce(topic, msgspec.msgpack.encode(impression(f"i{number}", float(number))), partition=0)
    producer.flush(30)
    producer.commit_transaction(30) if commit else producer.abort_transaction(30)


def test_aborted_transactions_are_never_learned(kafka: KafkaBrokers) -> None:
    address = kafka.create("committed")
    transaction(kafka, "committed", 0, 10, commit=True)
    transaction(kafka, "committed", 100, 10, commit=False)
    transaction(kafka, "committed", 10, 10, commit=True)
    transaction(kafka, "committed", 200, 10, commit=False)
    topic = KafkaTopic(address)
    found, position = read_all(topic, topic.start("start"), 20)
    assert found == [f"i{n}" for n in range(20)]
    for _ in range(50):
        if topic.ended(position):
            break
        position = topic.read(position, 0.1).position
    assert topic.ended(position) and topic.lag(position) == 0
    topic.close()


def secured(kafka: KafkaBrokers, topic: str) -> str:
    return (
        f"kafka://{kafka.servers('SASL_SSL')}/{topic}?security.protocol=SASL_SSL&sasl.mechanism=SCRAM-SHA-256"
        f"&sasl.username={USER}&ssl.ca.location={kafka.authority}"
    )


def test_tls_and_a_password(kafka: KafkaBrokers, monkeypatch) -> None:
    kafka.create("secured", partitions=2)
    monkeypatch.setenv("PBODL_KAFKA_PASSWORD", PASSWORD)
    topic = opened(secured(kafka, "secured"), 20)
    assert sorted(read_all(topic, topic.start("start"), 20)[0]) == names(0, 20)
    topic.close()
    tls = KafkaTopic(
        f"kafka://{kafka.servers('SSL')}/secured?security.protocol=SSL&ssl.ca.location={kafka.authority}&sasl.mechanism=PLAIN"
    )
    assert sorted(read_all(tls, tls.start("start"), 20)[0]) == names(0, 20)
    tls.close()


def test_a_wrong_password_is_refused_at_once(kafka: KafkaBrokers, monkeypatch) -> None:
    monkeypatch.setenv("PBODL_KAFKA_PASSWORD", "guess")
    topic = KafkaTopic(secured(kafka, "secured"))
    with pytest.raises(InputError, match="refuses this client") as refused:
        for _ in range(20):
            topic.read(StreamPosition({"0": (0,)}), 0.2)
    assert "guess" not in str(refused.value)
    topic.close()


def test_what_retention_deleted_is_a_gap(kafka: KafkaBrokers) -> None:
    address = kafka.create("short")
    topic = opened(address, 20)
    kafka.delete_before("short", 0, 12)
    pack = topic.read(StreamPosition({"0": (5,)}), 1.0)
    assert "begins at offset 12, and the position is 5" in str(pack.gap)
    assert read_all(topic, pack.position, 8)[0] == [f"i{n}" for n in range(12, 20)]
    topic.close()


@pytest.mark.parametrize("count", [3, 50])
def test_a_topic_that_was_made_anew_is_a_gap(kafka: KafkaBrokers, count: int) -> None:
    """Also where the new one has more events than the old one had: the position would be a sound offset of it."""
    name = f"anew{count}"
    address = kafka.create(name)
    topic = opened(address, 20)
    _, position = read_all(topic, topic.start("start"), 20)
    topic.close()
    kafka.delete(name)
    kafka.create(name)
    topic = opened(address, count)
    pack = topic.read(StreamPosition.of(position.plain()), 1.0)
    assert "deleted and made anew since partition 0 was read up to offset 20" in str(pack.gap)
    assert read_all(topic, pack.position, count)[0] == [f"i{n}" for n in range(count)]
    topic.close()


def sent_letters(kafka: KafkaBrokers, topic: str) -> list[str]:
    """All letters of a topic whose transaction was committed."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": kafka.servers(), "group.id": "look", "enable.partition.eof": True, "log_level": 0}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[str] = []
    for _ in range(200):
        for message in consumer.consume(100, 0.2):
            if message.error() is not None:
                consumer.close()
                return found
            found.append(msgspec.msgpack.decode(message.value())["raw"])
    raise AssertionError("the topic has no end")


def test_dead_letters_are_sent_once_wherever_a_run_dies(kafka: KafkaBrokers) -> None:
    target = kafka.create("letters")
    first = DeadLetters(target, "stream", 0, "one")
    first.write([BadEvent("bad", "1"), BadEvent("bad", "2")])
    assert sent_letters(kafka, "letters") == []  # a run that dies now learns the events again, and finds them bad again
    snapshot = [list(letter) for letter in first.waiting]
    # It dies after its snapshot, before it has sent them.
    second = DeadLetters(target, "stream", 2, "one", snapshot)
    assert sent_letters(kafka, "letters") == ["1", "2"]
    # It dies again, before another snapshot: the same letters are not sent again.
    third = DeadLetters(target, "stream", 2, "one", snapshot)
    third.write([BadEvent("bad", "3")])
    later = [list(letter) for letter in third.waiting]
    third.saved()
    assert sent_letters(kafka, "letters") == ["1", "2", "3"]
    # Back to the first snapshot: the third letter is found again, with a fourth; only that one is new.
    fourth = DeadLetters(target, "stream", 2, "one", snapshot)
    fourth.write([BadEvent("bad", "3"), BadEvent("bad", "4")])
    fourth.saved()
    assert sent_letters(kafka, "letters") == ["1", "2", "3", "4"]
    # A process that was thought dead, and wakes up, can send nothing.
    third.write([BadEvent("bad", "zombie")])
    with pytest.raises(InputError, match="another process of this run"):
        third.saved()
    assert sent_letters(kafka, "letters") == ["1", "2", "3", "4"] and later == [["bad", "3"]]
    for letters in (first, second, fourth):
        letters.close()
