"""A Kafka topic as a source and as a sink of events: kafka://host:port/topic?group=G.

The run's snapshot keeps the offsets, with what was learned up to them; the offsets that the broker keeps are for monitoring and for
the group. Without a group, this reader takes all partitions, at the offsets of its snapshot. In a group, partitions come and go as
members do, and a new owner continues at the offset that was committed after a snapshot. A member that loses partitions therefore
returns to its snapshot (`Lost`): the next owner will learn what it had learned since.

All other options after the `?` go to the client library as they are: `&security.protocol=SASL_SSL&...`. Secrets come from
elsewhere: the password (`sasl.password`) from PBODL_KAFKA_PASSWORD or from `password_file=...`, any option from `options_file=...`,
a file with lines of the form name=value.
"""

import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from pbodl.errors import InputError
from pbodl.streaming.sources.event_sink import packed
from pbodl.streaming.sources.event_source import Away, Lost, Pack, StreamPosition
from pbodl.system.addresses import is_secret, refuse_secrets, secret_from, without_secrets
from pbodl.system.extras import install_line

try:
    import confluent_kafka
    from confluent_kafka import KafkaError, KafkaException, TopicPartition
except ImportError as error:
    raise InputError(f"reading Kafka topics needs its client; run: {install_line('kafka')}") from error

MESSAGES = 2000  # in a pack, at most
ANSWER = 2.0  # seconds to wait for a broker's answer
QUICKLY = 0.5  # seconds, where learning waits meanwhile
SENT = 60.0  # seconds that the brokers have to take events
PAUSE = 0.25  # seconds before trying again to reach the brokers
VARIABLE = "PBODL_KAFKA_PASSWORD"
INSTEAD = f"set {VARIABLE}, or name a file: kafka://host:9092/topic?password_file=FILE, or ?options_file=FILE for any option"
REFUSED = (
    KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError.UNSUPPORTED_SASL_MECHANISM, KafkaError._SSL,
    KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED,
)  # fmt: skip
AWAY = (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._RESOLVE, KafkaError._TIMED_OUT)
QUIET = {"log_level": 2}
FETCHING = {"auto.offset.reset": "error", "fetch.wait.max.ms": "100"}


class KafkaAddress(NamedTuple):
    """What an address names."""

    name: str  # as people write it
    servers: str
    topic: str
    group: str | None
    options: dict[str, str]  # of the client library

    def plainly(self, error: Any) -> str:
        """The text of an error, without the secrets among the options."""
        text = error.args[0].str() if isinstance(error, KafkaException) else error.str()
        for name, value in self.options.items():
            text = text.replace(value, "***") if is_secret(name) and value else text
        return without_secrets(text)


