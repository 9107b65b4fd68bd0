"""A Redis stream as a source and as a sink of events: redis://host:port/stream?db=0.

An entry holds its events in the field `data` (one event, or an array of many), or is itself one event, field by field. A reader
reads by position, and several readers each read everything. With `?group=G&consumer=C`, Redis divides the entries among the
consumers of a group instead; the consumer acknowledges an entry after it has saved what it learned from it.

The password comes from the environment (PBODL_REDIS_PASSWORD) or from a file (`?password_file=...`), never from the address. Every
call has a timeout: a server that does not answer is away, and reading waits for it.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from pbodl.errors import InputError
from pbodl.streaming.sources.event_sink import packed
from pbodl.streaming.sources.event_source import Away, Pack, StreamPosition
from pbodl.streaming.sources.redis_gaps import NO_STREAM, About, about, continued, entry_id, lost_to_group, written
from pbodl.system.addresses import refuse_secrets, secret_from, without_secrets
from pbodl.system.extras import install_line

try:
    import redis
    from redis import exceptions
    from redis.backoff import NoBackoff
    from redis.retry import Retry
except ImportError as error:
    raise InputError(f"reading Redis streams needs its client; run: {install_line('redis')}") from error

T = TypeVar("T")
DATA = b"data"
LEARNED = "learned, not acknowledged"  # the part of a group's position that names entries
MISSED = "missed"  # the part that counts the entries that the group has lost, and this run accepted
NOWHERE = (0, 0, 0)  # milliseconds and number of an entry, and how many there were up to it
ENTRIES = 2000  # in a pack, at most, where entries are small
BYTES = 1 << 21  # what a pack should hold
MOST_DATABASES = 1 << 20
PAUSE = 0.25  # seconds before trying again to reach the server
ANSWER = 0.9  # seconds that the server has for an answer
SENT = 10.0  # seconds that it has to take events
AGAIN = 2.0  # seconds after which a server that was away has surely handled what it was asked before
VARIABLE = "PBODL_REDIS_PASSWORD"
INSTEAD = f"set {VARIABLE}, or name a file that holds the password: redis://host:6379/stream?password_file=FILE"
REFUSED = (exceptions.AuthenticationError, exceptions.AuthorizationError, exceptions.NoPermissionError)
LOST = (exceptions.ConnectionError, exceptions.TimeoutError, exceptions.TryAgainError, exceptions.ClusterDownError)


class RedisStream:
    """A stream; it waits for a server that goes away."""

    def __init__(self, address: str) -> None:
        self.name = address
        self.client, self.stream, options = connect(address)
        self.group, self.consumer = options.pop("group", None), options.pop("consumer", None)
        if options or (self.group is None) != (self.consumer is None):
            raise InputError(
                f"--source {address!r}: after ? only `db`, `password_file`, and `group` together with `consumer`, are allowed"
            )
        self.kind = f"the Redis stream {self.stream!r}"
        self.reconnects = 0
        self.away: str | None = None
        self._count = 16  # entries to ask for: grows where they are small
        self._acknowledged: set[str] = set()  # lately
        self._pending: str | None = "0-0"  # where to go on among the group's entries of before; None when there are no more
        self._again = float("inf")  # when to look for such entries once more
        self._saved: set[int | str] | None = None  # entries that the newest snapshot has learned

    def start(self, at: str) -> StreamPosition:
        if self.group is not None:
            self._ask(lambda: self._make_group("0-0" if at == "start" else "$"))
        stream = self._about()
        if at == "start":
            return StreamPosition({self.stream: (0, 0, stream.added - stream.length)})
        return StreamPosition({self.stream: (*stream.last, stream.added)})

    def _make_group(self, begin: str) -> None:
        try:
            self.client.xgroup_create(self.stream, self.group, begin, mkstream=True)
        except redis.ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):  # it is there already
                raise

    def _about(self) -> About:
        """What Redis says about the stream."""
        told = self._ask(self._info)
        return NO_STREAM if told is None else about(told)  # there may be no such stream yet

    def _info(self) -> Any:
        """The answer to XINFO STREAM; None if there is no such stream."""
        try:
            return self.client.xinfo_stream(self.stream)
        except redis.ResponseError as error:
            if "no such key" not in str(error):
                raise
            return None

    def read(self, after: StreamPosition, wait: float) -> Pack:
        try:
            return self._ask(lambda: self._read(after, wait))
        except Away:
            time.sleep(PAUSE)
            return Pack([], after)

    def _read(self, after: StreamPosition, wait: float) -> Pack:
        once = self._read_group if self.group is not None else self._read_all
        if (pack := once(after)) or pack.position != after or self._pending_left:
            return pack
        self._wait(after, wait)
        return once(after)

    @property
    def _pending_left(self) -> bool:
        return self.group is not None and self._pending is not None

    def _wait(self, after: StreamPosition, wait: float) -> None:
        """Wait until there is an entry behind the last that was read, or delivered to the group."""
        behind = written(after.marks.get(self.stream, NOWHERE))
        if self.group is not None:
            behind = written(entry_id(self._told_group(self.client.xinfo_groups(self.stream))["last-delivered-id"]))
        self.client.xread({self.stream: behind}, 1, max(int(min(wait, ANSWER / 2) * 1000), 1))

    def _read_all(self, after: StreamPosition) -> Pack:
        """Entries behind the position, together with what Redis says about the stream at that moment."""
        *at, count = after.marks.get(self.stream, NOWHERE)
        mark, requested = (int(at[0]), int(at[1])), self._count
        pipe = self.client.pipeline(transaction=True)
        pipe.xread({self.stream: written(mark)}, requested)
        pipe.xrange(self.stream, written(mark), written(mark), 1)
        pipe.xinfo_stream(self.stream)
        read, here, told = pipe.execute(raise_on_error=False)
        stream = _stream_of(told)
        entries = read[0][1] if read else []
        go_on = continued(mark, int(count), stream, bool(here), len(entries), requested)
        last = max([go_on.mark, *(entry_id(number) for number, _ in entries)])
        position = after.after(self.stream, (*last, go_on.up_to + len(entries)))
        return Pack(self._contents(entries), position, go_on.gap)

    def _contents(self, entries: Sequence[tuple[bytes, dict[bytes, bytes]]]) -> list[bytes]:
        """The events of entries; adapts how many to ask for next."""
        contents = [content(fields) for _, fields in entries]
        if contents:
            size = sum(map(len, contents)) / len(contents)
            self._count = int(min(max(BYTES / max(size, 1.0), 1), ENTRIES, 4 * self._count))
        return contents

    def _read_group(self, after: StreamPosition) -> Pack:
        """First what this consumer was given before and has not acknowledged, then what is new."""
        learned = set(after.marks.get(LEARNED, ()))
        if self._saved is None:
            self._saved = learned  # the first position comes from the snapshot
        if time.monotonic() >= self._again:
            self._pending, self._again = "0-0", float("inf")
        pipe = self.client.pipeline(transaction=True)
        groups, told = pipe.xinfo_groups(self.stream).xinfo_stream(self.stream).execute(raise_on_error=False)
        stream, known = _stream_of(told), int(after.marks.get(MISSED, (0,))[0])
        group = self._told_group([] if stream is NO_STREAM else groups)
        if lost := lost_to_group(group, stream, known):
            reason = f"{lost} entries were trimmed or deleted before the group {self.group!r} had read them"
            return Pack([], after.after(MISSED, (known + lost,)), reason)
        entries, gone = self._given_before(self._pending, learned) if self._pending is not None else ([], [])
        if not entries and self._pending is None:
            found = self.client.xreadgroup(self.group, self.consumer, {self.stream: ">"}, self._count)
            entries = found[0][1] if found else []
        if not entries and not gone:
            return Pack([], after)
        *mark, count = after.marks.get(self.stream, NOWHERE)
        last = max([tuple(mark), *(entry_id(number) for number, _ in entries)])
        open_ones = [number for number in after.marks.get(LEARNED, ()) if number not in self._acknowledged]
        numbers = [number.decode() for number in (*gone, *(number for number, _ in entries))]
        position = after.after(self.stream, (*last, int(count) + len(entries))).after(LEARNED, (*open_ones, *numbers))
        reason = f"{len(gone)} entries were trimmed or deleted after {self.consumer!r} had read them, and before it had saved"
        return Pack(self._contents(entries), position, reason if gone else None)

    def _told_group(self, groups: list[dict[str, Any]]) -> dict[str, Any]:
        told = next((group for group in groups if group["name"].decode() == self.group), None)
        if told is None:
            raise InputError(
                f"{self.name} has no group {self.group!r} any more: the server has lost it. Restore it from its append-only file, "
                "or make the group again (XGROUP CREATE) where it should continue"
            )
        return told

    def _given_before(self, behind: str, learned: set[int | str]) -> tuple[list[tuple[bytes, dict[bytes, bytes]]], list[bytes]]:
        """Entries that this consumer was given and has neither learned nor acknowledged, and the ids of those that are gone."""
        found = self.client.xreadgroup(self.group, self.consumer, {self.stream: behind}, self._count)
        entries = found[0][1] if found else []
        self._pending = entries[-1][0].decode() if entries else None
        # One that was saved and not yet acknowledged must not be learned again; one that was deleted has no fields.
        saved = [number for number, _ in entries if number.decode() in (self._saved or ())]
        if saved:
            self.client.xack(self.stream, self.group, *saved)
        new = [entry for entry in entries if entry[0] not in saved and entry[0].decode() not in learned]
        return [entry for entry in new if entry[1]], [number for number, fields in new if not fields]

    def lag(self, after: StreamPosition) -> int | None:
        """Entries behind the position."""
        if self.away is not None:
            return None
        try:
            stream = self._about()
            if self.group is not None and stream is not NO_STREAM:
                lag = self._told_group(self._ask(lambda: self.client.xinfo_groups(self.stream)))["lag"]
                return None if lag is None else max(int(lag) - int(after.marks.get(MISSED, (0,))[0]), 0)
        except Away:
            return None
        *mark, count = after.marks.get(self.stream, NOWHERE)
        return 0 if stream.last <= tuple(mark) else max(stream.added - int(count), 0)

    def ended(self, after: StreamPosition) -> bool:
        return self.lag(after) == 0 and (self.group is None or self._pending is None)

    @contextmanager
    def saving(self, position: StreamPosition) -> Iterator[None]:
        yield
        learned = position.marks.get(LEARNED, ())
        self._saved = set(learned)
        if learned and self.away is None:
            with suppress(Away, InputError):  # the next save acknowledges them; reading tells what is wrong
                self._ask(lambda: self.client.xack(self.stream, self.group, *learned))
                self._acknowledged = {str(number) for number in learned}

    def close(self) -> None:
        self.client.close()

    def _ask(self, call: Callable[[], T]) -> T:
        """The server's answer; `Away` if there is none. It may have handled what it was asked: a group then looks again."""
        try:
            answer = asked(self.name, call)
        except Away as error:
            self.reconnects += 1
            self.away, self._pending, self._again = str(error), "0-0", float("inf")
            raise
        if self.away is not None:
            self.away, self._again = None, time.monotonic() + AGAIN
        return answer


