"""A Kafka topic as a source and as a sink of events: kafka://host:port/topic?group=G.

The run's snapshot keeps the offsets, with what was learned up to them; the offsets that the broker keeps are for monitoring and for
the group. Without a group, this reader takes all partitions, at the offsets of its snapshot. In a group, partitions come and go as
members do, and a new owner continues at the offset that was committed after a snapshot. A member that loses partitions therefore
returns to its snapshot (`Lost`): the next owner will learn what it had learned since.

All other options after the `?` go to the client library as they are: `&security.protocol=SASL_SSL&...`.
"""

import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from pbodl.errors import InputError
from pbodl.streaming.sources.event_sink import packed
from pbodl.streaming.sources.event_source import Lost, Pack, StreamPosition

try:
    import confluent_kafka
    from confluent_kafka import KafkaError, KafkaException, TopicPartition
except ImportError as error:
    raise InputError("reading Kafka topics needs its client: pip install 'pbodl[kafka]'") from error

MESSAGES = 2000  # in a pack, at most
ANSWER = 10.0  # seconds to wait for a broker's answer
QUIET = {"log_level": 2}
FETCHING = {"auto.offset.reset": "earliest", "fetch.wait.max.ms": "100"}


class KafkaTopic:
    """A topic."""

    def __init__(self, address: str) -> None:
        self.name = address
        servers, self.topic, options = _parts(address)
        self.group = options.pop("group", None)
        own = {"bootstrap.servers": servers, "group.id": self.group or "pbodl", **FETCHING}
        self._consumer = confluent_kafka.Consumer(QUIET | own | options | {"enable.auto.commit": False})
        self._at: StreamPosition | None = None  # where the client is, if it is anywhere
        self._owned: set[int] = set()
        self._lock = threading.Lock()  # held while a snapshot is written: partitions go before or after, not in between
        self._last_saved = self._committed = StreamPosition()
        self._lost = self._subscribed = False

    def start(self, at: str) -> StreamPosition:
        if self.group is not None:
            return StreamPosition()
        place = 0 if at == "start" else 1
        return StreamPosition({str(part): (self._limits(part)[place],) for part in self._partitions()})

    def check(self, after: StreamPosition) -> None:
        for part in self._partitions():
            low, high = self._limits(part)
            offset = int(after.marks.get(str(part), (low,))[0])
            if offset < low:
                raise InputError(
                    f"partition {part} of {self.name} begins at offset {low}, and the saved position is {offset}: events "
                    "were deleted before they were read. Keep them longer (retention.ms), and continue with --accept-gap"
                )
            if offset > high:
                raise InputError(
                    f"partition {part} of {self.name} ends at offset {high}, before the saved position {offset}: it was "
                    "made anew, or has lost events that were learned. Start a new run"
                )

    def read(self, after: StreamPosition, wait: float) -> Pack:
        if self._at != after:
            self._stand_at(after)
        if self._committed != self._last_saved:
            self._commit(asynchronous=True)
        found = self._consumer.consume(MESSAGES, wait)
        if self._lost:
            self._lost, self._at = False, None
            raise Lost(f"the partitions of {self.name} are dealt out anew")
        contents, position = [], after
        for message in found:
            if (error := message.error()) is not None:
                self._judge(error)
                continue
            contents.append(bytes(message.value() or b""))
            position = position.after(str(message.partition()), (int(message.offset() or 0) + 1,))
        self._at = position
        return Pack(contents, position)

    def _stand_at(self, position: StreamPosition) -> None:
        """Let the client go on behind a position."""
        self._at = position
        if self.group is None:
            offsets = {part: int(position.marks.get(str(part), (0,))[0]) for part in self._partitions()}
            self._consumer.assign([TopicPartition(self.topic, part, offset) for part, offset in offsets.items()])
        elif not self._subscribed:
            self._subscribed, self._last_saved, self._committed = True, position, position
            self._consumer.subscribe([self.topic], on_assign=self._gained, on_revoke=self._gone, on_lost=self._gone)

    def _gained(self, consumer: Any, partitions: list[Any]) -> None:
        """Continue at the offsets of our snapshot, or at the committed ones if another member was further."""
        committed = consumer.committed(partitions, timeout=ANSWER)
        for part, theirs in zip(partitions, committed, strict=True):
            ours = int(self._last_saved.marks.get(str(part.partition), (0,))[0])
            part.offset = max(ours, theirs.offset, self._limits(part.partition)[0])
            self._owned.add(part.partition)
        consumer.assign(partitions)

    def _gone(self, consumer: Any, partitions: list[Any]) -> None:
        """What was learned from these since the snapshot is void; the next owner starts at the offsets of the snapshot."""
        with self._lock:
            if self._committed != self._last_saved:
                self._commit(asynchronous=False)
            self._owned -= {part.partition for part in partitions}
            self._lost = True

    @contextmanager
    def saving(self, position: StreamPosition) -> Iterator[None]:
        with self._lock:
            if self._lost:
                raise Lost(f"the partitions of {self.name} are dealt out anew")
            yield
            # Committed by the thread that reads: from another one it would wait for a change of the group to end.
            self._last_saved = position

    def _commit(self, asynchronous: bool) -> None:
        """Tell the group how far our partitions were learned and saved."""
        self._committed = self._last_saved
        marks = {int(part): int(mark[0]) for part, mark in self._last_saved.marks.items() if int(part) in self._owned}
        if self.group is None or not marks:
            return
        # If it fails, the next one will do; should the partition go before that, its next owner repeats what lies between.
        with suppress(KafkaException):
            offsets = [TopicPartition(self.topic, *mark) for mark in marks.items()]
            self._consumer.commit(offsets=offsets, asynchronous=asynchronous)  # type: ignore[call-overload]

    def lag(self, after: StreamPosition) -> int | None:
        """Messages behind the position, in the partitions that are ours."""
        try:
            parts = self._owned if self.group is not None else self._partitions()
            return sum(max(self._end(part) - int(after.marks.get(str(part), (0,))[0]), 0) for part in parts)
        except KafkaException:
            return None

    def ended(self, after: StreamPosition) -> bool:
        return (self.group is None or bool(self._owned)) and self.lag(after) == 0

    def close(self) -> None:
        if self._committed != self._last_saved:
            self._commit(asynchronous=False)
        self._consumer.close()

    def _partitions(self) -> list[int]:
        try:
            about = self._consumer.list_topics(self.topic, timeout=ANSWER).topics[self.topic]
        except KafkaException as error:
            raise InputError(f"{self.name} cannot be reached: {error.args[0].str()}") from error
        if about.error is not None or not about.partitions:
            raise InputError(f"{self.name}: there is no such topic; create it first")
        return sorted(about.partitions)

    def _limits(self, part: int) -> tuple[int, int]:
        return self._consumer.get_watermark_offsets(TopicPartition(self.topic, part), timeout=ANSWER)

    def _end(self, part: int) -> int:
        """Where a partition ends, as the last answer to a fetch told; asked for if there was none."""
        known = self._consumer.get_watermark_offsets(TopicPartition(self.topic, part), cached=True)
        return known[1] if known is not None and known[1] >= 0 else self._limits(part)[1]

    def _judge(self, error: Any) -> None:
        """Ignore errors that pass, such as a broker that is away; raise the others."""
        if error.code() == KafkaError._PARTITION_EOF or error.retriable():
            return
        if error.fatal() or error.code() in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.UNKNOWN_TOPIC_OR_PART):
            raise InputError(f"{self.name} cannot be read: {error.str()}")
        time.sleep(0.1)


