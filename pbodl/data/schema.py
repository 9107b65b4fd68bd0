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
KINDS = ("category", "multi", "number", "vector", "position")
TRANSFORMS = ("buckets", "curve", "scale", "log")
DERIVATIONS = ("hour_of_day", "day_of_week")
LONGEST = 4096  # numbers of a vector


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
    kind        "category" one value; "multi" a list of values; "number" a quantity; "vector" a list of `length` numbers, such as
                an embedding from another model; "position" the slot in which the ad was shown, a category whose effect is learned,
                and left out when ads are ranked
    transform   for numbers: "buckets" cuts into log-spaced buckets, "curve" learns a curve of straight lines between `edges`,
                "scale" keeps the number as a multiplier, "log" the logarithm of one more than the number
    derive      "hour_of_day" (0 to 23) or "day_of_week" (0 is Monday): the value comes from the row's time (UTC), not from a column
    column      the column to read, if it has another name than the field; several fields may read one column
    split       for lists that come as one text: what stands between the values, or "words" for the text's words in lower case
    length      for vectors: how many numbers each has
    aliases     former names of the field, the oldest first: its features keep the keys they had under that name, and data with a
                column of a former name is still read
    optional    whether a file may lack the column; the field is then missing in all its rows
    resolution  for buckets: how many of them there are from a number to its double, 1 (coarse) to 64 (fine)
    edges       for buckets: numbers in rising order between which the buckets lie, instead of log-spaced ones; for curves: where
                the straight lines meet
    cross       names of two or more other fields: the value is the combination of theirs, not read from a column; with a field of
                the ad, the group must be "ad"
    reference   for positions: the whole number of the first slot, at which ads are compared

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
    length: int = 0
    reference: int = 1
    aliases: Sequence[str] = ()
    optional: bool = False

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "edges", tuple(self.edges))
        msgspec.structs.force_setattr(self, "cross", tuple(self.cross))
        msgspec.structs.force_setattr(self, "aliases", tuple(self.aliases))
        if not isinstance(self.name, str) or not self.name:
            raise InputError(f"a field's name must be a non-empty string, not {self.name!r}")
        for name in (self.name, *self.aliases):
            if not isinstance(name, str) or not name:
                raise InputError(f"field {self.name!r}: an alias must be a non-empty string, not {name!r}")
            check_column_name("a field", name)
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
        self._check_position()

    @property
    def source(self) -> str | None:
        """The column that the field reads; None if it reads none."""
        return None if self.derive is not None or self.cross else self.column or self.name

    @property
    def is_category(self) -> bool:
        """Whether it has one value, which stands for itself."""
        return self.kind in ("category", "position")

    @property
    def key_name(self) -> str:
        """The name with which its features are hashed: the oldest that it has had."""
        return self.aliases[0] if self.aliases else self.name

    @property
    def former_columns(self) -> tuple[str, ...]:
        """The columns that it reads where its own is absent."""
        return () if self.column is not None or self.source is None else tuple(self.aliases)

    @property
    def is_scaled(self) -> bool:
        """Whether its number is a multiplier."""
        return self.kind == "number" and self.transform in ("scale", "log")

    @property
    def is_curve(self) -> bool:
        """Whether its number lies between two features, and has a share of each."""
        return self.kind == "number" and self.transform == "curve"

    @property
    def has_several(self) -> bool:
        """Whether a sample may have several features of it."""
        return self.kind in ("multi", "vector") or self.is_curve

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
        if not self.split or (self.split != "|" and self.kind not in ("multi", "vector")):
            raise InputError(f"field {self.name!r}: split is {self.split!r}; it is a text that is not empty, for kind='multi'")
        if (self.kind == "vector") != (self.length != 0) or not 0 <= self.length <= LONGEST:
            raise InputError(
                f"field {self.name!r}: length is {self.length}; kind='vector' needs a length from 1 to {LONGEST}, and no other "
                "kind has one"
            )
        bucketed = self.kind == "number" and self.transform == "buckets"
        if not 1 <= self.resolution <= 64 or (self.resolution != 4 and not bucketed):
            raise InputError(
                f"field {self.name!r}: resolution is {self.resolution}; it is a whole number from 1 to 64, for transform='buckets'"
            )
        rising = all(low < high for low, high in itertools.pairwise(self.edges)) and all(map(math.isfinite, self.edges))
        if self.edges and (not rising or not (bucketed or self.is_curve) or self.resolution != 4):
            raise InputError(
                f"field {self.name!r}: edges must be finite numbers in rising order, for transform='buckets' or 'curve', without a "
                "resolution"
            )
        if self.is_curve and (len(self.edges) < 2 or not math.isfinite(self.edges[-1] - self.edges[0])):
            raise InputError(f"field {self.name!r}: transform='curve' needs two edges or more, less than 1e308 apart")

    def _check_position(self) -> None:
        if self.kind == "position" and self.group in ("user", "ad"):
            raise InputError(f"field {self.name!r}: a position belongs to neither the user nor the ad; its group is 'context'")
        if type(self.reference) is not int or (self.reference != 1 and self.kind != "position"):
            raise InputError(f"field {self.name!r}: reference is {self.reference!r}; it is a whole number, for kind='position'")

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
    retired      columns that were fields before a migration: events and requests may still have them, and they are ignored

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
    retired: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.label, str) or not self.label:
            raise InputError(f"the schema's label must be the name of a column, not {self.label!r}")
        fields = tuple(self.fields)
        msgspec.structs.force_setattr(self, "fields", fields)
        msgspec.structs.force_setattr(self, "columns", tuple(self.columns))
        msgspec.structs.force_setattr(self, "retired", tuple(self.retired))
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
        former = [alias for field in self.fields for alias in field.aliases] + list(self.retired)
        taken = {*names, *self.sources, self.label_column, self.time, self.weight}
        for name in former:
            if former.count(name) > 1 or name in taken:
                raise InputError(
                    f"{name!r} is a former name (in aliases or retired), and stands for something else in the schema as well; "
                    "choose another name for the new one"
                )
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
                if part.has_several or part.kind == "position" or part.cross or part.is_scaled:
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

    @property
    def former_columns(self) -> dict[str, tuple[str, ...]]:
        """By column, the former names under which data may still have it."""
        return {field.source: field.former_columns for field in self.fields if field.source is not None and field.former_columns}

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