class RedisSink:
    """Appends events to a stream, `pack` of them to an entry."""

    def __init__(self, address: str, pack: int = 500) -> None:
        self.name = without_secrets(address)
        self.client, self.stream, options = connect(address, SENT)
        if options:
            raise InputError(f"{self.name}: after ? only `db` and `password_file` are allowed")
        self._pack = pack

    def send(self, events: Sequence[Any]) -> None:
        """Append events, encoded as msgpack; returns when the server has them all."""
        pipe = self.client.pipeline(transaction=False)
        for message in packed(events, self._pack):
            pipe.xadd(self.stream, {DATA: message})
        asked(self.name, pipe.execute)

    def close(self) -> None:
        self.client.close()


def connect(address: str, patience: float = ANSWER) -> tuple[Any, str, dict[str, str]]:
    """A client of the server at an address, the stream's name, and the options behind the `?`."""
    refuse_secrets(address, INSTEAD)
    shown = without_secrets(address)
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port or 6379
    except ValueError as error:
        raise InputError(f"{shown!r} is not an address ({error}); write redis://host:6379/stream") from None
    stream = unquote(parts.path.strip("/"))
    if not stream or host is None:
        raise InputError(f"{shown!r} does not name a stream; write redis://host:6379/stream")
    options = dict(parse_qsl(parts.query))
    database = options.pop("db", "0")
    if not database.isdecimal() or int(database) > MOST_DATABASES:
        raise InputError(f"{shown!r}: db is {database!r}; it must be a number from 0 to {MOST_DATABASES}")
    password = secret_from(options.pop("password_file", None), VARIABLE)
    client = redis.Redis(
        host, port, int(database), password, username=unquote(parts.username) if parts.username else None,
        ssl=parts.scheme == "rediss", socket_timeout=patience, socket_connect_timeout=patience, retry=Retry(NoBackoff(), 0),
    )  # fmt: skip
    return client, stream, options


