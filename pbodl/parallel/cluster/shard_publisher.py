"""A shard publishes its own rows, into its part of a model folder (`publishing.parts_manifest`).

The coordinator asks all shards for the same version: `begin` copies what has changed, and the shard goes on; `publish` writes it. A
repeated call does nothing twice. A shard that was restarted does not know what it published, and publishes everything.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from pbodl.parallel.shard import Shard
from pbodl.publishing.model_folder import ModelFolder
from pbodl.publishing.publisher import Publisher
from pbodl.system.forked_work import CopyFailed
from pbodl.system.tensors import Bytes


class PartRequest(NamedTuple):
    """What the coordinator asks for, as JSON."""

    folder: str  # of the whole model
    version: int
    shards: int
    compact: bool
    facts: dict[str, float | int | None]


class ShardPublisher:
    """Publishes one shard."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._publisher: Publisher | None = None
        self._begun: tuple[int, Callable[[], None]] | None = None

    def begin(self, request: Bytes) -> bytes:
        """Copy what has changed since the last version; the shard must not change meanwhile."""
        asked = msgspec.json.decode(request, type=PartRequest)
        if self._publisher is None:
            with _told():
                folder = ModelFolder(asked.folder).part(self._shard.number, asked.shards)
                self._publisher = Publisher(self._shard.model, folder, compact=asked.compact, alone=False)
        if self._begun is None or self._begun[0] != asked.version:
            self._begun = asked.version, self._publisher.begin(asked.version, asked.facts)
        return b""

    def publish(self, version: Bytes) -> bytes:
        """Write what `begin` copied; returns the lineage. The shard may learn meanwhile."""
        if self._begun is None or self._publisher is None or self._begun[0] != int(version):
            raise CopyFailed("the shard was restarted while it published")
        if self._publisher.version != int(version):
            with _told():
                self._begun[1]()
        return self._publisher.lineage.encode()


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Tell the coordinator what the operating system refuses, instead of having it repeat the call."""
    try:
        yield
    except OSError as error:
        raise CopyFailed(str(error)) from error
