"""Where events are sent: a file of JSON lines, a Redis stream, or a Kafka topic. For trials, tests and dead letters."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from pbodl.errors import InputError
from pbodl.system.addresses import without_secrets


class Sink(Protocol):
    def send(self, events: Sequence[Any]) -> None:
        """Append events in their order; returns when they are safe."""
        ...

    def close(self) -> None: ...


def packed(events: Sequence[Any], pack: int) -> Iterator[bytes]:
    """The events as msgpack, `pack` of them to a message."""
    for first in range(0, len(events), pack):
        yield msgspec.msgpack.encode(events[first] if pack == 1 else events[first : first + pack])


class FileSink:
    """Appends JSON lines to a file."""

    def __init__(self, path: str) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        self._file = open(path, "ab")  # noqa: SIM115

    def send(self, events: Sequence[Any]) -> None:
        self._file.write(b"".join(msgspec.json.encode(event) + b"\n" for event in events))
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def open_sink(address: str, pack: int = 500) -> Sink:
    """The sink at an address: redis://host:port/stream, kafka://host:port/topic, or a .jsonl file; `pack` events to a message."""
    scheme = address.partition("://")[0] if "://" in address else ""
    if pack < 1:
        raise InputError(f"the pack is {pack}; it must be at least 1 event")
    if scheme in ("redis", "rediss"):
        from pbodl.streaming.sources.redis_stream import RedisSink

        return RedisSink(address, pack)
    if scheme == "kafka":
        from pbodl.streaming.sources.kafka_sink import KafkaSink

        return KafkaSink(address, pack)
    if scheme or not address.endswith(".jsonl"):
        raise InputError(
            f"cannot send to {without_secrets(address)!r}; give redis://host:port/stream, kafka://host:port/topic, or a .jsonl file"
        )
    return FileSink(address)
