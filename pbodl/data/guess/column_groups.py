"""Groups from the data: a column whose value (a code, a number, a list) the ad decides describes the ad, one whose value the user
decides the user.

A name says more than the data, so only columns without a telling name are looked at. A model that nobody's names give an ad to gets
one from the data, since servers rank ads: among the columns that vary within a request (the rows of one user at one time), or at
least for one user, that with the most values.
"""

import msgspec
import numpy as np
from numpy.typing import NDArray

from pbodl.data.guess.column_roles import FEW, decides, pairs_of, words_of
from pbodl.data.guess.column_stats import ColumnStats
from pbodl.data.schema import Field

RECURRING = 0.2  # different values, at most, as a share of the rows


def with_groups(fields: list[Field], columns: dict[str, ColumnStats], time: str | None, warnings: list[str]) -> list[Field]:
    """The fields with groups from the data where their names say nothing."""
    codes = {name: column.codes for name, column in columns.items() if column.codes is not None}
    groups = {field.name: field.group for field in fields}
    named = {name for name, group in groups.items() if group != "context"}
    plain = [field.name for field in fields if field.kind == "category" and field.name in codes]
    user, ad = (_entity([name for name in plain if groups[name] == group], columns) for group in ("user", "ad"))
    # A number, or a code that takes few values, is no ad's.
    ids = [name for name in plain if columns[name].kind != "whole" or columns[name].distinct > FEW]
    lists = [field.name for field in fields if field.kind in ("multi", "vector")]
    if "ad" not in groups.values() and len(fields) > 1 and not ids and not lists:
        # Groups are for users and ads who meet.
        warnings.append("no column looks like one of an ad, so all have one group: give one the group 'ad' if a server is to rank")
        return [msgspec.structs.replace(field, group="context") for field in fields]
    if "ad" not in groups.values():
        ad = _likely_ad(fields, plain, columns, codes, user, time)
        groups[ad] = "ad"
        named.add(ad)
        warnings.append(
            f"no column is named as one of an ad: {ad!r} is taken for it; check the groups, which decide what a server ranks"
        )
    for name in (field.name for field in fields):
        if name not in codes or name in named or columns[name].distinct < 2:
            continue
        deciding = [
            group
            for group, entity in (("user", user), ("ad", ad))
            if entity not in (None, name) and decides(columns[entity], columns[name])
        ]
        if len(deciding) == 1:
            groups[name] = deciding[0]
            entity = user if deciding[0] == "user" else ad
            warnings.append(f"column {name!r} is put into the group {deciding[0]!r}: each value of {entity!r} has one value of it")
    return [msgspec.structs.replace(field, group=groups[field.name]) for field in fields]


def repeated(columns: list[ColumnStats], kinds: dict[str, str], label: str | None) -> dict[str, str]:
    """For each column that repeats another one, value by value, the name of that one.

    Columns are of one kind: a number beside a code is coarser, and a new ad is known by it. So it is by a list, whose elements
    count. Of several columns, the label stays, or an id, and else the first.
    """
    alike: dict[tuple[str, int, bytes], list[ColumnStats]] = {}
    for column in columns:
        if column.codes is not None and column.distinct >= 2 and kinds.get(column.name) != "multi":
            kind = kinds.get(column.name, "")
            # Numbers that never recur are one to one with all others of the kind: their order must agree, too.
            codes = np.unique(column.first_numbers, return_inverse=True)[1] if kind == "number" else column.codes
            alike.setdefault((kind, column.distinct, codes.tobytes()), []).append(column)
    copies: dict[str, str] = {}
    clicks = next((column.codes for column in columns if column.name == label), None)
    for same in alike.values():
        kept = max(same, key=lambda column: "id" in words_of(column)).name
        if label is not None and clicks is not None and np.array_equal(np.asarray(same[0].codes), clicks):
            kept = label
        copies |= {column.name: kept for column in same if column.name != kept}
    return copies


def _entity(names: list[str], columns: dict[str, ColumnStats]) -> str | None:
    return max(names, key=lambda name: columns[name].distinct, default=None)


def _likely_ad(
    fields: list[Field],
    plain: list[str],
    columns: dict[str, ColumnStats],
    codes: dict[str, NDArray[np.int64]],
    user: str | None,
    time: str | None,
) -> str:
    """The field that is most likely to name the ads."""
    groups = {field.name: field.group for field in fields}
    free = [name for name in plain if groups[name] == "context" and columns[name].distinct <= RECURRING * columns[name].rows]
    free = [name for name in free if user in (None, name) or not decides(columns[user], columns[name])] or free
    within = None
    if user is not None and time in codes:
        within = codes[user] * (codes[time].max() + 1) + codes[time]
        within = np.unique(within, return_inverse=True)[1].astype(np.int64)
        if within.max() + 1 > 0.9 * len(within):  # hardly any request has two rows
            within = None
    if within is not None and free:
        requests = int(within.max()) + 1
        free = [name for name in free if pairs_of(within, codes[name]) > 1.05 * requests] or free
    others = [field.name for field in fields if field.derive is None and field.group == "context"]
    others = free or others or [field.name for field in fields if field.derive is None]
    return max(others, key=lambda name: columns[name].distinct)
