"""One partition of a stream: its position, its join, and the rows that the join has put out for learning.

The rows that a partition puts out are a function of its events alone. The shards of the parameter server keep, for each partition,
how many of these rows they have learned. So whoever takes a partition over needs an old record of it and that number: it reads the
events again from the record's position, joins them, skips the rows that are learned, and continues. Nothing else has to be written
while rows are learned.

A record holds the position, the impressions that wait for their click, the counters, and the rows that wait to be learned.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pbodl.data.batch import Batch
from pbodl.data.convert import concat
from pbodl.errors import InputError
from pbodl.models.deep_probit import DeepProbit
from pbodl.streaming.events import Events
from pbodl.streaming.join.click_join import FinalLabels, Joined
from pbodl.streaming.join.join_rules import PREDICT
from pbodl.streaming.same_run import StreamOptions
from pbodl.streaming.sources.event_source import StreamPosition
from pbodl.streaming.stream_learner import StreamLearner
from pbodl.training.config import Config

BATCH = Batch._fields
WAITING = Joined._fields[1:]


class PartitionLearner(StreamLearner):
    """Decides which rows of its partition are to be learned, in which order; a worker learns them.

    name   of the partition
    model  an empty one
    rows   rows that the shards have learned
    """

    def __init__(self, name: str, config: Config, model: DeepProbit, options: StreamOptions, position: StreamPosition) -> None:
        super().__init__(config, Path(), model, options, position)
        self.name = name
        self.rows = 0
        self._skip = 0  # rows to come that are learned already
        self._pending: list[Joined] = []
        self._final: list[tuple[NDArray[np.int64], NDArray[np.float32]]] = []  # labels of impressions that are yet to be predicted
        self._predicted_to = -1  # number of the last impression that was predicted

    @property
    def pending(self) -> int:
        """Rows that can be learned now."""
        return sum(map(len, self._pending))

    @property
    def replaying(self) -> bool:
        """Whether events are read again whose rows are learned."""
        return self._skip > 0

    def take(self, events: Events, position: StreamPosition, gaps: int = 0) -> Joined:
        if gaps and self.replaying:
            raise InputError(
                f"partition {self.name!r} has lost events that were learned after the last snapshot, so what follows them cannot "
                "be told from what was learned. Stop the run, and start it again: it then continues from its last snapshot"
            )
        return super().take(events, position, gaps)

    def _learn(self, joined: Joined, final: FinalLabels) -> None:
        self._wait(joined)
        if len(final.numbers):
            assert final.batch.clicks is not None
            self._final.append((final.numbers, final.batch.clicks))

    def _wait(self, joined: Joined) -> None:
        skipped = min(self._skip, len(joined))
        self._skip -= skipped
        self._predicted_to = int(joined.numbers[:skipped].max(initial=self._predicted_to))  # by a predecessor, who is gone
        if len(joined) > skipped:
            self._pending.append(joined.rows(skipped, len(joined)))

    def skip_to(self, rows: int) -> None:
        """The shards have learned so many rows of this partition."""
        if rows < self.rows:
            raise InputError(f"the record of partition {self.name!r} is of {self.rows:,} rows, and the shards have {rows:,}")
        self._skip, self.rows = rows - self.rows, rows
        pending, self._pending = self._pending, []
        for joined in pending:
            self._wait(joined)

    def next(self, most: int) -> Joined:
        """The next rows to learn, up to `most` of them; they stay pending until `learned`."""
        taken, size = [], 0
        for joined in self._pending:
            part = joined.rows(0, min(len(joined), most - size))
            taken.append(part)
            size += len(part)
            if size >= most:
                break
        if len(taken) == 1:
            return taken[0]
        columns = [np.concatenate(column) for column in list(zip(*taken, strict=True))[1:]]
        return Joined(concat([part.batch for part in taken]), *columns)

    def learned(self, done: Joined, ctr: NDArray[np.float64] | None = None) -> None:
        """The shards have learned the first of the pending rows, for which `ctr` was predicted, if that is known."""
        count = len(done)
        self.rows += count
        served = done.roles == PREDICT
        if ctr is not None:
            self.served.put(done.numbers[served], ctr[served])
        self._predicted_to = int(done.numbers[served].max(initial=self._predicted_to))
        while count:
            first = self._pending.pop(0)
            if len(first) > count:
                self._pending.insert(0, first.rows(count, len(first)))
            count -= min(count, len(first))

    def take_final(self) -> tuple[NDArray[np.float64], NDArray[np.float32], NDArray[np.float64]]:
        """Predictions as served, labels that are final now, and weights; those whose predictions are lost are left out."""
        if not self._final:
            return np.zeros(0), np.zeros(0, np.float32), np.zeros(0)
        numbers, clicks = (np.concatenate(column) for column in zip(*self._final, strict=True))
        ready = int(np.searchsorted(numbers, self._predicted_to, side="right"))
        self._final = [(numbers[ready:], clicks[ready:])] if ready < len(numbers) else []
        ctr = self.served.take(numbers[:ready])
        known = ~np.isnan(ctr)
        return ctr[known], clicks[:ready][known], np.ones(int(known.sum()))

    def record(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        """All that a successor needs, as plain data and arrays."""
        self.join.check_ledger()
        arrays = {f"join.{name}": array for name, array in self.join.state().items()}
        if self._pending:
            waiting = self.next(self.pending)
            arrays |= {f"pending.{name}": np.asarray(array) for name, array in zip(BATCH, waiting.batch.with_stages(), strict=True)}
            arrays |= {f"pending.{name}": getattr(waiting, name) for name in WAITING}
        arrays |= {f"served.{name}": array for name, array in self.served.state().items()}
        if self._final:
            final = [np.concatenate(column) for column in zip(*self._final, strict=True)]
            arrays |= {"final.numbers": final[0], "final.clicks": final[1]}
        return self.record_facts(), arrays

    def record_facts(self) -> dict[str, Any]:
        """The plain data of `record`."""
        # While events are read again, the join is behind what the shards have learned.
        return self.facts() | {"rows": self.rows - self._skip}

    def continue_record(self, facts: dict[str, Any], arrays: Mapping[str, NDArray]) -> None:
        """Continue from a `record()`."""
        self.position = StreamPosition.of(facts["position"])
        self.continue_from(facts)
        self.rows = facts["rows"]
        self.join.load_state({name.removeprefix("join."): array for name, array in arrays.items() if name.startswith("join.")})
        if "pending.roles" in arrays:
            batch = Batch(*(np.array(arrays[f"pending.{name}"]) for name in BATCH))
            self._pending = [Joined(batch, *(np.array(arrays[f"pending.{name}"]) for name in WAITING))]
        self.served.load_state({name: arrays[f"served.{name}"] for name in ("first", "ctr")})
        if "final.numbers" in arrays:
            self._final = [(np.array(arrays["final.numbers"]), np.array(arrays["final.clicks"]))]

    def ledger(self) -> dict[str, int]:
        """Where every event of the partition is: dead, repeated, waiting or settled; and the rows that came of it."""
        count = self.join.metrics()
        seen = count["impressions"] + count["clicks"] + count["joined"]
        repeated = count["duplicate_impressions"] + count["duplicate_clicks"]
        return {
            "events": self.events + self.bad,
            "dead": self.bad,
            "before": self.events - seen,  # in the log that was learned first
            "repeated": repeated,
            "waiting": count["waiting"],
            "settled": seen - repeated - count["waiting"],
            "rows": self.rows,
            "pending": self.pending,
        }
