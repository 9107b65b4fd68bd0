"""A Redis stream as a source and as a sink of events: redis://host:port/stream?db=0.

An entry holds its events in the field `data` (one event, or an array of many), or is itself one event, field by field. A reader
reads by position, and several readers each read everything. With `?group=G&consumer=C`, Redis divides the entries among the
consumers of a group instead; the consumer acknowledges an entry after it has saved what it learned from it.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from pbodl.errors import InputError
from pbodl.streaming.sources.event_sink import packed
from pbodl.streaming.sources.event_source import Pack, StreamPosition

try:
    import redis
except ImportError as error:
    raise InputError("reading Redis streams needs its client: pip install 'pbodl[redis]'") from error

DATA = b"data"
LEARNED = "learned, not acknowledged"  # the part of a group's position that names entries
NOWHERE = (0, 0, 0)  # milliseconds and number of an entry, and how many there were up to it
ENTRIES = 2000  # in a pack, at most, where entries are small
BYTES = 1 << 21  # what a pack should hold
PAUSE = 0.25  # seconds before trying again to reach the server
LOST = (redis.ConnectionError, redis.TimeoutError, redis.BusyLoadingError)


class About(NamedTuple):
    """What Redis says about a stream."""

    added: int  # entries, ever
    length: int  # entries that are left
    first: tuple[int, int]  # of these
    last: tuple[int, int]  # ever


class RedisStream:
    """A stream; it waits for a server that goes away."""

    def __init__(self, address: str) -> None:
        self.name = address
        self.client, self.stream, options = connect(address)
        self.group, self.consumer = options.pop("group", None), options.pop("consumer", None)
        if options or (self.group is None) != (self.consumer is None):
            raise InputError(f"--source {address!r}: after ? only `db`, and `group` together with `consumer`, are allowed")
        self.reconnects = 0
        self._count = 16  # entries to ask for: grows where they are small
        self._acknowledged: set[str] = set()  # lately
        self._pending: str | None = "0-0"  # where to go on among the group's entries of before; None when there are no more

    def start(self, at: str) -> StreamPosition:
        if self.group is not None:
            with contextlib.suppress(redis.ResponseError):  # it is there already
                self.client.xgroup_create(self.stream, self.group, "0-0" if at == "start" else "$", mkstream=True)
        about = self._about()
        if at == "start":
            return StreamPosition({self.stream: (0, 0, about.added - about.length)})
        return StreamPosition({self.stream: (*about.last, about.added)})

    def check(self, after: StreamPosition) -> None:
        """A position also counts the entries up to it: if Redis has dropped more than that, some were never read."""
        if self.group is not None:
            return
        *mark, count = after.marks.get(self.stream, NOWHERE)
        about = self._about()
        if about.last < tuple(mark):
            raise InputError(
                f"{self.name} ends at {_id(about.last)}, before the saved position {_id(mark)}: the server has lost entries that "
                "were learned. Restore it from its append-only file, or start a new run"
            )
        if about.added - about.length > int(count) and about.first > tuple(mark):
            raise InputError(
                f"entries of {self.name} behind the saved position {_id(mark)} were trimmed before they were read; let the stream "
                "hold more (MAXLEN), and continue from what is left with --accept-gap"
            )

    def _about(self) -> "About":
        """What Redis says about the stream; waits for a server that is away."""
        while True:
            try:
                told = self.client.xinfo_stream(self.stream)
                first = told["first-entry"]
                last = _mark(told["last-generated-id"])
                return About(told["entries-added"], told["length"], _mark(first[0]) if first else last, last)
            except redis.ResponseError:
                return About(0, 0, (0, 0), (0, 0))  # there is no such stream yet
            except LOST:
                self.reconnects += 1
                time.sleep(PAUSE)

    def read(self, after: StreamPosition, wait: float) -> Pack:
        entries = self._patiently(lambda: self._entries(after, wait), [])
        if not entries:
            return Pack([], after)
        contents = [content(fields) for _, fields in entries]
        size = sum(map(len, contents)) / len(contents)
        self._count = int(min(max(BYTES / max(size, 1.0), 1), ENTRIES, 4 * self._count))
        *mark, count = after.marks.get(self.stream, NOWHERE)
        last = max(tuple(mark), *(_mark(number) for number, _ in entries))
        position = after.after(self.stream, (*last, int(count) + len(entries)))
        if self.group is not None:
            open_ones = [number for number in after.marks.get(LEARNED, ()) if number not in self._acknowledged]
            position = position.after(LEARNED, (*open_ones, *(number.decode() for number, _ in entries)))
        return Pack(contents, position)

    def _entries(self, after: StreamPosition, wait: float) -> list[tuple[bytes, dict[bytes, bytes]]]:
        block = max(int(wait * 1000), 1)
        if self.group is None:
            found = self.client.xread({self.stream: _id(after.marks.get(self.stream, NOWHERE))}, self._count, block)
            return found[0][1] if found else []
        return self._group_entries(set(after.marks.get(LEARNED, ())), block)

    def _group_entries(self, learned: set[int | str], block: int) -> list[tuple[bytes, dict[bytes, bytes]]]:
        """First what this consumer was given before and has not acknowledged, then what is new."""
        if self._pending is not None:
            found = self.client.xreadgroup(self.group, self.consumer, {self.stream: self._pending}, self._count)
            entries = found[0][1] if found else []
            self._pending = entries[-1][0].decode() if entries else None
            # One that was saved and not yet acknowledged must not be learned again; one that was deleted has no content.
            done = [number for number, fields in entries if fields is None or number.decode() in learned]
            if done:
                self.client.xack(self.stream, self.group, *done)
            entries = [entry for entry in entries if entry[0] not in done]
            if entries or done:
                return entries
        found = self.client.xreadgroup(self.group, self.consumer, {self.stream: ">"}, self._count, block)
        return found[0][1] if found else []

    def lag(self, after: StreamPosition) -> int | None:
        """Entries behind the position."""
        try:
            if self.group is not None:
                groups = self.client.xinfo_groups(self.stream)
                return next((about["lag"] for about in groups if about["name"].decode() == self.group), None)
            *mark, count = after.marks.get(self.stream, NOWHERE)
            told = self.client.xinfo_stream(self.stream)
            return 0 if _mark(told["last-generated-id"]) <= tuple(mark) else max(told["entries-added"] - int(count), 1)
        except redis.ResponseError:
            return 0  # there is no such stream yet
        except redis.RedisError:
            return None

    def ended(self, after: StreamPosition) -> bool:
        return self.lag(after) == 0 and (self.group is None or self._pending is None)

    @contextmanager
    def saving(self, position: StreamPosition) -> Iterator[None]:
        yield
        learned = position.marks.get(LEARNED, ())
        if learned and self._patiently(lambda: self.client.xack(self.stream, self.group, *learned), None) is not None:
            self._acknowledged = {str(number) for number in learned}

    def close(self) -> None:
        self.client.close()

    def _patiently(self, ask: Callable[[], Any], otherwise: Any) -> Any:
        """The server's answer; while it is away or loading, `otherwise`, after a pause."""
        try:
            return ask()
        except LOST:
            self.reconnects += 1
            time.sleep(PAUSE)
            return otherwise


