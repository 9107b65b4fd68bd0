"""Crosses that pay: pairs of fields whose combination tells more than the two alone, found by statistics and proved by trials.

A table of effects for every field is fitted to the first rows, and the pairs of fields whose own table would add the most to the
likelihood are proposed (`data.synthetic.fitted_truth`). Many models know pairs already, so a proposal is tried like any other
setting: the best configuration with the cross learns the same rows, and the cross stays if the progressive log loss falls.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from pbodl.data.batch import Batch
from pbodl.data.convert import concat
from pbodl.data.features.crosses import cross_keys
from pbodl.data.schema import Field, Schema
from pbodl.data.synthetic.fitted_truth import JUDGED, strongest_pairs
from pbodl.training.config import Config

CROSS = "schema.cross"


class Crossed(NamedTuple):
    """A configuration with one more cross, and its log loss."""

    config: Config
    fields: tuple[str, str]
    log_loss: float


def proposals(schema: Schema, batches: Sequence[Batch], most: int) -> list[tuple[str, str]]:
    """The pairs of fields to cross, the most promising first."""
    rows, parts = 0, []
    for batch in batches:
        if rows < JUDGED and len(batch):
            parts.append(batch.rows(0, JUDGED - rows))
            rows += len(parts[-1])
    crossed = {frozenset(field.cross) for field in schema.fields if field.cross}
    plain = [not field.cross and not field.has_several and not field.is_scaled for field in schema.fields]
    names = [field.name for field in schema.fields]
    found = strongest_pairs(concat(parts), len(names), len(names) ** 2) if parts else []
    pairs = [(names[f], names[g]) for f, g in found if plain[f] and plain[g]]
    return [pair for pair in pairs if frozenset(pair) not in crossed][:most]


def with_cross(config: Config, fields: tuple[str, str]) -> Config:
    """The configuration with a field that is the combination of two."""
    schema = config.schema
    groups = [schema.fields[schema.field_index(name)].group for name in fields]
    taken, name = {field.name for field in schema.fields}, "_x_".join(fields)
    while name in taken:
        name += "_"
    added = Field(name, group="ad" if "ad" in groups else groups[0], cross=fields)
    return config._replace(schema=msgspec.structs.replace(schema, fields=[*schema.fields, added]))


def for_schema(batch: Batch, given: Schema, schema: Schema) -> Batch:
    """A batch that was made for the schema `given`, with the crosses that `schema` has at its end beyond those."""
    for index, field in enumerate(schema.fields[len(given.fields) :], start=len(given.fields)):
        parts = [batch.keys[batch.fields == schema.field_index(name)] for name in field.cross]
        behind = batch.indptr[1:]
        batch = batch._replace(
            keys=np.insert(batch.keys, behind, cross_keys(field.name, parts)),
            values=np.insert(batch.values, behind, np.float32(1.0)),
            fields=np.insert(batch.fields, behind, np.int32(index)),
            indptr=batch.indptr + np.arange(len(batch) + 1),
        )
    return batch


def try_crosses(
    config: Config, log_loss: float, batches: Sequence[Batch], most: int, loss_of: Callable[[Config, Sequence[Batch]], float]
) -> list[Crossed]:
    """Try up to `most` crosses one after the other; each is added to the best so far. Returns all trials."""
    given, best, least, tried = config.schema, config, log_loss, []
    for fields in proposals(given, batches, most):
        changed = with_cross(best, fields)
        loss = loss_of(changed, [for_schema(batch, given, changed.schema) for batch in batches])
        tried.append(Crossed(changed, fields, loss))
        if loss < least:
            best, least = changed, loss
    return tried


def crosses_beyond(config: Config, given: Schema) -> str | None:
    """The crosses that a configuration has beyond a schema, as a text; None if it has none."""
    added = [" × ".join(field.cross) for field in config.schema.fields[len(given.fields) :]]
    return ", ".join(added) or None
