"""Logs as streams: every impression is predicted when it comes, and learned in stages later."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl.data.batch import Batch

FRACTIONS = (0.6, 0.9, 0.995)  # of the clicks that have come by each stage
DELAYS = (10, 40, 90)  # how many impressions later it is


class Operations(NamedTuple):
    """What a join puts out for a log."""

    batch: Batch
    row: NDArray[np.int64]  # of the log, by operation
    is_prediction: NDArray[np.bool_]


def in_stages(log: Batch, seed: int = 0, power: float = 1.0) -> Operations:
    """Each impression's prediction, and then its stages until it is clicked; `power` is that of stages after the first."""
    assert log.clicks is not None
    rng = np.random.default_rng(seed)
    operations = []
    for row in range(len(log)):
        operations.append((row, row, 0, 0.0, 0.0, 0.0))
        come, before = rng.random(), 0.0
        for delay, by in zip(DELAYS, FRACTIONS, strict=True):
            clicked = bool(log.clicks[row]) and before <= come < by
            weight = float(log.weights[row]) * (power if before > 0.0 else 1.0)
            operations.append((row + delay, row, int(clicked), before, by, weight))
            before = by
            if clicked:
                break
    when, row, clicks, before, by, weights = (np.array(column) for column in zip(*operations, strict=True))
    order = np.argsort(when, kind="stable")
    f32 = np.float32
    batch = log.take(row[order])._replace(
        clicks=clicks[order].astype(f32), weights=weights[order].astype(f32), came_before=before[order].astype(f32),
        came_by=by[order].astype(f32), times=np.maximum.accumulate(log.times)[np.minimum(when[order], len(log) - 1)],
    )  # fmt: skip
    return Operations(batch, row[order], weights[order] == 0.0)
