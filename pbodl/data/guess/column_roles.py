"""What a column may be for, by its name and what it holds: the label, the time, a field, or better left out.

Fractions are numbers. Whole numbers are numbers if their name says so, if they are spread as counts are (many small ones, few large
ones), or if they have so many values that hardly any recurs; the others are codes. A column is left out if it is constant, or if
nearly every row has a unique value.
"""

import re
from collections.abc import Sequence

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pbodl.data.features.outcome import label_column
from pbodl.data.features.tokens import WORDS as BY_WORDS
from pbodl.data.features.tokens import pieces
from pbodl.data.guess.column_stats import ColumnStats
from pbodl.data.labels import WORDS
from pbodl.data.schema import Field, check_column_name, nearest
from pbodl.data.texts import is_text, times
from pbodl.data.times import parse_times
from pbodl.errors import InputError

LABEL_WORDS = ("click", "clicked", "clicks", "clk", "label", "target", "y", "conversion", "converted")
LABEL_PREFIXES = ("is", "was", "has")
RATING_WORDS = {"rating", "stars"}
TIME_WORDS = {"time", "timestamp", "ts", "date", "datetime", "day", "hour", "when", "at"}
GROUP_WORDS = {
    "user": {
        "user", "uid", "device", "cookie", "visitor", "member", "customer", "session", "age", "gender", "interests", "ip", "os",
        "browser", "occupation", "person", "reader", "nutzer", "benutzer", "kunde", "besucher", "utilisateur", "usuario", "cliente",
    },
    "ad": {
        "ad", "ads", "adid", "campaign", "creative", "advertiser", "brand", "item", "product", "offer", "price", "bid", "movie",
        "film", "song", "track", "article", "book", "video", "sku", "listing", "title", "genre", "genres",
        "job", "post", "advertisement", "anzeige", "werbung", "kampagne", "artikel", "produkt", "annonce", "produit", "anuncio",
        "producto",
    },
}  # fmt: skip
PREDICTION_WORDS = {"p", "prob", "probability", "pred", "prediction", "ctr", "pctr", "pcvr"}
NUMBER_WORDS = {
    "price",
    "bid",
    "amount",
    "count",
    "num",
    "age",
    "duration",
    "seconds",
    "days",
    "score",
    "distance",
    "revenue",
    "income",
    "salary",
}
# Names of codes: whole numbers in such a column are no quantities.
CODE_WORDS = {
    "id", "uid", "adid", "code", "type", "zip", "postal", "version", "hash", "key", "category", "class", "site", "page", "user",
    "device", "ad", "ads", "campaign", "creative", "advertiser", "brand", "item", "product", "offer", "movie", "cat", "index",
    "slot", "position", "visitor", "cookie", "member", "customer", "session", "article", "song", "track", "book", "video", "sku",
    "listing", "film", "publisher", "advertisement",
}  # fmt: skip
# These, too, but only in a name that has no other words: `region`, and not `region_width`.
LONE_CODE_WORDS = {
    "city", "town", "region", "state", "country", "address", "phone", "domain", "app", "topic", "channel", "carrier", "maker",
    "model", "language", "segment", "placement", "store", "shop", "source", "network",
}  # fmt: skip
# Formats of whole numbers and of texts that are not ISO 8601; tried in this order, strictly.
FORMATS = (
    "%Y%m%d%H%M%S", "%Y%m%d%H%M", "%Y%m%d%H", "%y%m%d%H", "%Y%m%d", "%Y/%m/%d %H:%M:%S", "%Y/%m/%d", "%d.%m.%Y %H:%M:%S",
)  # fmt: skip
EARLIEST, LATEST = 631152000.0, 4102444800.0  # the years 1990 to 2099
UNIQUE = 0.9  # above this share of rows with a unique value, treat the column as an id
FEW = 20  # with fewer rows, uniqueness says nothing; with fewer values, whole numbers are codes
SENTENCE = 3  # different words to a text, at least, of texts that are learned by their words
ONE = 1.02  # values per entity, at most, of what the entity decides
MANY = 1.3  # values per entity, at least, of what would be anybody's guess
FEWEST = 100  # rows that say something
SAMPLE = 1000  # values that are tried as times
LISTED = 0.2  # above this share of texts with a list's separator, treat the column as a list
PARTS = 16  # of a number, between the edges of its curve, at most: the fourth root of its rows
FEWEST_PARTS = 4
DENSE = 0.01  # of the numbers that count rows, at most this share may be left out, or begin anew
RECENT = ((9.4e11, 2.6e12), (9.4e14, 2.6e15), (9.4e17, 2.6e18))  # milli-, micro- and nanoseconds of the years 2000 to 2050
SPAN = 0.2  # between times of one log, at most, as a share of the time since 1970
SPREAD = 0.1  # above this share of different values, whole numbers hardly recur


