"""A Kafka topic as a source of events: kafka://host:port/topic?group=G.

The run's snapshot keeps the offsets, with what was learned up to them; the offsets that the broker keeps are for monitoring and for
the group. Without a group, this reader takes all partitions, at the offsets of its snapshot. In a group, partitions come and go as
members do, and a new owner continues at the offset that was committed after a snapshot. A member that loses partitions therefore
returns to its snapshot (`Lost`): the next owner will learn what it had learned since. That is so with the eager protocol, where all
members give all partitions back at every change, with the cooperative one, and with the group protocol of Kafka 4.

A mark of a position is an offset and the id of the topic: a topic that was deleted and made anew has the offsets of another life.

`?partition=3` reads one partition alone.

All other options after the `?` go to the client library as they are: `&security.protocol=SASL_SSL&...`. Secrets come from
elsewhere: the password (`sasl.password`) from PBODL_KAFKA_PASSWORD or from `password_file=...`, any option from `options_file=...`,
a file with lines of the form name=value.
"""

import functools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pbodl.errors import InputError
from pbodl.streaming.sources.event_source import Away, Lost, Mark, Pack, StreamPosition
from pbodl.streaming.sources.kafka_client import (
    ANSWER,
    INSTEAD,
    QUIET,
    AdminClient,
    Consumer,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
    address_of,
    new_client,
)
from pbodl.streaming.sources.kafka_group import GroupOffsets

MESSAGES = 2000  # in a pack, at most
QUICKLY = 0.5  # seconds, where learning waits meanwhile
PAUSE = 0.25  # seconds before trying again to reach the brokers
REFUSED = (
    KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError.UNSUPPORTED_SASL_MECHANISM, KafkaError._SSL,
    KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED,
)  # fmt: skip
AWAY = (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._RESOLVE, KafkaError._TIMED_OUT)
FETCHING = {"auto.offset.reset": "error", "fetch.wait.max.ms": "100", "enable.partition.eof": True}
ASKED = 2  # times for the id of a topic, without an answer
NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"  # what brokers say that give topics no ids


