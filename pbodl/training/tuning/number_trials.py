"""Edges of numbers that pay: curves of all numbers with fewer edges or more, proved by trials.

Few edges learn early, many follow the effect more closely in the end. A trial gives all numbers a curve with edges at the quantiles
of the rows to choose by, and the best configuration learns these rows again, read with that schema. Numbers that are multipliers
(`scale`, `log`) and parts of crosses stay as they are.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from pbodl.data.batch import Batch
from pbodl.data.guess.column_stats import ColumnStats
from pbodl.data.hashing import SCALE_TEXT, hash_value
from pbodl.data.schema import Field, Schema
from pbodl.training.config import Config

NUMBERS = "schema.numbers"
LADDER = (4, 8, 16, 32, 64)  # parts of a number, between the edges of its curve
USUAL = 16
Read = Callable[[Schema], Sequence[Batch]]  # the rows to choose by, made for a schema


class Recut(NamedTuple):
    """A configuration with curves of so many parts for its numbers, and its log loss."""

    config: Config
    parts: int
    log_loss: float


def numbers_of(schema: Schema) -> list[Field]:
    """The fields whose edges may change."""
    crossed = {name for field in schema.fields for name in field.cross}
    return [field for field in schema.fields if field.kind == "number" and not field.is_scaled and field.name not in crossed]


def with_curves(config: Config, read: Read, parts: int) -> Config:
    """The configuration with a curve of so many parts for each number that varies."""
    fields = numbers_of(config.schema)
    raw = [msgspec.structs.replace(field, transform="scale", resolution=4, edges=()) for field in fields]
    batches, changed = read(msgspec.structs.replace(config.schema, fields=raw)), {}
    for index, field in enumerate(fields):
        key, stats = np.uint64(hash_value(field.key_name, SCALE_TEXT)), ColumnStats(field.name)
        for batch in batches:
            numbers = batch.values[(batch.fields == index) & (batch.keys == key)]
            stats.add(pa.chunked_array([pa.array(numbers.astype(np.float64))]))
        if edges := stats.edges(parts):
            changed[field.name] = msgspec.structs.replace(field, transform="curve", resolution=4, edges=edges)
    return config._replace(
        schema=msgspec.structs.replace(
            config.schema, fields=tuple(changed.get(field.name, field) for field in config.schema.fields)
        )
    )


def given_parts(schema: Schema) -> int | None:
    """The rung of the ladder that the curves of a schema are nearest to; None if it has others than curves."""
    fields = numbers_of(schema)
    if not all(field.is_curve for field in fields):
        return None
    most = max(len(field.edges) for field in fields) - 1
    return min(LADDER, key=lambda parts: abs(np.log(parts / most)))


def try_numbers(
    config: Config, log_loss: float, read: Read, most: int, loss_of: Callable[[Config, Sequence[Batch]], float]
) -> list[Recut]:
    """Try up to `most` numbers of parts: the neighbours on the ladder, and on in a direction that helps. Returns all trials."""
    tried: dict[int, Recut] = {}
    if not most or not numbers_of(config.schema):
        return []
    best = given_parts(config.schema)
    losses = {} if best is None else {best: log_loss}
    while len(tried) < most:
        parts = USUAL if best is None else _next(best, losses)
        if parts is None:
            break
        changed = with_curves(config, read, parts)
        losses[parts] = loss_of(changed, read(changed.schema))
        tried[parts] = Recut(changed, parts, losses[parts])
        best = min(losses, key=losses.__getitem__)
    return list(tried.values())


def _next(best: int, losses: dict[int, float]) -> int | None:
    """A neighbour of the best that was not tried, the finer first."""
    place = LADDER.index(best)
    neighbours = (*LADDER[place + 1 : place + 2], *LADDER[max(place - 1, 0) : place])
    return next((parts for parts in neighbours if parts not in losses), None)
