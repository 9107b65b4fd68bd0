"""What becomes of every field when a schema changes, and what cannot be done.

A field is the same as before if its features have the same keys: it has its name, or `aliases` with the name that it had first. Its
features stay where they still mean the same. Numbers in other buckets are carried over (`rebinning`); where a field's values mean
something else, its features go, and new ones start at their prior.
"""

from collections.abc import Mapping
from typing import NamedTuple

from pbodl.data.schema import Field, Schema
from pbodl.errors import InputError

KEPT, REBINNED, RESET, ADDED = "kept", "rebinned", "reset", "added"
SAME_KEYS = ("category", "multi", "position")  # kinds whose features are the hashed values


class FieldChange(NamedTuple):
    """What becomes of a field of the new schema."""

    field: Field
    before: Field | None  # None if it is new
    was: int  # index of that field in the old schema; -1 if there was none
    fate: str  # KEPT, REBINNED, RESET or ADDED


class SchemaChange(NamedTuple):
    """What becomes of all fields."""

    fields: list[FieldChange]  # of the new schema, in its order
    dropped: list[Field]

    @property
    def nothing(self) -> bool:
        """Whether the weights stay as they are, in the same order."""
        same = [change.fate == KEPT and change.was == place for place, change in enumerate(self.fields)]
        return all(same) and not self.dropped and all(_group(c) for c in self.fields)

    def told(self) -> list[str]:
        """The changes in prose, one line each."""
        lines = [line for change in self.fields for line in _told(change)]
        return lines + [f"field {field.name!r} is dropped: its features go, and predictions change" for field in self.dropped]


def schema_change(old: Schema, new: Schema) -> SchemaChange:
    """What becomes of the fields; an InputError for what cannot be done."""
    if new.label != old.label:
        raise InputError(f"the label is {new.label!r}, and was {old.label!r}: what is predicted cannot change; start a new run")
    if (new.time is None) != (old.time is None):
        raise InputError("a time column cannot be added or taken away: the model's clock depends on it; start a new run")
    by_key = {field.key_name: index for index, field in enumerate(old.fields)}
    changes = []
    for field in new.fields:
        index = by_key.pop(field.key_name, -1)
        if index < 0 and field.aliases:
            known = ", ".join(before.key_name for before in old.fields)
            raise InputError(
                f"field {field.name!r} has the aliases {list(field.aliases)}, but no field of the run began as {field.key_name!r}; "
                f"they are: {known}. Leave the aliases out for a new field"
            )
        before = None if index < 0 else old.fields[index]
        changes.append(FieldChange(field, before, index, ADDED if before is None else _fate(before, field, old, new)))
    dropped = [old.fields[index] for index in by_key.values()]
    for field in dropped:
        if field.source is not None and field.source not in new.retired and field.source not in new.sources:
            raise InputError(
                f"the new schema does not name the field {field.name!r} of the run. To rename it, give the new field "
                f"aliases = [{field.key_name!r}]; to drop it, write retired = [{field.source!r}] into [schema], so that data which "
                "still has the column is read"
            )
    return SchemaChange(changes, dropped)


def _fate(before: Field, field: Field, old: Schema, new: Schema) -> str:
    if before.derive != field.derive or _parts(before, old) != _parts(field, new):
        return RESET
    if before.kind in SAME_KEYS and field.kind in SAME_KEYS:
        return KEPT
    if before.kind != field.kind or before.is_scaled != field.is_scaled or before.length != field.length:
        return RESET
    if field.is_scaled and before.transform != field.transform:
        return RESET
    same = (before.transform, before.resolution, before.edges) == (field.transform, field.resolution, field.edges)
    return KEPT if same or field.kind != "number" else REBINNED


def _parts(field: Field, schema: Schema) -> list[str]:
    """The parts of a cross, by the names of their keys."""
    names: Mapping[str, str] = {part.name: part.key_name for part in schema.fields}
    return [names[name] for name in field.cross]


def _group(change: FieldChange) -> bool:
    return change.before is not None and change.before.group == change.field.group


def _told(change: FieldChange) -> list[str]:
    field, before, lines = change.field, change.before, []
    if before is None:
        start = "rows without it are predicted as before" if field.source is not None else "it has a value in every row at once"
        return [f"field {field.name!r} is added: its features start at their prior; {start}"]
    if before.name != field.name:
        lines.append(f"field {before.name!r} is called {field.name!r} from now on; its features stay")
    if before.group != field.group:
        lines.append(f"field {field.name!r} moves from the group {before.group!r} to {field.group!r}; requests must carry it there")
    if change.fate == REBINNED:
        lines.append(f"field {field.name!r} gets other buckets: each starts with what the old bucket around its middle has learned")
    elif change.fate == RESET:
        lines.append(f"field {field.name!r} means something else now: its features go, and new ones start at their prior")
    return lines