class KafkaSink:
    """Sends events to a topic, `pack` of them to a message; events of one id go to one partition."""

    def __init__(self, address: str, pack: int = 500) -> None:
        servers, self.topic, options = _parts(address)
        options.pop("group", None)
        self._pack = pack
        self._producer = confluent_kafka.Producer(QUIET | {"bootstrap.servers": servers, "enable.idempotence": True} | options)
        self._partitions = len(self._producer.list_topics(self.topic, timeout=ANSWER).topics[self.topic].partitions) or 1

    def send(self, events: Sequence[Any]) -> None:
        """Send events, encoded as msgpack; returns when the broker has them all."""
        dealt: dict[int, list[Any]] = {}
        for event in events:
            dealt.setdefault(zlib.crc32(str(event.get("id")).encode()) % self._partitions, []).append(event)
        for part, own in dealt.items():
            for message in packed(own, self._pack):
                self._producer.produce(self.topic, message, partition=part)
        if self._producer.flush(60.0):
            raise InputError(f"the brokers of {self.topic!r} did not accept all messages within a minute")

    def close(self) -> None:
        self._producer.flush(ANSWER)


def _parts(address: str) -> tuple[str, str, dict[str, str]]:
    """Servers, topic, and options of an address."""
    parts = urlsplit(address)
    topic = parts.path.strip("/")
    if not topic or not parts.netloc:
        raise InputError(f"{address!r} does not name a topic; write kafka://host:9092/topic")
    return parts.netloc, topic, dict(parse_qsl(parts.query))
