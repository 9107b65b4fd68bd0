"""Guessing a schema from a log, for `pbodl data inspect`: `guess(paths)` looks at its values and its names.

A guess is a starting point for a person to edit: its warnings name whatever is doubtful.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pbodl.data.features.nested import objects_of
from pbodl.data.features.outcome import clicks_of, label_column
from pbodl.data.guess.column_groups import repeated, with_groups
from pbodl.data.guess.column_roles import (
    FEW,
    by_words,
    can_be_field,
    decides,
    field_of,
    given_label,
    has_name_of_label,
    is_entity,
    label_of,
    objection,
    proposed_label,
    time_format_of,
)
from pbodl.data.guess.column_stats import ColumnStats
from pbodl.data.guess.leaks import leaks
from pbodl.data.known.criteo import CRITEO
from pbodl.data.log.added_columns import LOOK, json_columns
from pbodl.data.log.log_reader import open_file
from pbodl.data.log.log_sources import LogSource, find_sources
from pbodl.data.log.row_blocks import Layout, LogFile, RowBlock
from pbodl.data.schema import Field, Schema, nearest
from pbodl.data.texts import is_text, times
from pbodl.data.times import hours_of_day, parse_times
from pbodl.errors import InputError

BLOCK = 1 << 16


class ColumnGuess(NamedTuple):
    """What was seen in a column, and the role it is given."""

    name: str
    kind: str  # of its values: whole, fraction, text, list, time, bool
    distinct: int
    missing: float  # share
    role: str  # "label", "time", "field" or "left out"
    note: str  # why it is left out


class LogFigures(NamedTuple):
    """What the label and the time of a log say."""

    clicks: float | None = None  # share of labels that are 1
    first: float | None = None  # time, epoch seconds
    last: float | None = None
    out_of_order: int = 0  # rows older than one before them
    hours: int = 0  # different hours of the day


class Guess(NamedTuple):
    """A schema that may fit, and what was seen in the log."""

    files: list[str]
    rows: int  # looked at
    whole: bool  # those were all
    columns: list[ColumnGuess]
    label: str | None
    time: str | None
    time_format: str | None
    time_unit: str | None
    fields: list[Field]
    figures: LogFigures
    warnings: list[str]
    layout: Layout = Layout()
    proposal: str | None = None  # for the label, where none can be taken for granted

    def schema(self) -> Schema:
        """InputError if no column can be the label, or none can be learned from."""
        if self.label is None or not self.fields:
            lacking = "the label" if self.label is None else "a field"
            hint = "say which it is with --label, or" if self.label is None else "keep one with --keep, or"
            why = next((f" ({warning})" for warning in self.warnings if self.label is None and "the label" in warning), "")
            raise InputError(f"no column of {self.files[0]} can be taken for {lacking}{why}; {hint} write the schema yourself")
        about_time: dict[str, Any] = {"time": self.time, "time_format": self.time_format, "time_unit": self.time_unit}
        columns, delimiter = self.layout.columns, self.layout.delimiter
        return Schema(label=self.label, fields=self.fields, columns=columns, delimiter=delimiter, **about_time)


def guess(
    paths: Any,
    rows: int = 1_000_000,
    columns: Sequence[str] = (),
    delimiter: str | None = None,
    label: str | None = None,
    keep: Sequence[str] = (),
) -> Guess:
    """A guess from the first `rows` rows of a log (and a few more, to the end of a block).

    paths               as for `open_log`: files, or rows in memory
    columns, delimiter  as in the schema, for CSV files that need them
    label               the label, if it is known; InputError if it is not and several columns may be it
    keep                columns to learn from, though they seem to give the label away, or to say nothing
    """
    if rows < 1:
        raise InputError(f"rows is {rows}; it must be a whole number of at least 1")
    sources, warnings = find_sources(paths), list[str]()
    layout = _layout(sources[0], Layout(columns, delimiter), warnings)
    stats, seen, whole = _gathered(sources, layout, rows, warnings)
    _check_names(keep, [column.name for column in stats])
    headed = not layout.columns or bool(columns)
    label = label_of(stats, warnings, named=headed) if label is None else given_label(label, stats)
    proposal = proposed_label(stats) if label is None else None
    outcome = next((label_column(given) for given in (label, proposal) if given is not None), None)
    formats = {c.name: found for c in stats if c.name != outcome and (found := time_format_of(c, warnings))}
    likely = {column.name: field_of(column) for column in stats if column.name != outcome and can_be_field(column)}
    for column in stats:
        codes = [c for c in stats if c.name in likely and c.name not in formats and likely[c.name].kind != "number"]
        if column.name in likely and likely[column.name].kind == "number" and is_entity(column, codes):
            likely[column.name] = Field(column.name, group=likely[column.name].group)
    judged = [c for c in stats if c.name in likely and c.name not in formats]
    leaking = leaks(judged, likely, _first_clicks(sources, layout, rows, label))
    if label is not None:
        others = (c for c in stats if c.name in likely and has_name_of_label(c))
        leaking = {c.name: "it has the name of a label, too" for c in others} | leaking
    # Of several times, that with the most different values is the finest.
    time = max((c.name for c in stats if c.name in formats), key=lambda name: _named(stats, name).distinct, default=None)
    figures = _figures(sources, layout, rows, label, time, formats.get(time or "", (None, None)), warnings)
    if figures.first is None:
        time = None  # not all rows have one
    kinds = {name: field.kind for name, field in likely.items()}
    copies = repeated([c for c in stats if c.name != time], kinds, outcome)
    fields: list[Field] = []
    guesses: list[ColumnGuess] = []
    for column in stats:
        role, note = "field", ""
        if column.name in (outcome, time):
            role = "time" if column.name == time else "label" if label else "left out"
        elif note := _note(column, seen, column.name in formats, copies, leaking):
            # What is one of its kind as a whole may say something by its words.
            words = None if column.name in leaking else by_words(column)
            role = "field" if words is not None or (column.name in keep and column.name in likely) else "left out"
            if role == "field":
                note = ""
                fields.append(words or likely[column.name])
            else:
                switch = f" (--keep {column.name} puts it back)" if column.name in leaking else ""
                warnings.append(f"column {column.name!r} is left out: {note}{switch}")
        else:
            # Where something finer stands for the ad, its title is worth its words.
            words = by_words(column)
            if not any(decides(c, column) for c in stats if words is not None and _may_stand_for(c, column, likely)):
                words = None
            fields.append(words or likely[column.name])
        listed = role == "field" and fields[-1].kind == "multi" and column.kind == "text"
        distinct = column.elements if listed and column.elements else column.distinct
        guesses.append(ColumnGuess(column.name, column.kind, distinct, column.missing_share, role, note))
    if fields:
        fields = with_groups(fields, {column.name: column for column in stats}, time, warnings)
    if time is not None and figures.hours > 1 and "hour_of_day" not in [column.name for column in stats]:
        fields.insert(0, Field("hour_of_day", derive="hour_of_day"))
    names, (time_format, unit) = [source.name for source in sources], formats.get(time or "", (None, None))
    return Guess(names, seen, whole, guesses, label, time, time_format, unit, fields, figures, warnings, layout, proposal)


def _may_stand_for(entity: ColumnStats, column: ColumnStats, likely: dict[str, Field]) -> bool:
    """Whether a column of codes may stand for what another one describes: it is not coarser, and has no sentences itself."""
    is_code = entity.name in likely and likely[entity.name].kind == "category"
    return is_code and entity.name != column.name and entity.distinct >= column.distinct > FEW and by_words(entity) is None


def _check_names(keep: Sequence[str], names: list[str]) -> None:
    for name in keep:
        if name not in names:
            raise InputError(
                f"the column {name!r} is to be kept, but the log has none{nearest(name, names)}; it has {', '.join(names)}"
            )


def _first_clicks(sources: list[LogSource], layout: Layout, rows: int, label: str | None) -> NDArray[np.float32] | None:
    """The labels of the first block; None if they cannot be read."""
    if label is None:
        return None
    try:
        _, _, block = next(_blocks(sources, layout, [label_column(label)], rows))
        return clicks_of(label, _column(block, label_column(label), None))
    except InputError:
        return None


def _note(column: ColumnStats, rows: int, is_time: bool, copies: dict[str, str], leaking: dict[str, str]) -> str:
    """Why a column is left out; empty if it is not."""
    if column.name in copies:
        return f"it repeats {copies[column.name]!r}, each value of one going with one value of the other"
    return leaking.get(column.name) or objection(column, rows, is_time)


def _named(stats: list[ColumnStats], name: str) -> ColumnStats:
    return next(column for column in stats if column.name == name)


def _layout(source: LogSource, given: Layout, warnings: list[str]) -> Layout:
    """The layout given, or names for the columns of a file that has none."""
    file = open_file(source, given)
    file.close()
    if not getattr(file, "like_data", False):
        return given
    columns = [f"c{number}" for number in range(1, len(file.columns) + 1)]
    warnings.append(
        f"the first line of {source.name} holds values, not names: the columns are called c1 to c{len(columns)}; "
        "change `columns` to give them better names"
        + ("; if these are Criteo's logs, `--preset criteo` knows them" if len(columns) == len(CRITEO.columns) else "")
    )
    return given._replace(columns=columns)


def _blocks(
    sources: list[LogSource], layout: Layout, columns: list[str] | None, rows: int
) -> Iterator[tuple[LogFile, int, RowBlock]]:
    """Each block of the log's first rows, its file, and the number of rows before it in the file."""
    inside = [name for name in columns or _inside(sources[0], layout) if "." in name]
    for source in sources:
        file = open_file(source, layout, inside)
        taken_apart = objects_of(inside)
        try:
            names = columns or [name for name in file.columns if file.columns.count(name) == 1 and name not in taken_apart]
            for name in names:
                if name not in file.columns and not file.sparse:
                    raise InputError(f"{source.name} has no column {name!r}, which {sources[0].name} has")
            before = 0
            for block in file.blocks(names, min(BLOCK, rows), 0):
                yield file, before, block
                before += block.rows
                rows -= block.rows
                if rows <= 0:
                    return
        finally:
            file.close()


