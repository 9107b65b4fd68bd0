"""A shard that survives its process: the journal holds every acknowledged message, and a new process continues from it.

Calls and answers are bytes. The shard checks a message, writes it to the journal, applies it and acknowledges it, in this order. It
acknowledges a message that it applied before again, and does nothing else. If the shard is killed before the write, it has not
acknowledged the message, and the worker sends it again. If it is killed after the write, the successor applies the message from the
journal, and drops the repeat.
"""

from pathlib import Path

import numpy as np

from pbodl.models.deep_probit import DeepProbit
from pbodl.parallel.cluster.journal import Journal
from pbodl.parallel.cluster.work_format import encode_pulled
from pbodl.parallel.message import decode
from pbodl.parallel.shard import Shard, ShardEntry
from pbodl.system.tensors import Bytes, pack, unpack

LOG_BYTES = 64 << 20  # a shorter log is not worth a snapshot
LOG_SHARE = 2.0  # nor is one below this multiple of the last snapshot: the disk then takes at most 1.5 bytes per byte of messages


class DurableShard:
    """Shard `number`, restored from its journal in `folder` into the empty `model`. `write_first` makes the journal."""

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
        """The weights of keys (8 bytes each), and the last message of `source` that was applied."""
        entry = self.shard.ledger.get(source.decode(), ShardEntry())
        return encode_pulled(self.shard.pull(np.frombuffer(keys, np.uint64)), entry.sequence)

    def push(self, content: Bytes) -> bytes:
        """Apply a message, exactly once; returns the number of messages applied before it (8 bytes)."""
        message, version = decode(content), self.shard.version
        if not self.shard.has(message):
            self.shard.check(message)
            self.journal.append(content)
        self.shard.push(message)
        if self.journal.size > max(LOG_BYTES, LOG_SHARE * self.journal.state_size):
            self.journal.begin(self.state())
        return version.to_bytes(8, "little")

    def evidence(self) -> bytes:
        """The evidence about the prior in the shard's rows."""
        return pack({"evidence": self.shard.evidence()})

    def state(self) -> bytes:
        """The shard's state, with its ledger."""
        return pack(self.shard.state())


def write_first(shard: Shard, folder: str | Path) -> None:
    """Start the journal of a shard."""
    journal = Journal(folder)
    journal.begin(pack(shard.state()))
    journal.close()
