"""`python -m benchmarks.publications`: bytes that a trainer publishes in an hour, exact and compact, and what compact scores cost.

A generated log arrives at a fixed rate. The trainer publishes every 2 seconds of the log's time, a full snapshot every 5 minutes,
once exactly and once compactly. A follower then scores rows that come later: the AUC and log loss of the trainer itself beside it.
"""

import argparse
import os
import tempfile
from types import SimpleNamespace

import numpy as np
from sklearn.metrics import log_loss
from sklearn.metrics import roc_auc_score as auc

import pbodl
from benchmarks.workload import make_workload
from pbodl.data.batch import Batch
from pbodl.models.deep_probit import DeepProbit
from pbodl.publishing import publisher as publishing
from pbodl.serving.models.follower import Follower

EVERY = 2.0
KINDS = {"pair-fm": lambda schema: pbodl.PairFM(schema), "fm-mlp": lambda schema: pbodl.FMMLP(schema)}


class Hour:
    """A publisher with the clock of the log, and all bytes that it writes."""

    def __init__(self, model: DeepProbit, folder: str, compact: bool) -> None:
        self.now, self.bytes, self.files = 0.0, 0, {"full": 0, "delta": 0}
        publishing.time = SimpleNamespace(monotonic=lambda: self.now)  # type: ignore[assignment]
        self.publisher = publishing.Publisher(model, folder, compact=compact)
        write = self.publisher.folder.write

        def counted(entry, *arguments):
            size = write(entry, *arguments)
            self.bytes += size
            self.files[entry.kind] += size
            return size

        self.publisher.folder.write = counted  # type: ignore[method-assign]


def published(
    kind: str, batch: Batch, held_out: Batch, schema: pbodl.Schema, rate: int, compact: bool
) -> tuple[Hour, np.ndarray, np.ndarray]:
    """The hour, the trainer's predictions for later rows, and those of a server that followed."""
    model = KINDS[kind](schema)
    with tempfile.TemporaryDirectory() as folder:
        hour, follower = Hour(model, folder, compact), Follower(folder)
        step = int(rate * EVERY)
        for start in range(0, len(batch), step):
            model.learn(batch.rows(start, min(start + step, len(batch))))
            hour.now += EVERY
            hour.publisher.publish()
            follower.poll()
        version = follower.version
        assert version is not None and version.number == hour.publisher.version and not follower.damaged
        twin = KINDS[kind](schema)
        rows = np.arange(version.table.size)
        state = version.table.state_of(rows)
        twin.load_state(version.model.state() | state | {f"embedding.{n}": np.array(0) for n in ("evicted", "expired")})
        assert sum(os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder)) <= hour.bytes
        return hour, model.predict(held_out).ctr, twin.predict(held_out).ctr


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=360_000, help="Rows of the log")
    parser.add_argument("--rate", type=int, default=100, help="Rows per second of the log's time")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    options = parser.parse_args()
    hours = options.rows / options.rate / 3600
    for seed in options.seeds:
        schema, batch = make_workload(options.rows + 100_000, seed)
        learned, held_out = batch.rows(0, options.rows), batch.rows(options.rows, len(batch))
        for kind in options.kinds:
            exact, trainer, _ = published(kind, learned, held_out, schema, options.rate, compact=False)
            compact, _, server = published(kind, learned, held_out, schema, options.rate, compact=True)
            clicks = held_out.clicks
            print(
                f"seed {seed} {kind}: exact {exact.bytes / hours / 1e6:,.1f} MB/h {exact.files}, compact "
                f"{compact.bytes / hours / 1e6:,.1f} MB/h {compact.files}, ratio {exact.bytes / compact.bytes:.1f}; AUC "
                f"{auc(clicks, trainer):.6f} -> {auc(clicks, server):.6f} ({auc(clicks, server) - auc(clicks, trainer):+.6f}), "
                f"log loss {log_loss(clicks, trainer):.6f} -> {log_loss(clicks, server):.6f}; largest change of a score "
                f"{np.abs(server - trainer).max():.5f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
