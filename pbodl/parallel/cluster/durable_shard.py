"""A shard that survives its process: the journal holds every acknowledged message, and a new process continues from it.

Calls and answers are bytes. The shard checks a message, writes it to the journal, applies it and acknowledges it, in this order. It
acknowledges a message that it applied before again, and does nothing else. If the shard is killed before the write, it has not
acknowledged the message, and the worker sends it again. If it is killed after the write, the successor applies the message from the
journal, and drops the repeat.

A copy of the process (`system.forked_work`) writes what is large: the state that replaces a long log, and the shard's part of a
snapshot of the run. The shard itself waits only while the operating system makes that copy.
"""

import copy
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from pbodl.models.deep_probit import DeepProbit
from pbodl.models.snapshot import shard_part, write_part
from pbodl.parallel.cluster.journal import Journal
from pbodl.parallel.cluster.work_format import encode_pulled
from pbodl.parallel.message import decode
from pbodl.parallel.shard import Shard, ShardEntry
from pbodl.system.forked_work import CopyFailed, in_a_copy
from pbodl.system.patience import when_there_is_room
from pbodl.system.tensors import Bytes, pack, unpack

SUMMED = ("features", "evicted", "expired")  # counters that every shard has for itself
CLAIM = b"\xff" * 8  # begins the record of a claim; a message begins with the length of its header, which is far smaller
LOG_BYTES = 64 << 20  # a shorter log is not worth a snapshot
LOG_SHARE = 2.0  # nor is one below this multiple of the last snapshot: the disk then takes at most 1.5 bytes per byte of messages


class AboutShard(NamedTuple):
    """What a shard says about itself."""

    counters: dict[str, int]  # of its model
    ledger: dict[str, ShardEntry]
    variance: float  # predictive
    file: dict[str, Any] | None = None  # what the manifest of a snapshot says about its part


class DurableShard:
    """Shard `number`, restored from its journal in `folder` into the empty `model`. `write_first` makes the journal."""

    def __init__(self, model: DeepProbit, number: int, folder: str | Path, sync: bool = False) -> None:
        self.shard = Shard(model, number)
        self.journal = Journal(folder, sync)
        state, records = when_there_is_room(self.journal.restore, f"shard {number}")
        self.shard.load_state(unpack(state))
        self.replayed = 0
        for record in records:
            if record.startswith(CLAIM):
                self.shard.claim(*msgspec.json.decode(record[len(CLAIM) :]))
            else:
                self.shard.push(decode(record))
            self.replayed += 1
        # A process that ended here would not be started again.
        when_there_is_room(lambda: self.journal.begin(self.state()), f"shard {number}")
        self._compacting: threading.Thread | None = None
        self._saving: tuple[str, AboutShard, Callable[[], bytes]] | None = None

    def pull(self, source: Bytes, keys: Bytes) -> bytes:
        """The weights of keys (8 bytes each), and the last message of `source` that was applied."""
        entry = self.shard.ledger.get(source.decode(), ShardEntry())
        return encode_pulled(self.shard.pull(np.frombuffer(keys, np.uint64)), entry.sequence)

    def claim(self, source: Bytes, epoch: Bytes) -> bytes:
        """Let only the process with this epoch send messages of a source; returns the last sequence applied, and the rows so far.

        If another shard has one message more, its rows are the difference; the new process must send just these again.
        """
        name, number = source.decode(), int(epoch)
        self.shard.check_owner(name, number)
        self.journal.append(CLAIM + msgspec.json.encode((name, number)))
        entry = self.shard.claim(name, number)
        return msgspec.json.encode((entry.sequence, entry.rows))

    def push(self, content: Bytes, epoch: Bytes | None = None) -> bytes:
        """Apply a message, exactly once; returns the number of messages applied before it (8 bytes).

        epoch  of the sender, where the source was claimed
        """
        message, version = decode(content), self.shard.version
        if epoch is not None:
            self.shard.check_owner(message.source, int(epoch))
        if not self.shard.has(message):
            self.shard.check(message)
            self.journal.append(content)
        self.shard.push(message)
        if self.journal.size > max(LOG_BYTES, LOG_SHARE * self.journal.state_size):
            self._compact()
        return version.to_bytes(8, "little")

    def _compact(self) -> None:
        """Replace a long log by a state, unless the last replacement is still being written."""
        if self._compacting is not None and self._compacting.is_alive():
            return
        number = self.journal.roll()

        def write() -> bytes:
            state = self.state()
            self.journal.write_state(number, state)
            return len(state).to_bytes(8, "little")

        written = in_a_copy(write)

        def finish() -> None:
            try:
                self.journal.drop_before(number, int.from_bytes(written(), "little"))
            except CopyFailed:
                return  # the old state and both logs still hold everything; the next long log tries again

        self._compacting = threading.Thread(target=finish, daemon=True)
        self._compacting.start()

    def begin_save(self, folder: Bytes) -> bytes:
        """Begin to write this shard's part of a snapshot, as it is now; `saved` waits for it. Returns what `about` does."""
        shard, place, about = self.shard, folder.decode(), self._about()
        written = in_a_copy(lambda: msgspec.json.encode(write_part(place, shard_part(shard.number), shard.state())))
        self._saving = place, about, written
        return msgspec.json.encode(about)

    def saved(self, folder: Bytes) -> Callable[[], bytes]:
        """A function that waits until the part is written, and returns `AboutShard`, JSON; it needs no lock."""
        if self._saving is None or self._saving[0] != folder.decode():
            raise CopyFailed("the shard was restarted while it saved")
        _, about, written = self._saving
        self._saving = None
        return lambda: msgspec.json.encode(about._replace(file=msgspec.json.decode(written())))

    def about(self) -> bytes:
        """The shard's counters and its ledger (`AboutShard`, JSON)."""
        return msgspec.json.encode(self._about())

    def _about(self) -> "AboutShard":
        return AboutShard(self.shard.model.metrics(), copy.deepcopy(self.shard.ledger), self.shard.predictive_variance)

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


def decode_about(answers: Sequence[Bytes]) -> list[AboutShard]:
    """What the shards said."""
    return [msgspec.json.decode(answer, type=AboutShard) for answer in answers]


def counters_of(shards: Sequence[AboutShard]) -> dict[str, int]:
    """The counters of the model that the shards hold together (`Model.metrics`)."""
    return shards[0].counters | {name: sum(shard.counters[name] for shard in shards) for name in SUMMED}
