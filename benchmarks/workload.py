"""The rows that every contestant learns and scores: a generated click log of 22 categorical fields in 3 groups."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl import Schema
from pbodl.data.convert import Batch, concat, from_data
from pbodl.data.synthetic import World

FIELDS = 22


class Workload(NamedTuple):
    schema: Schema
    batch: Batch  # hashed: one 64-bit key per feature, FIELDS of them per row

    @property
    def clicks(self) -> NDArray[np.float32]:
        assert self.batch.clicks is not None
        return self.batch.clicks

    def keys(self) -> NDArray[np.uint64]:
        """The features' keys, [rows, FIELDS]."""
        return self.batch.keys.reshape(-1, FIELDS)

    def parts(self, rows: int, size: int) -> list[Batch]:
        """The first `rows` rows, `size` at a time."""
        return [self.batch.rows(start, min(start + size, rows)) for start in range(0, rows, size)]

    def log_loss(self, ctr: NDArray[np.float64]) -> float:
        """Mean log loss of predictions for the first rows."""
        clicked = self.clicks[: len(ctr)] > 0
        return float(-np.mean(np.log(np.where(clicked, ctr, 1.0 - ctr))))


def make_workload(rows: int, seed: int = 0) -> Workload:
    world = World(seed=seed, rows=rows)
    return Workload(world.schema, concat([from_data(world.schema, part, labelled=True) for part in world.batches()]))
