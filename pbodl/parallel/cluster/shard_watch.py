"""Replaces shards that hang: processes that do not answer, and are not dead for the engine, such as one that was stopped.

Every shard is asked, by a thread of its own, whether it answers. If it is silent for longer than the limit, it is killed, and the
engine starts another process, which continues from the journal. Should the old one live on somewhere, the journal has another owner
by then, and refuses it. A shard that is being restored has ten times as long: its journal may be large.
"""

import logging
import math
import threading
import time
from collections.abc import Sequence
from functools import partial

from pbodl.errors import InputError
from pbodl.parallel.cluster.ray_actors import Actors
from pbodl.parallel.cluster.remote_calls import Address, CallClients

logger = logging.getLogger(__name__)
RESTORED = 10.0  # times the limit: what a shard has to start again
OFTEN = 10.0  # questions within the limit
LEAST = 1.0


def check_limit(seconds: float) -> None:
    """Refuse a limit that would kill shards at work."""
    if not LEAST <= seconds < math.inf:
        raise InputError(f"shard_timeout is {seconds:g}; it must be a number of seconds, {LEAST:g} or more")


class ShardWatch:
    """Watches the shards `names`. `callers` are the clients of this process: they ask anew when a shard was replaced.

    replaced  how many shards were taken for hung
    """

    def __init__(self, actors: Actors, names: Sequence[str], token: bytes, limit: float, callers: Sequence[CallClients]) -> None:
        self._actors, self._names, self._limit, self._callers = actors, names, limit, callers
        self.replaced = 0
        self._closed = threading.Event()
        self._since = [time.monotonic()] * len(names)  # when the shards were asked
        self._clients = [
            CallClients(1, partial(self._find, number), token, limit, partial(self._replace, number))
            for number in range(len(names))
        ]
        for watched in enumerate(self._clients):
            threading.Thread(target=self._watch, args=watched, name="pbodl-shard-watch", daemon=True).start()

    def _find(self, number: int, _: int) -> Address:
        if self._closed.is_set():
            raise ConnectionError("closed")
        began = time.monotonic()
        address = self._actors.address(self._names[number], RESTORED * self._limit)
        self._since[number] += time.monotonic() - began  # it was being restored, and not silent
        return address

    def _replace(self, number: int, _: int) -> None:
        if time.monotonic() - self._since[number] < self._limit:
            return  # a connection that took too long: the network may come back
        logger.warning("shard %d has not answered for %.0f s, and is started again from its journal", number, self._limit)
        self.replaced += 1
        self._actors.restart(self._names[number])
        for caller in self._callers:
            caller.ask_again()  # on a machine that hangs as a whole, nothing ends the connection
        self._since[number] = time.monotonic()

    def _watch(self, number: int, client: CallClients) -> None:
        while not self._closed.wait(self._limit / OFTEN):
            self._since[number] = time.monotonic()
            try:
                client.ask([("alive", ())])
            except (ConnectionError, InputError):
                return  # closed; or it cannot be started again, which other callers hear, too
            except Exception:
                if self._closed.is_set():
                    return  # the engine has just ended
                raise

    def close(self) -> None:
        self._closed.set()
        for client in self._clients:
            client.close()
