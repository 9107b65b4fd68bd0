"""A shard that survives its process: what is acknowledged is in the journal, and a new process goes on from there.

Everything comes and goes as bytes. A message is checked, written, applied, acknowledged, in this order; one that was applied before
is acknowledged again, and nothing else. Killed before the write, it was never acknowledged, and the worker sends it again; killed
after it, the successor applies it from the journal, and drops the repeat.
"""

from pathlib import Path

import numpy as np

from pbodl.models.deep_probit import DeepProbit
from pbodl.parallel.cluster.journal import Journal
from pbodl.parallel.cluster.work_format import encode_pulled
from pbodl.parallel.message import decode
from pbodl.parallel.shard import Shard, ShardEntry
from pbodl.system.tensors import Bytes, pack, unpack

LOG_BYTES = 64 << 20  # a log shorter than this is not worth a snapshot
LOG_SHARE = 2.0  # nor one shorter than this multiple of the last snapshot: writing is then at most 1.5 times the messages


class DurableShard:
    """Shard `number`, as its journal in `folder` has it; `model` is an empty one of its kind. `write_first` makes the journal."""

    def __init__(self, model: DeepProbit, number: int, folder: str | Path, sync: bool = False) -> None:
        self.shard = Shard(model, number)
        self.journal = Journal(folder, sync)
        state, records = self.journal.restore()
        self.shard.load_state(unpack(state))
        self.replayed = 0
        for record in records:
            self.shard.push(decode(record))
            self.replayed += 1
        self.journal.begin(self.state())

    def pull(self, source: Bytes, keys: Bytes) -> bytes:
        """The weights of keys (8 bytes each), and which message of `source` was applied last."""
        entry = self.shard.ledger.get(source.decode(), ShardEntry())
        return encode_pulled(self.shard.pull(np.frombuffer(keys, np.uint64)), entry.sequence)

    def push(self, content: Bytes) -> bytes:
        """Apply a message, exactly once; answers with the number of messages applied before it (8 bytes)."""
        message, version = decode(content), self.shard.version
        if not self.shard.has(message):
            self.shard.check(message)
            self.journal.append(content)
        self.shard.push(message)
        if self.journal.size > max(LOG_BYTES, LOG_SHARE * self.journal.state_size):
            self.journal.begin(self.state())
        return version.to_bytes(8, "little")

    def evidence(self) -> bytes:
        """What the shard's rows say about the prior."""
        return pack({"evidence": self.shard.evidence()})

    def state(self) -> bytes:
        """The shard's state, the ledger inside."""
        return pack(self.shard.state())


def write_first(shard: Shard, folder: str | Path) -> None:
    """Begin the journal of a shard."""
    journal = Journal(folder)
    journal.begin(pack(shard.state()))
    journal.close()
