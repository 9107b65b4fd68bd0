"""Positions: the slot in which an ad was shown, whose effect on clicks is learned, and left out when ads are compared.

An ad at the top of a page is clicked more often than the same ad at its bottom. A field of kind "position" learns that part, so
that the ads' own features need not. To compare ads, all are put into the same slot, the field's `reference`.
"""

import numpy as np

from pbodl.data.batch import Batch
from pbodl.data.hashing import hash_value
from pbodl.data.schema import Schema
from pbodl.errors import InputError


def reference_positions(schema: Schema) -> dict[str, int]:
    """The column of each position, and its first slot."""
    return {str(field.source): field.reference for field in schema.fields if field.kind == "position"}


def check_positions(schema: Schema) -> None:
    """InputError if a schema has no position."""
    if not reference_positions(schema):
        raise InputError('the model has no field with kind = "position", so there is no position to leave out; see [schema]')


def at_reference(schema: Schema, batch: Batch) -> Batch:
    """The batch as if all of its rows had been shown in the first slot."""
    keys = batch.keys.copy()
    for index, field in enumerate(schema.fields):
        if field.kind == "position":
            keys[batch.fields == index] = np.uint64(hash_value(field.key_name, field.reference))
    return batch._replace(keys=keys)