class KafkaTopic:
    """A topic."""

    def __init__(self, address: str) -> None:
        self.name = address
        self._address = parts = address_of(address)
        self.topic, self.group = parts.topic, parts.group
        self._servers = {"bootstrap.servers": parts.servers}
        own = self._servers | {"group.id": self.group or "pbodl", **FETCHING, "error_cb": self._hear}
        strategy = parts.options.get("partition.assignment.strategy", "")
        self._incremental = "cooperative" in strategy or parts.options.get("group.protocol") == "consumer"
        self._consumer = new_client(Consumer, parts, QUIET | own | parts.options | {"enable.auto.commit": False})
        self.kind = f"the Kafka topic {self.topic!r}"
        self.away: str | None = None
        self.reconnects = 0
        self._refused: str | None = None  # why the brokers refuse this client for good
        self._at: StreamPosition | None = None  # where the client is, if it is anywhere
        self._owned: set[int] = set()
        self._id: tuple[str, ...] = ()  # of the topic, once it is known
        self._may_have_id = ASKED
        self._lock = threading.Lock()  # held while a snapshot is written: partitions go before or after, not in between
        self._offsets = GroupOffsets(self._consumer, self.topic, self.name)
        self._lost: Lost | None = None
        self._subscribed = self._closing = False

    def start(self, at: str) -> StreamPosition:
        if self.group is not None:
            return StreamPosition()
        place = 0 if at == "start" else 1
        ends = {part: self._limits(part)[place] for part in self._partitions()}
        self._learn_id()
        return StreamPosition({str(part): (offset, *self._id) for part, offset in ends.items()})

    def _learn_id(self) -> None:
        """Ask for the topic's id; without an answer, keep what was known. Old brokers have none, and are not asked for ever."""
        if not self._may_have_id:
            return
        self._may_have_id -= 1
        admin = new_client(AdminClient, self._address, QUIET | self._address.options | self._servers)
        with suppress(KafkaException):
            about = admin.describe_topics(TopicCollection([self.topic]), request_timeout=QUICKLY)[self.topic].result()
            self._id = (str(about.topic_id),) if str(about.topic_id) != NO_ID else ()
            self._may_have_id = ASKED if self._id else 0

    def _gaps(self, after: StreamPosition) -> Pack | None:
        """An empty pack that tells what is lost at a position, and continues behind it; None if it can be read from there."""
        lost = []
        for part, mark in after.marks.items():
            if self._id and mark[1:] not in ((), self._id):
                lost.append(f"the topic was deleted and made anew since partition {part} was read up to offset {mark[0]}")
            elif self.group is None and (gap := self._gap(int(part), int(mark[0]))) is not None:
                lost.append(gap)
            else:
                continue
            after = after.after(part, (self._limits(int(part))[0], *self._id))
        return Pack([], after, "; ".join(lost)) if lost else None

    def _gap(self, part: int, offset: int) -> str | None:
        """What is lost at an offset of a partition; None if it can be read from there."""
        low, high = self._limits(part)
        if offset < low:
            return f"partition {part} begins at offset {low}, and the position is {offset}; keep events longer (retention.ms)"
        if offset > high:
            return f"partition {part} ends at offset {high}, before the position {offset}: it was made anew, or has lost events"
        return None

    def read(self, after: StreamPosition, wait: float) -> Pack:
        if self._at != after:
            try:
                self._partitions()
                self._learn_id()
                if (gaps := self._gaps(after)) is not None:
                    return gaps
                self._stand_at(after)
            except Away:
                self._at = None
                time.sleep(PAUSE)
                return Pack([], after)
        self._commit_what_is_saved()
        try:
            found = self._consumer.consume(MESSAGES, wait)
        except (KafkaException, Away) as error:  # `_gained` could not ask for the offsets: join the group anew
            self._go_away(error.__cause__ if isinstance(error, Away) else error)
            self._consumer.unsubscribe()
            self._subscribed, self._at = False, None
            return Pack([], after)
        self._check_refused()
        self._check_lost()
        contents: list[bytes] = []
        position = after
        for message in found:
            if (fault := message.error()) is not None and fault.code() == KafkaError._AUTO_OFFSET_RESET:
                return self._beyond(int(message.partition() or 0), contents, position)
            if fault is not None and fault.code() == KafkaError._PARTITION_EOF:
                # Behind the last event there may be the marks of transactions, or what compaction has removed.
                position = position.after(str(message.partition()), self._mark(int(message.offset() or 0)))
                continue
            if fault is not None:
                self._judge(fault)
                continue
            contents.append(bytes(message.value() or b""))
            position = position.after(str(message.partition()), self._mark(int(message.offset() or 0) + 1))
        if contents:
            self.away = None
        elif self.away is not None:
            self._look()
        self._at = position
        return Pack(contents, position)

    def _mark(self, offset: int) -> Mark:
        return (offset, *self._id)

    def _beyond(self, part: int, contents: list[bytes], position: StreamPosition) -> Pack:
        """Continue at the first offset of a partition, after the client was told that its offset is gone."""
        low = self._limits(part)[0]
        position = position.after(str(part), self._mark(low))
        try:
            self._consumer.seek(TopicPartition(self.topic, part, low))
            self._at = position
        except KafkaException:  # the client is not ready for that yet: the next read stands there anew
            self._at = None
        return Pack(contents, position, f"partition {part} begins at offset {low}; keep events longer (retention.ms)")

    def _stand_at(self, position: StreamPosition) -> None:
        """Let the client go on behind a position."""
        self._at = position
        if self.group is None:
            offsets = {part: int(position.marks.get(str(part), (0,))[0]) for part in self._partitions()}
            self._consumer.assign([TopicPartition(self.topic, part, offset) for part, offset in offsets.items()])
        elif not self._subscribed:
            self._subscribed = True
            self._offsets.begin(position)
            self._consumer.subscribe([self.topic], on_assign=self._gained, on_revoke=self._gone, on_lost=self._gone)
        elif self._owned:
            # Back to the snapshot: partitions that were not given away have been read further than that.
            for part in self._from_snapshot([TopicPartition(self.topic, part) for part in sorted(self._owned)]):
                self._ask(functools.partial(self._consumer.seek, part))

    def _gained(self, consumer: Any, partitions: list[Any]) -> None:
        """Take partitions over, unless we are on our way out."""
        if self._closing:
            return
        starts = self._from_snapshot(partitions)
        self._owned |= {part.partition for part in partitions}
        (consumer.incremental_assign if self._incremental else consumer.assign)(starts)

    def _from_snapshot(self, partitions: list[Any]) -> list[Any]:
        """The partitions, at the offsets of our snapshot, or at the committed ones if another member was further."""
        committed = self._ask(lambda: self._consumer.committed(partitions, timeout=ANSWER))
        for part, theirs in zip(partitions, committed, strict=True):
            # A member that knows nothing begins at the first offset; one whose offset is gone is told so by `_AUTO_OFFSET_RESET`.
            first = 0 if theirs.offset > 0 else self._limits(part.partition)[0]
            part.offset = self._offsets.begins_at(part.partition, theirs.offset, first)
        return partitions

    def _gone(self, consumer: Any, partitions: list[Any]) -> None:
        """What was learned from these since the snapshot is void; the next owner starts at the offsets of the snapshot."""
        with self._lock:
            lost = Lost(f"the partitions of {self.name} are dealt out anew")
            if self._offsets.committed != self._offsets.saved:
                try:
                    if not self._offsets.commit(self._owned):
                        lost = self._offsets.withdrawn(self._owned)
                except Lost as refused:
                    lost = refused
            self._owned -= {part.partition for part in partitions}
            self._lost = lost if self._lost is None or lost.void else self._lost

    def _check_lost(self) -> None:
        lost, self._lost = self._lost, None
        if lost is not None:
            self._at = None
            raise lost

    @contextmanager
    def saving(self, position: StreamPosition) -> Iterator[None]:
        with self._lock:
            self._check_lost()
            if self.group is None:
                yield
                return
            # Before, so that a member that has stood still for too long notices it, and that one snapshot at a time is in doubt;
            # after, because the snapshot counts from then on.
            try:
                if self.away is not None or not self._offsets.commit(self._owned):
                    raise Away(f"{self.name}: the group does not take offsets now; the snapshot is taken later")
                yield
                self._offsets.save(position)
                self._offsets.commit(self._owned)
            except Lost:
                self._at = None
                raise

    def _commit_what_is_saved(self) -> None:
        """Try again, if the last attempt had no answer."""
        unknown = self._offsets.committed != self._offsets.saved
        if unknown and self.away is None and self._lock.acquire(blocking=False):
            try:
                self._offsets.commit(self._owned)
            except Lost as refused:
                self._lost = refused
            finally:
                self._lock.release()

    def lag(self, after: StreamPosition) -> int | None:
        """Messages behind the position, in the partitions that are ours."""
        if self.away is not None:
            return None
        try:
            parts = self._owned if self.group is not None else self._partitions(QUICKLY)
            return sum(max(self._end(part) - int(after.marks.get(str(part), (0,))[0]), 0) for part in parts)
        except Away:
            return None

    def ended(self, after: StreamPosition) -> bool:
        return (self.group is None or bool(self._owned)) and self.lag(after) == 0

    def close(self) -> None:
        self._closing = True
        if self._offsets.committed != self._offsets.saved:
            with suppress(Lost):
                self._offsets.commit(self._owned)
        self._consumer.close()

    def _ask(self, call: Callable[[], Any]) -> Any:
        """The brokers' answer; `Away` if there is none."""
        try:
            answer = call()
        except KafkaException as error:
            if self._at is None:
                self._consumer.poll(0.0)  # hears why, through `_hear`; nothing is assigned yet, so that it gives no message
            self._judge(error.args[0])
            self._check_refused()
            self._go_away(error)
            raise Away(self.away) from error
        self.away = None
        return answer

    def _go_away(self, error: Any) -> None:
        if self.away is None:
            self.reconnects += 1
        self.away = f"{self.name} does not answer: {self._address.plainly(error)}"

    def _look(self) -> None:
        """Whether the brokers answer again."""
        with suppress(Away):
            self._partitions()

    def _hear(self, error: Any) -> None:
        """Take an error that the client library reports."""
        if error.code() in REFUSED or error.fatal():
            self._refused = self._address.plainly(error)
        elif error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._go_away(error)

    def _check_refused(self) -> None:
        if self._refused is not None:
            raise InputError(f"{self.name} refuses this client ({self._refused}); check its options and its password: {INSTEAD}")

    def partitions(self) -> list[int]:
        """The partitions to read; `Away` if no broker answers."""
        return self._partitions(5 * ANSWER)

    def _partitions(self, patience: float = ANSWER) -> list[int]:
        about = self._ask(lambda: self._consumer.list_topics(self.topic, timeout=patience)).topics[self.topic]
        if about.error is not None or not about.partitions:
            raise InputError(f"{self.name}: there is no such topic; create it first")
        if (only := self._address.partition) is not None and only not in about.partitions:
            raise InputError(f"{self.name}: the topic has no partition {only}; it has {len(about.partitions)}")
        return sorted(about.partitions) if only is None else [only]

    def _limits(self, part: int, patience: float = ANSWER) -> tuple[int, int]:
        return self._ask(lambda: self._consumer.get_watermark_offsets(TopicPartition(self.topic, part), timeout=patience))

    def _end(self, part: int) -> int:
        """Where a partition ends, as the last answer to a fetch told; asked for if there was none."""
        known = self._consumer.get_watermark_offsets(TopicPartition(self.topic, part), cached=True)
        return known[1] if known is not None and known[1] >= 0 else self._limits(part, QUICKLY)[1]

    def _judge(self, error: Any) -> None:
        """Ignore errors that pass, such as a broker that is away; raise the others."""
        if error.retriable() or error.code() in AWAY:
            return
        if error.fatal() or error.code() in (*REFUSED, KafkaError.UNKNOWN_TOPIC_OR_PART):
            raise InputError(f"{self.name} cannot be read: {self._address.plainly(error)}")
        time.sleep(0.1)


def topic_partitions(address: str) -> list[tuple[int, str]]:
    """The partitions of a topic, each with the address of that one alone."""
    parts = address_of(address)
    if parts.group is not None or parts.partition is not None:
        raise InputError(
            f"{parts.name}: --engine ray divides the partitions among its workers by itself; leave `group` and `partition` out"
        )
    source = KafkaTopic(address)
    try:
        numbers = source.partitions()
    finally:
        source.close()
    joint = "&" if "?" in address else "?"
    return [(number, f"{address}{joint}partition={number}") for number in numbers]
