"""Columns that give the label away: they are written after the click, and no request will have them.

Three signs: a value is there exactly where there is a click; the label follows from the column nearly everywhere; the column
orders the rows by their labels far better than any other does. What a column says is learned on some stretches of the rows and
measured on the others, so that an id, which knows its rows by heart, is not blamed.
"""

import numpy as np
from numpy.typing import NDArray

from pbodl.data.guess.column_stats import ColumnStats
from pbodl.data.schema import Field

FEWEST = 20  # clicks, and rows without, that say something
STRETCHES = 20  # into which the rows are cut
HEAVY = 0.01  # share of the rows from which a number is a bin of its own
BINS = 32  # of other numbers
WRONG = 0.02  # errors, at most, of a column from which the label follows, as a share of the rarer label
ABSENT = 0.01  # the same, for values that are there where a click is
HONEST = 0.9  # AUC, at most, of a column that is known before the click
GAP = 0.75  # of what it has above 1/2, a column that tells too much leaves at most this to the next one


def leaks(columns: list[ColumnStats], fields: dict[str, Field], clicks: NDArray[np.float32] | None) -> dict[str, str]:
    """For each column that gives the label away, how. `fields`: what the columns would be."""
    if clicks is None or min(clicks.sum(), len(clicks) - clicks.sum()) < FEWEST:
        return {}
    wanted = clicks > 0
    notes: dict[str, str] = {}
    powers: dict[str, float] = {}
    for column in columns:
        if column.codes is None or len(column.codes) != len(wanted) or column.distinct == 0:
            continue
        field = fields.get(column.name)
        codes = _binned(column) if field is not None and field.kind == "number" else column.codes
        rare = min(wanted.sum(), (~wanted).sum())
        # Instead of nothing, many tools write a zero.
        usual = column.codes == np.bincount(column.codes).argmax()
        if (column.present != wanted).sum() <= ABSENT * rare:
            notes[column.name] = "it is missing exactly where there is no click"
        elif _only_clicks(column.present, wanted):
            notes[column.name] = "it is missing wherever there is no click"
        elif usual.mean() > 0.5 and _only_clicks(~usual, wanted):
            notes[column.name] = "it has one and the same value wherever there is no click"
        else:
            rates = _rates(codes, wanted)
            if ((rates > 0.5) != wanted).sum() <= WRONG * rare:
                notes[column.name] = "the label follows from it"
            else:
                powers[column.name] = _auc(rates, wanted) - 0.5
    return notes | {
        name: f"it alone has an AUC of {0.5 + powers[name]:.2f}, which hardly any column has that is known before the click"
        for name in _outstanding(powers)
    }


def _only_clicks(present: NDArray[np.bool_], wanted: NDArray[np.bool_]) -> bool:
    """Whether values are there for some clicks and for nothing else, as a sum paid is."""
    return bool(present.sum() >= FEWEST and (present & ~wanted).sum() <= ABSENT * present.sum() and wanted.mean() < 0.5)


def _outstanding(powers: dict[str, float]) -> list[str]:
    """The columns that tell too much, and far more than all others."""
    order = sorted(powers, key=lambda name: -powers[name])
    for place, name in enumerate(order):
        if powers[name] < HONEST - 0.5:
            return []
        if place + 1 < len(order) and powers[order[place + 1]] < GAP * powers[name]:
            return order[: place + 1]
    return []


def _binned(column: ColumnStats) -> NDArray[np.int64]:
    """A code for each row's number: frequent numbers have one of their own, the others one for their neighbourhood."""
    values, codes, counts = np.unique(column.first_numbers, return_inverse=True, return_counts=True)
    heavy = counts >= HEAVY * len(codes)
    light = np.flatnonzero(~heavy & ~np.isnan(values))
    bins = np.arange(len(values))
    if len(light):
        passed = np.cumsum(counts[light])
        bins[light] = len(values) + BINS * (passed - 1) // passed[-1]
    return bins[codes]


def _rates(codes: NDArray[np.int64], wanted: NDArray[np.bool_]) -> NDArray[np.float64]:
    """For each row the click rate of its code in the other half of the stretches."""
    half = (np.arange(len(codes)) * STRETCHES // len(codes)) % 2
    codes = np.unique(codes, return_inverse=True)[1]
    size, base = int(codes.max()) + 1, float(wanted.mean())
    rates = np.empty(len(codes))
    for side in (0, 1):
        here, other = half == side, half != side
        rows = np.bincount(codes[other], minlength=size)
        clicks = np.bincount(codes[other], weights=wanted[other], minlength=size)
        rates[here] = ((clicks + base) / (rows + 1.0))[codes[here]]
    return rates


def _auc(rates: NDArray[np.float64], wanted: NDArray[np.bool_]) -> float:
    """The share of pairs of a click and a row without that the rates order rightly; ties count half."""
    values, codes = np.unique(rates, return_inverse=True)
    clicks = np.bincount(codes, weights=wanted, minlength=len(values))
    others = np.bincount(codes, weights=~wanted, minlength=len(values))
    below = np.cumsum(others) - others
    return float((clicks * (below + others / 2)).sum() / max(clicks.sum() * others.sum(), 1.0))