class RedisSink:
    """Appends events to a stream, `pack` of them to an entry."""

    def __init__(self, address: str, pack: int = 500) -> None:
        self.client, self.stream, _ = connect(address)
        self._pack = pack

    def send(self, events: Sequence[Any]) -> None:
        """Append events, encoded as msgpack; returns when the server has them all."""
        pipe = self.client.pipeline(transaction=False)
        for message in packed(events, self._pack):
            pipe.xadd(self.stream, {DATA: message})
        pipe.execute()

    def close(self) -> None:
        self.client.close()


def connect(address: str) -> tuple[Any, str, dict[str, str]]:
    """A client of the server at an address, the stream's name, and the options behind the `?`."""
    parts = urlsplit(address)
    stream = unquote(parts.path.strip("/"))
    if not stream or parts.hostname is None:
        raise InputError(f"{address!r} does not name a stream; write redis://host:6379/stream")
    options = dict(parse_qsl(parts.query))
    database = options.pop("db", "0")
    if not database.isdigit():
        raise InputError(f"{address!r}: db is {database!r}; it must be a number")
    client = redis.Redis(
        parts.hostname, parts.port or 6379, int(database), unquote(parts.password) if parts.password else None,
        username=unquote(parts.username) if parts.username else None, ssl=parts.scheme == "rediss",
    )  # fmt: skip
    return client, stream, options


def content(fields: dict[bytes, bytes]) -> bytes:
    """The events of an entry: what its field `data` holds, or the entry's own fields as one."""
    if DATA in fields:
        return fields[DATA]
    texts = {name.decode("utf-8", "replace"): value.decode("utf-8", "replace") for name, value in fields.items()}
    return msgspec.msgpack.encode(texts)


def _mark(number: bytes) -> tuple[int, int]:
    milliseconds, _, sequence = bytes(number).decode().partition("-")
    return int(milliseconds), int(sequence or 0)


def _id(mark: Sequence[int | str]) -> str:
    return f"{mark[0]}-{mark[1]}"
