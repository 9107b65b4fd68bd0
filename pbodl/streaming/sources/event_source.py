"""Where events come from: one small interface to a file, a Redis stream or a Kafka topic.

A source reads what follows a position, and does not remember what it read before. A learner that saves the position together with
what it learned up to there continues without a gap or an overlap. A position has a mark for each part of the source that is ordered
by itself (a file, a stream, a partition); it is plain data, and comparable.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from pbodl.data.log.row_blocks import Layout
from pbodl.errors import InputError, WorkError
from pbodl.streaming.events import Contents
from pbodl.system.addresses import without_secrets

Mark = tuple[int | str, ...]


class StreamPosition:
    """How far each part of a source was read.

    >>> start, later = StreamPosition(), StreamPosition({"0": (17,), "1": (4,)})
    >>> start <= later, later <= start, StreamPosition.of(later.plain()) == later
    (True, False, True)
    """

    def __init__(self, marks: Mapping[str, Mark] | None = None) -> None:
        self.marks = dict(marks or {})

    def after(self, part: str, mark: Mark) -> "StreamPosition":
        """This position, further on in one part."""
        return StreamPosition(self.marks | {part: mark})

    def plain(self) -> dict[str, list[int | str]]:
        """As JSON takes it."""
        return {part: list(mark) for part, mark in self.marks.items()}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> "StreamPosition":
        """The position that `plain()` wrote."""
        return cls({part: tuple(mark) for part, mark in plain.items()})

    def __le__(self, other: "StreamPosition") -> bool:
        """Whether no part was read further than in the other."""
        return all(part in other.marks and mark <= other.marks[part] for part, mark in self.marks.items())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StreamPosition) and self.marks == other.marks

    def __hash__(self) -> int:
        return hash(frozenset(self.marks.items()))

    def __repr__(self) -> str:
        return f"StreamPosition({self.marks})"


class Pack(NamedTuple):
    """What a read gives: contents in their order, and the position after them.

    Contents are messages of one event or of many (JSON, JSON lines or msgpack), lines of JSON, or rows.
    """

    contents: Contents
    position: StreamPosition
    gap: str | None = None  # what was lost before these contents

    def __bool__(self) -> bool:
        return len(self.contents) > 0 or self.gap is not None


class Lost(Exception):
    """Another reader now reads what was read since the last save; only the snapshot is still right.

    void  not even the newest snapshot is right: the one before it is
    """

    def __init__(self, told: str, void: bool = False) -> None:
        super().__init__(told)
        self.void = void


class Away(WorkError):
    """The broker does not answer now, and may do so later; the message says why. Reading again is the way to wait for it."""


class EventSource(Protocol):
    """What `pbodl online` reads from. `start` raises `Away` while the broker does not answer."""

    name: str  # as people write it
    kind: str  # what a run must read from when it continues; hosts and folders may change
    away: str | None  # why the broker does not answer, while that lasts
    reconnects: int  # times that the broker did not answer

    def start(self, at: str) -> StreamPosition:
        """The position before the first event ("start"), or after the last ("end")."""
        ...

    def read(self, after: StreamPosition, wait: float) -> Pack:
        """What follows the position; waits up to `wait` seconds for it, and then returns an empty pack, as while `away`.

        If what followed the position is gone, the pack has a gap, and continues behind it.
        """
        ...

    def lag(self, after: StreamPosition) -> int | None:
        """How much follows the position, in entries, messages or bytes; None if that is unknown."""
        ...

    def ended(self, after: StreamPosition) -> bool:
        """Whether nothing follows the position now."""
        ...

    def saving(self, position: StreamPosition) -> AbstractContextManager[None]:
        """Surrounds the writing of a snapshot at a position.

        Raises `Lost` if the snapshot would be void, or, after it was written, if it is; `Away`, before it is written, if the broker
        must agree and does not answer.
        """
        ...

    def close(self) -> None: ...


def open_source(address: str, smoothly: bool = False, layout: Layout = Layout()) -> EventSource:  # noqa: B008
    """The source at an address: redis://host:port/stream, kafka://host:port/topic, or a file or folder.

    smoothly  small packs
    layout    what the schema says of CSV files
    """
    scheme = address.partition("://")[0] if "://" in address else ""
    if scheme in ("redis", "rediss"):
        from pbodl.streaming.sources.redis_stream import RedisStream

        return RedisStream(address)
    if scheme == "kafka":
        from pbodl.streaming.sources.kafka_topic import KafkaTopic

        return KafkaTopic(address)
    if scheme:
        raise InputError(
            f"--source {without_secrets(address)!r}: streams are read from redis://, kafka://, or a local file or folder"
        )
    from pbodl.streaming.sources.followed_files import PIECE, SMOOTH, FollowedFiles

    return FollowedFiles(address, SMOOTH if smoothly else PIECE, layout)
