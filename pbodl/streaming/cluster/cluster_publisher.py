"""Publishes the model of a cluster: every shard writes its own part, and then a manifest makes the parts a version.

What belongs to a version: the rows of every shard as they are between two messages, the same prior in all of them, and shard 0's
weights that are not rows. Messages that were under way, at most one minibatch of each worker, may be in some parts and not yet in
others; that is what workers pull, too. They are in all parts of the next version.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from pbodl.errors import InputError
from pbodl.parallel.cluster.shard_publisher import PartRequest
from pbodl.publishing.model_folder import ModelFolder
from pbodl.publishing.parts_manifest import newest_version, write_parts
from pbodl.system.folder_lock import FolderLock

logger = logging.getLogger(__name__)


class PublishingShards(Protocol):
    """What a publisher asks of a cluster."""

    def begin_publish(self, request: bytes) -> None: ...

    def publish(self, version: int) -> list[str]: ...


class ClusterPublisher:
    """Publishes to a folder that all shards reach: a path, or an address such as s3://bucket/models/live.

    version  the newest that servers can have
    """

    def __init__(self, cluster: PublishingShards, folder: str, shards: int, every: float, compact: bool) -> None:
        self._cluster, self._shards, self.every, self._compact = cluster, shards, every, compact
        self.folder = ModelFolder(folder)
        local = self.folder.local_path
        if local is not None:
            local.mkdir(parents=True, exist_ok=True)
        self._place = self.folder.location if local is None else str(local)
        lock = FolderLock(local, "publishing a model") if local is not None else None
        self._release: Callable[[], object] = lambda: None if lock is None else lock.release()
        self.version = self._asked = newest_version(self.folder, shards)
        self._rows: int | None = None  # learned when the last version was begun
        self._begun_at = float("-inf")
        self._writing: threading.Thread | None = None
        self._failure: Exception | None = None

    @property
    def is_due(self) -> bool:
        """Whether it is time, and the version before is written."""
        ready = self._writing is None or not self._writing.is_alive()
        return ready and time.monotonic() - self._begun_at >= self.every

    def publish(self, rows_learned: int, facts: dict[str, Any], wait: bool = False) -> None:
        """Begin a version, if anything was learned since the last; raises what went wrong with the one before.

        wait  until it is written
        """
        if self._writing is not None:
            self._writing.join()
        self._begun_at = time.monotonic()
        failure, self._failure = self._failure, None
        if failure is None and rows_learned == self._rows:
            return
        self._asked += 1
        version, moment, self._rows = self._asked, time.time(), rows_learned
        request = PartRequest(self._place, version, self._shards, self._compact, facts)
        try:
            self._cluster.begin_publish(msgspec.json.encode(request))
        except InputError as error:
            raise OSError(str(error)) from error
        self._writing = threading.Thread(target=self._write, args=(version, moment, facts), daemon=True)
        self._writing.start()
        if wait:
            self._writing.join()
            failure, self._failure = failure or self._failure, None
        if failure is not None:
            raise failure

    def _write(self, version: int, moment: float, facts: dict[str, Any]) -> None:
        try:
            write_parts(self.folder, version, self._cluster.publish(version), moment, facts)
            self.version = version
        except (OSError, InputError) as error:
            self._failure = error if isinstance(error, OSError) else OSError(str(error))
            logger.warning("version %d was given up, and the next one takes its place: %s", version, error)
        except Exception as error:
            self._failure = error
            logger.exception("version %d failed", version)

    def close(self) -> None:
        """Let another process publish there."""
        if self._writing is not None:
            self._writing.join(60.0)
        self._release()