def asked(name: str, call: Callable[[], T]) -> T:
    """A server's answer. `Away` if it does not answer or is not ready yet; InputError if it refuses for good."""
    try:
        return call()
    except REFUSED as error:
        raise InputError(
            f"{name} refuses the login ({error}); check the user in the address and its password: {INSTEAD}"
        ) from error
    except LOST as error:
        timeout = isinstance(error, redis.TimeoutError)
        raise Away(f"{name} does not answer" + (" in time" if timeout else f": {str(error).rstrip('.')}")) from error
    except redis.ResponseError as error:
        if "WRONGTYPE" in str(error):
            raise InputError(f"{name}: the key is not a stream; give the name of a stream, or delete the key") from error
        raise InputError(f"{name} refuses a command: {error}") from error
    except (redis.RedisError, UnicodeError) as error:
        raise InputError(f"{name} cannot be used: {error}") from error


def content(fields: dict[bytes, bytes]) -> bytes:
    """The events of an entry: what its field `data` holds, or the entry's own fields as one."""
    if DATA in fields:
        return fields[DATA]
    texts = {name.decode("utf-8", "replace"): value.decode("utf-8", "replace") for name, value in fields.items()}
    return msgspec.msgpack.encode(texts)


def _stream_of(told: Any) -> About:
    """What a pipeline's answer to XINFO STREAM says; an answer that is an error is raised, unless there is no such stream."""
    if isinstance(told, redis.ResponseError) and "no such key" in str(told):
        return NO_STREAM
    if isinstance(told, Exception):
        raise told
    return about(told)