def _inside(source: LogSource, layout: Layout) -> list[str]:
    """The names of the values inside of the texts of JSON in a file's first rows."""
    if source.format == "jsonl" or (source.format == "memory" and not hasattr(source.rows, "__len__")):
        return []  # there objects are no texts; and what can be read only once is not looked at twice
    file = open_file(source, layout)
    try:
        block = next(file.blocks([name for name in file.columns if file.columns.count(name) == 1], LOOK), None)
    finally:
        file.close()
    return [] if block is None else json_columns(block.table)


def _gathered(sources: list[LogSource], layout: Layout, rows: int, warnings: list[str]) -> tuple[list[ColumnStats], int, bool]:
    """Statistics of all columns, the number of rows they are from, and whether these are all."""
    stats: dict[str, ColumnStats] = {}
    seen = bad = total = 0
    for file, before, block in _blocks(sources, layout, None, rows):
        if block.faults and not bad:
            place, fault = next(iter(block.faults.items()))
            number = file.first + before + place
            warnings.append(f"there are bad rows; the first is {file.source.name}, {file.unit} {number}: {fault}")
        bad += len(block.faults)
        for name in block.table.column_names:
            stats.setdefault(name, ColumnStats(name)).add(block.table.column(name))
        seen += block.table.num_rows
        total += block.rows
    if not seen:
        raise InputError(f"there are no rows in {', '.join(source.name for source in sources[:3])}")
    return list(stats.values()), seen, total < rows


