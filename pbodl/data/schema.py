"""What the columns of a click log mean: `Schema` and its `Field`s, checked when they are made.

A schema is plain data: `msgspec.to_builtins(schema)` goes into a manifest, `msgspec.convert(table, Schema)`
reads it back, and the same names stand in the `[schema]` part of a TOML file. It is hashable, so that
whatever is worked out from it can be kept.
"""

import difflib
import itertools
import math
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from pbodl.data.features.outcome import label_column
from pbodl.data.times import check_format, check_unit
from pbodl.errors import InputError

GROUPS = ("user", "ad", "context")
KINDS = ("category", "multi", "number")
TRANSFORMS = ("buckets", "scale", "log")
DERIVATIONS = ("hour_of_day", "day_of_week")


def nearest(name: str, names: Iterable[str]) -> str:
    """`" (did you mean 'x'?)"` with the name most like `name`, or nothing if none is like it."""
    close = difflib.get_close_matches(str(name), list(names), n=1, cutoff=0.6)
    return f" (did you mean {close[0]!r}?)" if close else ""


def check_column_name(what: str, name: str) -> None:
    """InputError if events and requests, in JSON, could not carry a column of this name as it is."""
    wrong = [character for character in name if character in '"\\' or character < " " or "\ud800" <= character <= "\udfff"]
    if wrong:
        raise InputError(
            f'{what} is named {name!r}, with the character {wrong[0]!r}; names must not contain quotation marks ("), backslashes, '
            "control characters or lone surrogates: rename the column"
        )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names)


