"""What has changed in a shard since it was last asked, for whoever keeps a copy of the whole model: the publisher of a cluster.

The caller numbers its requests, so that a request repeated after a lost answer gets the same answer. A shard that was restarted
does not know what it answered before, and sends everything.
"""

import numpy as np

from pbodl.models.contract import State
from pbodl.parallel.shard import Shard
from pbodl.publishing.delta import Mark, changes, mark, moved
from pbodl.system.tensors import Bytes, pack, unpack

FULL = "changes.full"


class ShardChanges:
    """The changes of one shard."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._mark: Mark | None = None
        self._number = 0  # of the last request
        self._answer = b""

    def since(self, number: Bytes, full: Bytes) -> bytes:
        """The answer to request `number`: what changed since the one before, or all there is (`full` is b"1")."""
        model = self._shard.model
        if int(number) == self._number:
            return self._answer
        whole = full == b"1" or self._mark is None or int(number) != self._number + 1 or moved(model, self._mark)
        state = model.state() if whole or self._mark is None else changes(model, self._mark)
        self._mark, self._number = mark(model), int(number)
        self._answer = pack(state | {FULL: np.array([whole])})
        return self._answer


def decode_changes(content: Bytes) -> tuple[State, bool]:
    """The state of the changed rows, or of all, and which of the two it is."""
    state: State = unpack(content)
    return state, bool(state.pop(FULL)[0])
