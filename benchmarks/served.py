"""The log loss of CTRs as served: each impression is predicted on arrival, with the model of that moment.

Progressive figures of a stream should agree: they judge the same predictions, when their labels are final.
"""

import tempfile

import msgspec
import numpy as np

from benchmarks.watch import PIECE, events
from pbodl.data.synthetic import World
from pbodl.streaming.sources.event_source import StreamPosition
from pbodl.streaming.stream_learner import StreamLearner, StreamOptions
from pbodl.training.config import check_config

ROWS, SKIPPED = 1_700_000, 100_000  # of the world; not counted at the start
WAYS = {
    "rows joined beforehand": (True, StreamOptions()),
    "impressions and clicks": (False, StreamOptions()),
    "the same, judged once, after 10 min": (False, StreamOptions(ages="10m")),
}


def served(seed: int, days: int, stop: int) -> None:
    """The figures of each way, over the first `stop` impressions of a world."""
    world = World(seed=seed, days=days, rows=ROWS)
    config = check_config({"schema": msgspec.to_builtins(world.schema), "model": {"kind": "fm-mlp"}})
    for name, (joined, options) in WAYS.items():
        pieces = []
        with tempfile.TemporaryDirectory() as folder:
            learner = StreamLearner.start(config, folder, options, StreamPosition())
            for first, some, batch in zip(range(0, stop, PIECE), events(world, None, joined), world.batches(PIECE), strict=False):
                clicks, true = (batch.column(column).to_numpy() for column in ("click", "p_true"))
                if first >= SKIPPED:
                    p = np.clip(learner.model.predict(some.rows).ctr, 1e-12, 1 - 1e-12)
                    losses = [-np.where(clicks > 0, np.log(q), np.log1p(-q)).mean() for q in (p, true)]
                    pieces.append((*losses, p.sum() / clicks.sum()))
                learner.take(some, StreamPosition())
        loss, best, most = np.mean(pieces, axis=0)[0], np.mean(pieces, axis=0)[1], np.max(pieces, axis=0)[2]
        print(
            f"seed {seed}, {days} days, {name}: served log loss {loss:.4f} (the truth has {best:.4f}), progressive "
            f"{learner.metrics()['log_loss']:.4f}; in the worst {PIECE} impressions CTRs are {most:.2f} times the clicks",
            flush=True,
        )
