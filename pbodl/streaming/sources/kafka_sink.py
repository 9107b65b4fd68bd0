"""A Kafka topic as a sink of events, and of dead letters in transactions."""

import zlib
from collections.abc import Sequence
from typing import Any

from pbodl.errors import InputError
from pbodl.streaming.sources.event_sink import packed
from pbodl.streaming.sources.event_source import Away
from pbodl.streaming.sources.kafka_client import (
    ANSWER,
    QUIET,
    Consumer,
    KafkaAddress,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
    address_of,
    new_client,
)

SENT = 60.0  # seconds that the brokers have to take events


class KafkaSink:
    """Sends events to a topic, `pack` of them to a message; events of one id go to one partition."""

    def __init__(self, address: str, pack: int = 500) -> None:
        parts = address_of(address)
        self.name, self.topic = parts.name, parts.topic
        self._pack = pack
        own = {"bootstrap.servers": parts.servers, "enable.idempotence": True}
        self._producer = new_client(Producer, parts, QUIET | own | parts.options)
        try:
            self._partitions = len(self._producer.list_topics(self.topic, timeout=5 * ANSWER).topics[self.topic].partitions) or 1
        except KafkaException as error:
            raise Away(f"{self.name} does not answer: {parts.plainly(error)}") from error

    def send(self, events: Sequence[Any]) -> None:
        """Send events, encoded as msgpack; returns when the broker has them all."""
        dealt: dict[int, list[Any]] = {}
        for event in events:
            dealt.setdefault(zlib.crc32(str(event.get("id")).encode()) % self._partitions, []).append(event)
        for part, own in dealt.items():
            for message in packed(own, self._pack):
                self._producer.produce(self.topic, message, partition=part)
        if self._producer.flush(SENT):
            raise Away(f"the brokers of {self.name} did not accept all messages within {SENT:g} seconds")

    def close(self) -> None:
        self._producer.flush(ANSWER)


class KafkaLetters:
    """Sends the dead letters of a run to a topic, each exactly once, whoever is killed and whenever.

    The letters of a snapshot and their count go into one transaction: the count is an offset that the group `run` commits. A run
    that starts again asks for the count, and leaves out what was sent. Brokers forget it when a run sends nothing for a week
    (offsets.retention.minutes). A second process of the same run is shut out by the brokers.
    """

    def __init__(self, address: str, run: str) -> None:
        self._address = parts = address_of(address)
        self.name, self._topic = parts.name, parts.topic
        own = QUIET | {"bootstrap.servers": parts.servers}
        self._producer = new_client(Producer, parts, own | parts.options | {"transactional.id": run})
        self._group = new_client(Consumer, parts, own | parts.options | {"group.id": run, "enable.auto.commit": False})
        self._count = TopicPartition(self._topic, 0)
        try:
            self._producer.init_transactions(SENT)  # also ends what an earlier process of the run left open
            self.sent = max(self._group.committed([self._count], timeout=5 * ANSWER)[0].offset, 0)
        except KafkaException as error:
            raise _trouble(parts, error) from error

    def send(self, letters: Sequence[Any], sent: int) -> None:
        """Send letters, of which the last has the number `sent`; those that were sent before are left out."""
        new = letters[max(len(letters) - max(sent - self.sent, 0), 0) :]
        if not new:
            return
        try:
            self._producer.begin_transaction()
            for letter in packed(new, 1):
                self._producer.produce(self._topic, letter)
            count = TopicPartition(self._topic, 0, sent)
            self._producer.send_offsets_to_transaction([count], self._group.consumer_group_metadata(), SENT)
            self._producer.commit_transaction(SENT)
        except KafkaException as error:
            raise _trouble(self._address, error) from error
        self.sent = sent

    def close(self) -> None:
        self._group.close()


def _trouble(address: KafkaAddress, error: KafkaException) -> Exception:
    told = address.plainly(error)
    if error.args[0].code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED):
        return InputError(f"another process of this run sends dead letters to {address.name}; this one stops ({told})")
    return Away(f"the brokers of {address.name} did not accept the dead letters: {told}")