class Field(msgspec.Struct, frozen=True, omit_defaults=True):
    """One column of the log that the model learns from.

    name        the field's name, part of every feature key
    group       who it describes: "user", "ad", "context", or a group of your own (FFM's fields are the groups)
    kind        "category" one value; "multi" a list of values; "number" a quantity
    transform   for numbers: "buckets" cuts into log-spaced buckets, "scale" keeps the number as a multiplier, "log" the
                logarithm of one more than the number
    derive      "hour_of_day" (0 to 23) or "day_of_week" (0 is Monday): the value comes from the row's time (UTC), not from a column
    column      the column to read, if it has another name than the field; several fields may read one column
    split       for lists that come as one text: what stands between the values, or "words" for the text's words in lower case
    resolution  for buckets: how many of them there are from a number to its double, 1 (coarse) to 64 (fine)
    edges       for buckets: numbers in rising order between which the buckets lie, instead of log-spaced ones
    cross       names of two or more other fields: the value is the combination of theirs, not read from a column; with a field of
                the ad, the group must be "ad"

    >>> Field("interests", group="user", kind="multi").kind
    'multi'
    """

    name: str
    group: str = "context"
    kind: str = "category"
    transform: str = "buckets"
    derive: str | None = None
    column: str | None = None
    split: str = "|"
    resolution: int = 4
    edges: Sequence[float] = ()
    cross: Sequence[str] = ()

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "edges", tuple(self.edges))
        msgspec.structs.force_setattr(self, "cross", tuple(self.cross))
        if not isinstance(self.name, str) or not self.name:
            raise InputError(f"a field's name must be a non-empty string, not {self.name!r}")
        check_column_name("a field", self.name)
        for what, value, allowed in (
            ("kind", self.kind, KINDS),
            ("transform", self.transform, TRANSFORMS),
            ("derive", self.derive, (None, *DERIVATIONS)),
        ):
            if value not in allowed:
                names = [name for name in allowed if name is not None]
                raise InputError(
                    f"field {self.name!r}: unknown {what} {value!r}{nearest(str(value), names)}; allowed: {_listed(names)}"
                )
        self._check_group()
        if self.transform != "buckets" and self.kind != "number":
            raise InputError(f"field {self.name!r}: transform {self.transform!r} is for kind='number', not {self.kind!r}")
        self._check_source()

    @property
    def source(self) -> str | None:
        """The column that the field reads; None if it reads none."""
        return None if self.derive is not None or self.cross else self.column or self.name

    @property
    def is_scaled(self) -> bool:
        """Whether its number is a multiplier."""
        return self.kind == "number" and self.transform != "buckets"

    def _check_source(self) -> None:
        what = "a derived field" if self.derive is not None else "a cross"
        if self.derive is not None or self.cross:
            if self.kind != "category":
                raise InputError(f"field {self.name!r}: {what} must have kind='category', not {self.kind!r}")
            if self.column is not None or (self.derive is not None and self.cross):
                raise InputError(f"field {self.name!r}: give one of `column`, `derive` and `cross`, not several")
        if self.column is not None:
            if not self.column:
                raise InputError(f"field {self.name!r}: the column must be a non-empty string")
            check_column_name(f"the column of field {self.name!r}", self.column)
        if len(self.cross) == 1 or len(set(self.cross)) < len(self.cross):
            raise InputError(f"field {self.name!r}: cross is {list(self.cross)}; it must name two or more different fields")
        if not self.split or (self.split != "|" and self.kind != "multi"):
            raise InputError(f"field {self.name!r}: split is {self.split!r}; it is a text that is not empty, for kind='multi'")
        if not 1 <= self.resolution <= 64 or (self.resolution != 4 and (self.kind != "number" or self.is_scaled)):
            raise InputError(
                f"field {self.name!r}: resolution is {self.resolution}; it is a whole number from 1 to 64, for transform='buckets'"
            )
        rising = all(low < high for low, high in itertools.pairwise(self.edges)) and all(map(math.isfinite, self.edges))
        if self.edges and (not rising or self.kind != "number" or self.is_scaled or self.resolution != 4):
            raise InputError(
                f"field {self.name!r}: edges must be finite numbers in rising order, for transform='buckets', without a resolution"
            )

    def _check_group(self) -> None:
        if not isinstance(self.group, str) or not self.group:
            raise InputError(f"field {self.name!r}: the group must be a non-empty string, not {self.group!r}")
        if self.group in GROUPS:
            return
        # Other groups are allowed, but one that looks like a typing error would silently split a group in two.
        close = difflib.get_close_matches(self.group.lower(), GROUPS, n=1, cutoff=0.8)
        if close:
            raise InputError(
                f"field {self.name!r}: unknown group {self.group!r}; did you mean {close[0]!r}? "
                f"Groups are {_listed(GROUPS)}, or a name of your own that is less like one of these"
            )


