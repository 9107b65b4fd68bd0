"""Facts about a column whose meaning is unknown: its type, how many values it has, how many are missing."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pbodl.data.features.tokens import split_texts
from pbodl.data.hashing import hash_array
from pbodl.data.texts import BETWEEN, NUMBER, is_text, numbers

GATHER = 1 << 17  # keys to wait for before they are sorted in
POINTS = 4096  # numbers of a block that stand for all of them, at most
DIGITS = 3  # of edges, relative to the span of the numbers
EDGE = 0.02  # of the numbers on either side, that do not count for how far the others spread
DENSE = 4  # times as many different numbers as parts, where an edge need not be one of them
SKEWED = 3.0  # times farther to one side of the middle than to the other
SEPARATOR = "\x1f"  # between the elements of a list
JSON_LIST = r"^\[.*\]$"
WHOLE = r"^[+-]?\d+$"


class ColumnStats:
    """Statistics of one column, gathered block by block.

    rows, missing  how many; missing is null, NaN, or an empty text
    distinct       different values that are there (of lists: elements)
    kind           "whole" or "fraction" numbers, "text", "list", "time" (timestamps and dates), or "bool"
    low, high      of numbers
    listed         share of texts with the sign that stands between the values of a list, or that are lists in JSON
    sample         the different values of the first block
    codes          of the first block: a number for each value, in order of appearance; missing has one, too
    values         of the first block: the value of each code; of a list, its elements as one text
    present        of the first block: whether a row has a value
    counts         of the first block: how often each value of the sample occurs
    rising         every number is larger than the one before it
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.rows = self.missing = 0
        self.low, self.high = np.inf, -np.inf
        self.sample: pa.Array = pa.array([], pa.string())
        self.codes: NDArray[np.int64] | None = None
        self.values: pa.Array = pa.array([], pa.string())
        self.present: NDArray[np.bool_] = np.empty(0, dtype=np.bool_)
        self.counts: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self.rising = True
        self._keys: NDArray[np.uint64] = np.empty(0, dtype=np.uint64)
        self._new: list[NDArray[np.uint64]] = []  # of later blocks, not yet among the keys
        self._kinds: set[str] = set()
        self._texts = self._listed = 0
        self._elements: NDArray[np.uint64] = np.empty(0, dtype=np.uint64)  # of texts that are lists
        self._numbers: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = []  # of each block: rising ones, and their counts

    @property
    def first_numbers(self) -> NDArray[np.float64]:
        """The numbers of the first block, row by row; NaN is missing."""
        held = self.values if not is_text(self.values.type) else numbers(pc.cast(self.values, pa.large_string()))
        return pc.fill_null(pc.cast(held, pa.float64(), safe=False), np.nan).to_numpy(zero_copy_only=False)[self.codes]

    @property
    def distinct(self) -> int:
        self._gather()
        return len(self._keys)

    def edges(self, parts: int) -> tuple[float, ...]:
        """The least number, the largest, and those between that cut all into so many parts of about the same size; fewer where
        numbers repeat, and none if there are not two numbers."""
        if not self._has_span:
            return ()
        values, passed = self._ranked()
        return self._rounded(values[_rank(passed, np.arange(1, parts) / parts)])

    def curve_edges(self, parts: int) -> tuple[float, ...]:
        """As `edges`, but of numbers spread evenly about their middle half way to parts of the same width; all numbers if they are
        few."""
        if not self._has_span:
            return ()
        values, passed = self._ranked()
        if self.distinct <= parts:
            return tuple(sorted(set(values.tolist())))
        inner = values[_rank(passed, np.arange(1, parts) / parts)]
        low, middle, high = values[_rank(passed, np.array([EDGE, 0.5, 1.0 - EDGE]))]
        skew = max(middle - low, high - middle) > SKEWED * min(middle - low, high - middle)
        if self.distinct > DENSE * parts and not skew:
            inner = (inner + np.linspace(low, high, parts + 1)[1:-1]) / 2
        return self._rounded(inner)

    @property
    def _has_span(self) -> bool:
        return bool(0.0 < self.high - self.low < np.inf)

    def _ranked(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The numbers in rising order, and how many there are up to each."""
        values, counts = (np.concatenate(parts) for parts in zip(*self._numbers, strict=True))
        order = np.argsort(values, kind="stable")
        return values[order], np.cumsum(counts[order])

    def _rounded(self, inner: NDArray[np.float64]) -> tuple[float, ...]:
        digits = DIGITS - int(np.floor(np.log10(self.high - self.low)))
        return tuple(sorted({round(cut, digits) + 0.0 for cut in (self.low, *inner.tolist(), self.high)}))

    @property
    def elements(self) -> int:
        """Different elements of texts, where | stands between them."""
        return len(self._elements)

    @property
    def kind(self) -> str:
        if self._kinds <= {"whole", "fraction"}:
            return "fraction" if "fraction" in self._kinds else "whole"
        return self._kinds.copy().pop() if len(self._kinds) == 1 else "text"

    @property
    def listed(self) -> float:
        return self._listed / max(self._texts, 1)

    @property
    def missing_share(self) -> float:
        return self.missing / max(self.rows, 1)

    def add(self, column: pa.ChunkedArray) -> None:
        """Take in the values of one block."""
        self.rows += len(column)
        values = column.combine_chunks()
        if isinstance(values, pa.ChunkedArray) or pa.types.is_null(values.type):
            values = pc.cast(column, pa.large_string()).combine_chunks()
        if pa.types.is_dictionary(values.type):
            values = pc.take(_plain(values.dictionary), values.indices)
        values = _plain(values)
        lists = pa.types.is_list(values.type) or pa.types.is_large_list(values.type)
        if pa.types.is_nested(values.type) and (not lists or pa.types.is_nested(values.type.value_type)):
            self._kinds.add("nested")
            return
        if self.codes is None and self.rows == len(column):
            plain = pc.binary_join(pc.cast(values, pa.list_(pa.string())), SEPARATOR) if lists else values
            coded = pc.dictionary_encode(plain, null_encoding="encode")
            self.codes, self.values = coded.indices.to_numpy().astype(np.int64), coded.dictionary
            self.present = _is_there(plain).to_numpy(zero_copy_only=False)
        if lists:
            self.missing += values.null_count
            values = values.flatten()
        there = values.filter(_is_there(values))
        self.missing += 0 if lists else len(values) - len(there)
        if not len(there):
            return
        coded = pc.dictionary_encode(there)
        distinct, counts = coded.dictionary, np.bincount(coded.indices.to_numpy(), minlength=len(coded.dictionary))
        self._new.append(_keys(distinct))
        if sum(map(len, self._new)) > max(len(self._keys), GATHER):
            self._gather()
        if not len(self.sample):
            self.sample = distinct
            self.counts = counts
        self._kinds.add("list" if lists else self._kind_of(distinct, counts))
        if is_text(there.type):
            self._texts += len(there)
            signs = pc.or_(pc.match_substring(distinct, BETWEEN), pc.match_substring_regex(distinct, JSON_LIST))
            listed = int(counts[signs.to_numpy(zero_copy_only=False)].sum())
            self._listed += listed
            if listed:
                self._elements = np.union1d(self._elements, _keys(split_texts(distinct, BETWEEN).flatten()))

    def _gather(self) -> None:
        keys = np.sort(np.concatenate([self._keys, *self._new]))
        self._keys = keys[np.append(np.ones(len(keys[:1]), dtype=bool), keys[1:] != keys[:-1])]
        self._new = []

    def _kind_of(self, distinct: pa.Array, counts: NDArray[np.int64]) -> str:
        """The kind of a block's values; notes its numbers."""
        kind = distinct.type
        if pa.types.is_boolean(kind):
            return "bool"
        if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
            return "time"
        if is_text(kind):
            if not pc.all(pc.match_substring_regex(distinct, NUMBER)).as_py():
                return "text"
            whole = pc.all(pc.match_substring_regex(distinct, WHOLE)).as_py()
        elif pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            whole = pa.types.is_integer(kind)
        else:
            return "text"
        found = pc.cast(distinct, pa.float64(), safe=False).to_numpy()
        self.rising = self.rising and bool((np.diff(found) > 0).all()) and bool(found[0] > self.high)
        self.low, self.high = min(self.low, float(found.min())), max(self.high, float(found.max()))
        self._numbers.append(_thinned(found, counts))
        # Whole numbers with gaps come as floats from many tools.
        whole = whole or (not is_text(kind) and bool((found == np.floor(found)).all()))
        return "whole" if whole else "fraction"


def _rank(passed: NDArray[np.float64], fractions: NDArray[np.float64]) -> NDArray[np.int64]:
    """The indices of the numbers below which these fractions of all are."""
    return np.searchsorted(passed, passed[-1] * fractions, side="right")


def _thinned(values: NDArray[np.float64], counts: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The numbers in rising order and their counts; of many numbers, some at equal distances in rank, for all others."""
    order = np.argsort(values)
    values, counts = values[order], counts[order]
    if len(values) <= POINTS:
        return values, counts.astype(np.float64)
    passed = np.cumsum(counts)
    ranks = passed[-1] * (np.arange(POINTS) + 0.5) / POINTS
    return values[np.searchsorted(passed, ranks, side="right")], np.full(POINTS, passed[-1] / POINTS)


def _keys(distinct: pa.Array) -> NDArray[np.uint64]:
    """A number for each value; for fractions their bits, as their texts would take long."""
    if pa.types.is_floating(distinct.type):
        return pc.cast(distinct, pa.float64()).to_numpy().view(np.uint64)
    return hash_array(distinct, np.uint64(0))


def _is_there(values: pa.Array) -> pa.Array:
    if is_text(values.type):
        return pc.fill_null(pc.not_equal(values, ""), False)
    return pc.invert(pc.is_null(values, nan_is_null=pa.types.is_floating(values.type)))


def _plain(values: pa.Array) -> pa.Array:
    """Views, in which polars hands over its texts, as plain texts: Arrow compares no views."""
    return pc.cast(values, pa.large_string()) if pa.types.is_string_view(values.type) else values