def words_of(column: ColumnStats) -> set[str]:
    """The words of a name: `adId` and `ad_id` are both `ad` and `id`."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+|\d+", column.name)}


def label_of(columns: list[ColumnStats], warnings: list[str], named: bool = True) -> str | None:
    """The column that says whether there was a click, or a comparison that computes it; `named`: the columns have names.

    InputError if several have the name of a label: a model of clicks is none of sales, and only a person knows which is wanted.
    """
    binary = [c for c in columns if _is_binary(c)]
    likely = [c for c in binary if words_of(c) & set(LABEL_WORDS)]
    # `click` rather than `click_allowed`; and one of several that say the same.
    candidates = [c for c in likely if has_name_of_label(c)] or likely
    candidates = [c for place, c in enumerate(candidates) if not any(_same(c, other) for other in candidates[:place])]
    if len(candidates) > 1:
        names = [repr(c.name) for c in candidates]
        raise InputError(
            f"{', '.join(names[:-1])} and {names[-1]} may each be the label; say which with --label {candidates[0].name} (of "
            f"`pbodl data inspect` and `pbodl train`), or `pbodl.guess(data, label={names[0]})`"
        )
    if candidates:
        return candidates[0].name
    if len(binary) == 1 or (binary and not named):
        why = "it alone holds 0 and 1" if len(binary) == 1 else "it is the first that holds 0 and 1"
        warnings.append(f"column {binary[0].name!r} is taken for the label, as {why}")
        return binary[0].name
    for column in columns:
        if words_of(column) & RATING_WORDS and column.kind in ("whole", "fraction") and column.high > column.low:
            label = f"{column.name} >= {column.low + 0.75 * (column.high - column.low):g}"
            warnings.append(f"no column holds 0 and 1: the label is computed from the ratings, {label}; check the threshold")
            return label
    others = [repr(c.name) for c in columns if words_of(c) & set(LABEL_WORDS)]
    hint = f" ({', '.join(others)} does not hold 0 and 1)" if others else ""
    if binary:
        hint = f": {', '.join(repr(c.name) for c in binary[:5])} hold 0 and 1, and no name says which is meant"
    proposal = proposed_label(columns)
    example = "" if proposal is None else f': for example `label = "{proposal}"`'
    warnings.append(f"no column can be taken for the label{hint}; give --label, or set `label`{example}")
    return None


def has_name_of_label(column: ColumnStats) -> bool:
    """Whether a column of two values has the name of a label, and no more than that."""
    return _is_binary(column) and bool(words_of(column) & set(LABEL_WORDS)) and words_of(column) <= {*LABEL_WORDS, *LABEL_PREFIXES}


def _is_binary(column: ColumnStats) -> bool:
    return column.distinct == 2 and (column.kind == "bool" or (column.low, column.high) == (0.0, 1.0) or _are_words(column))


def given_label(label: str, columns: list[ColumnStats]) -> str:
    """The label that a person names, if the log has its column."""
    column = next((c for c in columns if c.name == label_column(label)), None)
    if column is None:
        names = [c.name for c in columns]
        raise InputError(
            f"the log has no column {label_column(label)!r} for the label{nearest(label, names)}; it has {', '.join(names)}"
        )
    if column.name == label and (proposal := _comparison(column)) is not None and not _are_words(column):
        raise InputError(
            f"the label {label!r} holds two words that are neither yes nor no; give a comparison: --label {proposal!r}"
        )
    return label


def _same(one: ColumnStats, other: ColumnStats) -> bool:
    """Whether two columns repeat each other, as far as their first rows say."""
    return one.codes is not None and other.codes is not None and np.array_equal(one.codes, other.codes)


def proposed_label(columns: list[ColumnStats]) -> str | None:
    """The comparison that is most likely to compute the label: clicks are rare. A person must decide."""
    of_two = [c for c in columns if _comparison(c) is not None]
    return _comparison(min(of_two, key=lambda c: c.counts.min() / c.counts.sum())) if of_two else None


def _comparison(column: ColumnStats) -> str | None:
    """A comparison that computes the label from a column of two words: the rarer one is the click."""
    if column.distinct != 2 or column.kind != "text" or len(column.counts) != 2:
        return None
    return f"{column.name} == {column.sample[int(column.counts.argmin())].as_py()}"


def _are_words(column: ColumnStats) -> bool:
    """Whether two texts stand for 0 and 1, such as no and yes."""
    if column.kind != "text" or not is_text(column.sample.type):
        return False
    found = [WORDS.get(text.strip().lower()) for text in pc.cast(column.sample, pa.string()).to_pylist()]
    return sorted(found, key=str) == [0, 1]


def time_format_of(column: ColumnStats, warnings: list[str]) -> tuple[str | None, str | None] | None:
    """The format and the unit in which the column can be read as times (None: without one); None if it cannot."""
    if column.kind == "time":
        return (None, None)
    # Without a telling name, numbers that only grow are times if they would be recent ones.
    named = bool(words_of(column) & TIME_WORDS) or (column.rising and column.kind != "text" and column.distinct > FEW)
    named = named or _likely_moments(column)
    if column.missing or column.kind not in ("whole", "fraction", "text") or not (named or column.kind == "text"):
        return None
    sample = column.sample[:SAMPLE]
    numeric = times(sample) if is_text(sample.type) else sample
    formats = FORMATS if words_of(column) & TIME_WORDS or column.kind == "text" else ()
    for time_format, values in [*((known, sample) for known in formats), (None, numeric)]:
        try:
            seconds = parse_times(values, column.name, time_format)
        except InputError:
            continue
        if EARLIEST <= seconds.min() <= seconds.max() <= LATEST:
            return (time_format, None)
    for unit, scale in (("ms", 1e3), ("us", 1e6), ("ns", 1e9)):
        if named and column.kind != "text" and scale * EARLIEST <= column.low <= column.high <= scale * LATEST:
            return (None, unit)
    return None


def _counts_rows(column: ColumnStats) -> bool:
    """Whether whole numbers go up by one from row to row, or are as many and as dense as the rows, in any order."""
    if column.kind != "whole" or column.missing or column.rows < FEW or column.codes is None:
        return False
    if column.distinct == column.rows and column.high - column.low < (1.0 + DENSE) * column.rows:
        return True
    return column.distinct > FEW and bool((np.diff(column.first_numbers) == 1.0).mean() > 1.0 - DENSE)


def can_be_field(column: ColumnStats) -> bool:
    """Whether a field can read the column at all."""
    try:
        check_column_name("a column", column.name)
    except InputError:
        return False
    return bool(column.name) and column.kind != "nested"


def _likely_moments(column: ColumnStats) -> bool:
    """Whether numbers are so large, so near to each other and so many that they can only be times, in whatever order."""
    if column.kind not in ("whole", "fraction") or column.distinct <= FEW or "id" in words_of(column):
        return False
    near = column.high - column.low <= SPAN * column.high
    return near and any(first <= column.low and column.high <= last for first, last in RECENT)


def objection(column: ColumnStats, rows: int, is_time: bool) -> str:
    """Why a column should not be learned from; empty if it may be."""
    try:
        check_column_name("a column", column.name)
    except InputError:
        return "its name has a character that no field may have; rename the column"
    if not column.name:
        return "it has no name"
    if column.kind == "nested":
        return "it holds objects or lists of lists"
    if column.distinct == 0:
        return "it is empty"
    if is_time:
        return "it is another time"
    if column.distinct == 1 and not column.missing:
        return f"it is constant, {column.sample[0].as_py()!r:.60}"
    if words_of(column) & PREDICTION_WORDS and column.kind == "fraction" and 0.0 <= column.low <= column.high <= 1.0:
        return "it looks like a predicted or true probability, which is not known beforehand"
    if _counts_rows(column):
        return "it counts the rows, as an index does"
    there = rows - column.missing
    if there >= FEW and column.distinct > UNIQUE * there and field_of(column).kind == "category":
        return "nearly every row has a value of its own, as an id has"
    return ""


def field_of(column: ColumnStats) -> Field:
    """The field a column would be; its group is by its name alone."""
    words = words_of(column)
    group = next((name for name, known in GROUP_WORDS.items() if words & known), "context")
    kind = "category"
    if column.kind == "list" or (column.kind == "text" and column.listed > LISTED):
        kind = "multi"
    elif _is_quantity(column, words):
        kind = "number"
    parts = min(PARTS, max(FEWEST_PARTS, int((column.rows - column.missing) ** 0.25)))
    edges = column.curve_edges(parts) if kind == "number" else ()
    return Field(column.name, group=group, kind=kind, transform="curve" if edges else "buckets", edges=edges)


def by_words(column: ColumnStats) -> Field | None:
    """The field of the words of texts, if these are sentences whose words recur; None if they are not."""
    if column.kind != "text" or not is_text(column.sample.type):
        return None
    texts = [pieces(text, BY_WORDS) for text in pc.cast(column.sample[:SAMPLE], pa.string()).to_pylist() if " " in text.strip()]
    words = [word for text in texts for word in set(text)]
    if len(words) < SENTENCE * min(len(column.sample), SAMPLE) or len(set(words)) > len(words) / 2:
        return None
    return msgspec.structs.replace(field_of(column), kind="multi", split=BY_WORDS)


def is_entity(column: ColumnStats, others: Sequence[ColumnStats]) -> bool:
    """Whether whole numbers that are spread as counts are ids after all: each value has one value of another column of codes, and
    no other column says which it is, as a user says which income."""
    if words_of(column) & NUMBER_WORDS or column.kind != "whole" or not _are_counts(column):
        return False
    others = [other for other in others if other is not column and other.distinct >= 2]
    if not any(other.distinct < column.distinct and decides(column, other) for other in others):
        return False
    return not any(other.distinct >= column.distinct and decides(other, column) for other in others)


def decides(entity: ColumnStats, other: ColumnStats) -> bool:
    """Whether nearly each value of an entity has one value of the other column, and this is no accident."""
    if entity.codes is None or other.codes is None or len(entity.codes) != len(other.codes) or len(entity.codes) < FEWEST:
        return False
    entities = int(entity.codes.max()) + 1
    if pairs_of(entity.codes, other.codes) > ONE * entities:
        return False
    return pairs_of(entity.codes, np.random.default_rng(0).permutation(other.codes)) >= MANY * entities


def pairs_of(one: NDArray[np.int64], other: NDArray[np.int64]) -> int:
    """How many different pairs of values there are."""
    return len(np.unique(one * (other.max() + 1) + other))


def _is_quantity(column: ColumnStats, words: set[str]) -> bool:
    if column.kind not in ("whole", "fraction") or not np.isfinite([column.low, column.high]).all():
        return False
    if column.kind == "fraction" or "id" in words:
        return "id" not in words
    if words & NUMBER_WORDS:
        return True
    if words & CODE_WORDS or (words and words <= LONE_CODE_WORDS) or column.distinct <= FEW:
        return False
    there = column.rows - column.missing
    hardly_recurs = column.distinct > SPREAD * there and not (column.rising and column.distinct > UNIQUE * there)
    return hardly_recurs or _are_counts(column)


def _are_counts(column: ColumnStats) -> bool:
    """Whether whole numbers are spread as counts are: the small ones are all there, and most rows have one of them."""
    numbers = pc.cast(column.sample, pa.float64(), safe=False).to_numpy()
    small = numbers[(numbers >= 0) & (numbers < 10)]
    if column.low > 1 or len(small) < 8:
        return False
    order = np.argsort(numbers)
    median = numbers[order][np.searchsorted(np.cumsum(column.counts[order]), column.counts.sum() / 2)]
    return bool(median <= column.high / 4)
