"""What a run shows on the terminal: a progress bar with live figures, and tables. All of it goes to stderr."""

import datetime
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

from pbodl.training.run import Status

LABELS = {"auc": "AUC", "log_loss": "log loss", "ne": "normalised entropy", "calibration": "calibration", "ctr": "CTR"}

OTHER = "(other)"  # slice of all infrequent values

# A log file has no width. Names of files and fields may hold texts such as :x:, which must stay what they are.
console = Console(stderr=True, highlight=False, emoji=False, width=None if sys.stderr.isatty() else 120)


def bar(description: str = "{task.description}") -> Progress:
    """A progress bar with the remaining time and a text of figures."""
    return Progress(
        TextColumn(description),
        BarColumn(bar_width=16),
        TextColumn("{task.percentage:>3.0f}%"),
        RemainingColumn(),
        TextColumn("{task.fields[text]}"),
        console=console,
    )


class RemainingColumn(ProgressColumn):
    """The time that is left, from the first progress on; and at the end the time that it took."""

    def render(self, task: Task) -> Text:
        elapsed = task.elapsed or 0.0
        if task.finished:
            return Text(_clock(elapsed))
        if not task.completed or task.total is None:
            return Text("-:--:--")
        return Text(_clock(elapsed * (task.total - task.completed) / task.completed) + " left")


def _clock(seconds: float) -> str:
    return str(datetime.timedelta(seconds=round(max(seconds, 0.0))))


class TrainingBar:
    """The bar of a training run: rows per second, and the running AUC, log loss, NE and calibration."""

    def __init__(self, name: str, total: int | None) -> None:
        self._progress = bar()
        self._task: TaskID = self._progress.add_task(name, total=total, text="")

    def __enter__(self) -> "TrainingBar":
        self._progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._progress.stop()

    def show(self, status: Status, total: int | None, rate: float) -> None:
        figures = status.figures
        text = (
            f"{status.rows:,} rows {rate:,.0f}/s  AUC {figures.auc:.4f}  log loss {figures.log_loss:.4f}  "
            f"NE {figures.ne:.4f}  calibration {figures.calibration:.3f}"
        )
        self._progress.update(self._task, completed=status.rows, total=total, text=text)


def plain_table(title: str, first: str, others: Sequence[str]) -> Table:
    """An empty table that fits a terminal: the first column is aligned left, the others right."""
    table = Table(title=escape(title), title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(escape(first), overflow="fold")
    for name in others:
        table.add_column(escape(name), justify="right")
    return table


def periods_table(title: str, summary: Mapping[str, Any], in_time: bool) -> Table:
    """The figures of each period, of all together, and, if the log has any, of those rows whose ad was new."""
    lines = [(moment(line["start"], in_time), line) for line in summary["days"]]
    if len(lines) > 1:
        lines.append(("all", summary))
    has_new = any(line["new_ads"]["rows"] for _, line in lines)
    names = ("rows", "CTR", "AUC", "log loss", "NE", "calibration", *(("new ads", "new: AUC", "new: log loss") if has_new else ()))
    table = plain_table(title, "from", names)
    for name, line in lines:
        new = line["new_ads"]
        cells = [f"{line['rows']:,}", number(line["ctr"]), number(line["auc"]), number(line["log_loss"]), number(line["ne"])]
        cells += [number(line["calibration"], 3)]
        cells += [f"{new['rows']:,}", number(new["auc"]), number(new["log_loss"])] if has_new else []
        table.add_row(name, *cells)
    return table


def log_notes(summary: Mapping[str, Any], groups: Sequence[str]) -> list[str]:
    """What a person should know about a log that was learned with fields of these groups."""
    notes, sources = [], summary["files"]
    if "ad" not in groups:
        notes.append("no field has the group 'ad': a server cannot rank, and there are no figures of new ads; set it in the schema")
    if summary["out_of_order"]:
        notes.append(
            f"{summary['out_of_order']:,} of {summary['rows']:,} rows are older than a row before them; sort the log by time: "
            "what a model learns from later rows flatters its figures"
        )
    if summary["bad_rows"]:
        notes.append(f"{summary['bad_rows']:,} bad rows were left out")
    twice = [name for name in dict.fromkeys(sources) if sources.count(name) > 1]
    if twice:
        notes.append(
            f"{', '.join(twice[:3])} was learned more than once: a second pass makes the model too certain, "
            "and its figures flatter it"
        )
    return notes


def evaluation_tables(figures: Mapping[str, Any]) -> list[Table]:
    """The figures of an evaluation: overall with their intervals, by day, and by slice."""
    overall = plain_table(f"{figures['model']}, frozen, {figures['rows']:,} rows", "figure", ("value", "95 % interval"))
    for name in ("auc", "log_loss", "ne", "calibration", "ctr"):
        overall.add_row(LABELS[name], number(figures[name]), _interval(figures, name))
    tables = [overall]
    if figures["days"]:
        lines = [(moment(line["start"], True), line) for line in figures["days"]]
        tables.append(_slices_table("by day", "day", lines))
    if "slices" in figures:
        lines = [(line["value"], line) for line in figures["slices"]]
        title = f"by {figures['by']}"
        if lines[-1][0] == OTHER:
            title += f": the {len(lines) - 1} most frequent values, and all others together"
        tables.append(_slices_table(title, figures["by"], lines))
    return tables


def _slices_table(title: str, first: str, lines: Sequence[tuple[str, Mapping[str, Any]]]) -> Table:
    table = plain_table(title, first, ("rows", "CTR", "AUC", "95 % interval", "log loss", "95 % interval", "NE", "calibration"))
    for name, line in lines:
        table.add_row(
            escape(name), f"{line['rows']:,}", number(line["ctr"]), number(line["auc"]), _interval(line, "auc"),
            number(line["log_loss"]), _interval(line, "log_loss"), number(line["ne"]), number(line["calibration"], 3),
        )  # fmt: skip
    return table


def _interval(figures: Mapping[str, Any], name: str) -> str:
    ends = figures["intervals"].get(name)
    return "" if ends is None else f"{ends[0]:.4f} – {ends[1]:.4f}"


def number(value: float | None, digits: int = 4) -> str:
    """A figure, or a dash if it is missing."""
    return "–" if value is None else f"{value:.{digits}f}"


def moment(start: float, in_time: bool) -> str:
    """The start of a period: date and hour (the date alone at midnight), or the row."""
    if not in_time:
        return f"row {start:,.0f}"
    then = datetime.datetime.fromtimestamp(start, datetime.UTC)
    return then.strftime("%Y-%m-%d" if start % 86400.0 == 0 else "%Y-%m-%d %H:%M")