def _figures(
    sources: list[LogSource],
    layout: Layout,
    rows: int,
    label: str | None,
    time: str | None,
    written: tuple[str | None, str | None],
    warnings: list[str],
) -> LogFigures:
    """Read the label and the time as they were guessed."""
    names = [name for name in (None if label is None else label_column(label), time) if name is not None]
    (time_format, unit), names = written, list(dict.fromkeys(names))
    clicks = seen = out_of_order = 0
    first, last = np.inf, -np.inf
    hours: set[int] = set()
    try:
        for _, _, block in _blocks(sources, layout, names, rows) if names else ():
            if label is not None:
                clicks += int(clicks_of(label, _column(block, label_column(label), None)).sum())
            if time is not None and block.table.num_rows:
                as_times = times if time_format is None else None
                moments = parse_times(_column(block, time, as_times), time, time_format, unit)
                latest = np.maximum.accumulate(np.append(last, moments))
                out_of_order += int((moments < latest[1:]).sum())
                first, last = min(first, moments.min()), latest[-1]
                hours.update(np.unique(hours_of_day(moments)).tolist())
            seen += block.table.num_rows
    except InputError as error:
        warnings.append(f"some rows do not match this guess: {error}")
        hours.clear()
    if out_of_order:
        warnings.append(f"the log is not sorted by time: {out_of_order} rows are older than one before them")
    share = clicks / seen if seen and label is not None else None
    if not hours:
        return LogFigures(share)
    return LogFigures(share, float(first), float(last), out_of_order, len(hours))


def _column(block: RowBlock, name: str, from_text: Callable[[pa.Array], pa.Array] | None) -> pa.Array:
    column = block.table.column(name)
    if from_text is None or not is_text(column.type):
        return column.combine_chunks()
    return from_text(pc.cast(column, pa.large_string()).combine_chunks())