class Schema(msgspec.Struct, frozen=True, cache_hash=True, omit_defaults=True):
    """The columns of a click log: what to learn from (`fields`), what to predict (`label`), when it happened (`time`).

    label        the column with the outcome, 0 or 1, or a comparison that computes it from a column: "rating >= 4"
    fields       the columns to learn from; a sample's features stand in this order
    time         the column with the time of the impression
    weight       the column with the weight of the example
    time_format  None: the time is a number (epoch seconds), an Arrow timestamp, or an ISO 8601 string; or a strptime-like
                 format of `%Y %y %m %d %H %M %S` and literal characters, such as "%y%m%d%H". Times without a zone are UTC.
    time_unit    unit of times that are numbers: "s" (the default), "ms", "us" or "ns"
    columns      names of all columns of a CSV file without a header, in their order
    delimiter    character between the values of a CSV file, or its name, such as "tab"; by default it is found out

    >>> schema = Schema(label="click", fields=[Field("user_id", group="user"), Field("ad_id", group="ad")])
    >>> schema.groups, schema.field_index("ad_id")
    (('user', 'ad'), 1)
    """

    label: str
    fields: Sequence[Field]
    time: str | None = None
    weight: str | None = None
    time_format: str | None = None
    time_unit: str | None = None
    columns: Sequence[str] = ()
    delimiter: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.label, str) or not self.label:
            raise InputError(f"the schema's label must be the name of a column, not {self.label!r}")
        fields = tuple(self.fields)
        msgspec.structs.force_setattr(self, "fields", fields)
        msgspec.structs.force_setattr(self, "columns", tuple(self.columns))
        for name in self.columns:
            if not isinstance(name, str) or self.columns.count(name) > 1:
                raise InputError(f"columns names {name!r} twice, or not as a text; the names of all columns must differ")
        if not fields:
            raise InputError("a schema needs at least one field, for example fields=[Field('ad_id', group='ad')]")
        for field in fields:
            if not isinstance(field, Field):
                raise InputError(f"a schema's fields must be Field objects, not {field!r}; write Field({str(field)!r})")
        self._check_names([field.name for field in fields])
        if self.time_format is not None:
            if self.time is None:
                raise InputError(f"time_format {self.time_format!r} is given, but no time column; set time='...'")
            check_format(self.time_format)
        if self.time_unit is not None:
            check_unit(self.time_unit)
            if self.time is None or self.time_format is not None:
                raise InputError(f"time_unit {self.time_unit!r} is for a time column of numbers; give `time`, and no `time_format`")

    def _check_names(self, names: list[str]) -> None:
        for name in names:
            if names.count(name) > 1:
                raise InputError(f"field {name!r} occurs twice in the schema; the names of fields must differ")
        special = {"label": self.label_column, "time": self.time, "weight": self.weight}
        given = {role: name for role, name in special.items() if name is not None}
        for role, name in given.items():
            if not isinstance(name, str) or not name:
                raise InputError(f"the schema's {role} must be the name of a column, not {name!r}")
            check_column_name(f"the schema's {role}", name)
            # The time may be learned from too: its hour of day, say. The label and the weight never.
            if name in [field.source for field in self.fields] and role != "time":
                raise InputError(f"column {name!r} is the schema's {role} and also a field; remove it from the fields")
        if len(set(given.values())) < len(given):
            raise InputError(f"label, time and weight must be different columns, not {given}")
        for field in self.fields:
            if field.derive is not None and self.time is None:
                raise InputError(f"field {field.name!r} is derived from the time, but no column is: set time='...'")
            for name in field.cross:
                part = self.fields[self.field_index(name)]
                if part.kind == "multi" or part.cross or part.is_scaled:
                    raise InputError(
                        f"field {field.name!r} crosses {name!r}, which must be a category, a number in buckets, or a derived field"
                    )
                if part.group == "ad" and part.source is not None and field.group != "ad":
                    raise InputError(
                        f"field {field.name!r} crosses {name!r} of the group 'ad': set group='ad', since it differs from ad to ad"
                    )
        groups: dict[str, str] = {}
        for field in self.fields:
            if field.source is not None and groups.setdefault(field.source, field.group) != field.group:
                raise InputError(
                    f"column {field.source!r} is read by fields of the groups {groups[field.source]!r} and {field.group!r}; "
                    "a column belongs to one group"
                )

    @property
    def label_column(self) -> str:
        """The column that the label is, or is computed from."""
        return label_column(self.label)

    @property
    def sources(self) -> list[str]:
        """The columns that the fields read, each once."""
        return list(dict.fromkeys(field.source for field in self.fields if field.source is not None))

    def field_index(self, name: str) -> int:
        """The index of field `name` in `fields`."""
        names = [field.name for field in self.fields]
        if name not in names:
            raise InputError(f"unknown field {name!r}{nearest(name, names)}; fields are: {_listed(names)}")
        return names.index(name)

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups in use: user, ad, context first, then the others in order of appearance."""
        used = list(dict.fromkeys(field.group for field in self.fields))
        return tuple([g for g in GROUPS if g in used] + [g for g in used if g not in GROUPS])

    @property
    def group_codes(self) -> NDArray[np.int32]:
        """For every field the index of its group in `groups`."""
        groups = self.groups
        return np.array([groups.index(field.group) for field in self.fields], dtype=np.int32)