class KafkaTopic:
    """A topic."""

    def __init__(self, address: str) -> None:
        self.name = address
        self._address = parts = address_of(address)
        self.topic, self.group = parts.topic, parts.group
        own = {"bootstrap.servers": parts.servers, "group.id": self.group or "pbodl", **FETCHING, "error_cb": self._hear}
        self._consumer = _client(confluent_kafka.Consumer, parts, QUIET | own | parts.options | {"enable.auto.commit": False})
        self.kind = f"the Kafka topic {self.topic!r}"
        self.away: str | None = None
        self.reconnects = 0
        self._refused: str | None = None  # why the brokers refuse this client for good
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
                for part, (mark, *_) in after.marks.items() if self.group is None else ():
                    if (gap := self._gap(int(part), int(mark))) is not None:
                        return Pack([], after.after(part, (self._limits(int(part))[0],)), gap)
                self._stand_at(after)
            except Away:
                self._at = None
                time.sleep(PAUSE)
                return Pack([], after)
        if self._committed != self._last_saved:
            self._commit(asynchronous=True)
        try:
            found = self._consumer.consume(MESSAGES, wait)
        except (KafkaException, Away) as error:  # `_gained` could not ask for the offsets: join the group anew
            self._go_away(error.__cause__ if isinstance(error, Away) else error)
            self._consumer.unsubscribe()
            self._subscribed, self._at = False, None
            return Pack([], after)
        self._check_refused()
        if self._lost:
            self._lost, self._at = False, None
            raise Lost(f"the partitions of {self.name} are dealt out anew")
        contents: list[bytes] = []
        position = after
        for message in found:
            if (fault := message.error()) is not None and fault.code() == KafkaError._AUTO_OFFSET_RESET:
                return self._beyond(int(message.partition() or 0), contents, position)
            if fault is not None:
                self._judge(fault)
                continue
            contents.append(bytes(message.value() or b""))
            position = position.after(str(message.partition()), (int(message.offset() or 0) + 1,))
        if contents:
            self.away = None
        elif self.away is not None:
            self._look()
        self._at = position
        return Pack(contents, position)

    def _beyond(self, part: int, contents: list[bytes], position: StreamPosition) -> Pack:
        """Continue at the first offset of a partition, after the client was told that its offset is gone."""
        low = self._limits(part)[0]
        self._consumer.seek(TopicPartition(self.topic, part, low))
        self._at = position.after(str(part), (low,))
        return Pack(contents, self._at, f"partition {part} begins at offset {low}; keep events longer (retention.ms)")

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
            known = max(ours, theirs.offset)
            # A member that knows nothing begins at the first offset; one whose offset is gone is told so by `_AUTO_OFFSET_RESET`.
            part.offset = known if known > 0 else self._limits(part.partition)[0]
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
            self._consumer.commit(offsets=offsets, asynchronous=asynchronous)

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
        if self._committed != self._last_saved:
            self._commit(asynchronous=False)
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

    def _partitions(self, patience: float = ANSWER) -> list[int]:
        about = self._ask(lambda: self._consumer.list_topics(self.topic, timeout=patience)).topics[self.topic]
        if about.error is not None or not about.partitions:
            raise InputError(f"{self.name}: there is no such topic; create it first")
        return sorted(about.partitions)

    def _limits(self, part: int, patience: float = ANSWER) -> tuple[int, int]:
        return self._ask(lambda: self._consumer.get_watermark_offsets(TopicPartition(self.topic, part), timeout=patience))

    def _end(self, part: int) -> int:
        """Where a partition ends, as the last answer to a fetch told; asked for if there was none."""
        known = self._consumer.get_watermark_offsets(TopicPartition(self.topic, part), cached=True)
        return known[1] if known is not None and known[1] >= 0 else self._limits(part, QUICKLY)[1]

    def _judge(self, error: Any) -> None:
        """Ignore errors that pass, such as a broker that is away; raise the others."""
        if error.code() == KafkaError._PARTITION_EOF or error.retriable() or error.code() in AWAY:
            return
        if error.fatal() or error.code() in (*REFUSED, KafkaError.UNKNOWN_TOPIC_OR_PART):
            raise InputError(f"{self.name} cannot be read: {self._address.plainly(error)}")
        time.sleep(0.1)


class KafkaSink:
    """Sends events to a topic, `pack` of them to a message; events of one id go to one partition."""

    def __init__(self, address: str, pack: int = 500) -> None:
        parts = address_of(address)
        self.name, self.topic = parts.name, parts.topic
        self._pack = pack
        own = {"bootstrap.servers": parts.servers, "enable.idempotence": True}
        self._producer = _client(confluent_kafka.Producer, parts, QUIET | own | parts.options)
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


def address_of(address: str) -> KafkaAddress:
    """The parts of an address, with the secrets from where they are kept."""
    refuse_secrets(address, INSTEAD)
    shown = without_secrets(address)
    try:
        parts = urlsplit(address)
    except ValueError as error:
        raise InputError(f"{shown!r} is not an address ({error}); write kafka://host:9092/topic") from None
    topic = parts.path.strip("/")
    if not topic or not parts.netloc:
        raise InputError(f"{shown!r} does not name a topic; write kafka://host:9092/topic")
    for server in parts.netloc.split(","):
        port = server.rpartition(":")[2] if ":" in server else "9092"
        if not (port.isdecimal() and 0 < int(port) < 1 << 16):
            raise InputError(f"{shown!r}: the port of {server!r} must be a number from 1 to 65535")
    options = dict(parse_qsl(parts.query))
    file, password_file, group = (options.pop(name, None) for name in ("options_file", "password_file", "group"))
    options = (_options_of(file) if file is not None else {}) | options
    if (password := secret_from(password_file, VARIABLE)) is not None:
        options["sasl.password"] = password
    return KafkaAddress(shown, parts.netloc, topic, group, options)


def _options_of(file: str) -> dict[str, str]:
    """The options in a file: lines of the form name=value, and comments with #."""
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the options file {file} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    options = {}
    for number, line in enumerate(lines, 1):
        name, equals, value = line.partition("=")
        if line.strip() and not line.lstrip().startswith("#"):
            if not equals:
                raise InputError(f"{file}, line {number}: an option has the form name=value")
            options[name.strip()] = value.strip()
    return options


def _client(kind: Any, address: KafkaAddress, options: dict[str, Any]) -> Any:
    try:
        return kind(options)
    except (KafkaException, ValueError, TypeError) as error:
        told = address.plainly(error) if isinstance(error, KafkaException) else str(error)
        raise InputError(f"{address.name}: the client library refuses an option: {told}") from error
