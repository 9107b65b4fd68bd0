"""Shows what `field_importance` found: a table for the terminal, and a page with charts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from pbodl.training.display import number, plain_table
from pbodl.training.report.chart_data import bar_chart
from pbodl.training.report.page import charts, page, section, table, tiles, write_page

COLUMNS = ("log loss without it", "it saves", "95 % interval", "new values", "95 % interval", "stability", "95 % interval")
STABLE, OTHER_POPULATION = 0.1, 0.25
NOTE = (
    "“Without it” means that the values of the field are exchanged between rows at random. Two fields that say the same each seem "
    "unimportant. “New values” is the share of rows with a value that the model has never learned."
)
RULE = f"As a rule of thumb, below {STABLE} the values are stable, and above {OTHER_POPULATION} they have another distribution."
MOST_BARS = 8
LONGEST = 14  # letters of a name below a bar


def fields_table(found: Mapping[str, Any]) -> list[Table]:
    """The fields, the most important first."""
    shown = plain_table(f"{found['model']}, {found['rows']:,} rows, log loss {found['log_loss']:.4f}", "field", COLUMNS)
    for column in shown.columns[1:]:
        column.no_wrap = column.header == "95 % interval"
    for line in found["fields"]:
        shown.add_row(*(escape(cell) for cell in _cells(line)))
    return [shown]


def write_fields(path: Path, found: Mapping[str, Any]) -> Path:
    """Write a page with charts of importance and drift, and the table."""
    lines = found["fields"]
    worst = sorted(lines, key=lambda line: -(line.get("stability") or 0.0))
    body = tiles({"log loss": number(found["log_loss"]), "rows": f"{found['rows']:,}", "fields": f"{len(lines)}"})
    saves = bar_chart(
        "Log loss that a field saves", [_short(line["field"]) for line in lines[:MOST_BARS]],
        {"saves": [line["adds"] for line in lines[:MOST_BARS]]}, "field", "log loss", note=NOTE,
    )  # fmt: skip
    drift = bar_chart(
        "Drift of the values", [_short(line["field"]) for line in worst[:MOST_BARS]],
        {"stability index": [line.get("stability") for line in worst[:MOST_BARS]]}, "field", "stability index", digits=3, note=RULE,
    )  # fmt: skip
    body += section("Importance", charts(saves)) + section("Drift", charts(drift))
    body += section("All fields", table(("field", *COLUMNS), [_cells(line) for line in lines]))
    lead = f"What each field is worth to the model, and how far its values have drifted, on {found['rows']:,} rows of a log."
    return write_page(path, page(f"{found['model']}: fields", lead, body))


def _short(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


def _cells(line: Mapping[str, Any]) -> list[str]:
    cells = [line["field"], number(line["log_loss"]), f"{line['adds']:+.4f}", _interval(line["adds_interval"], 4)]
    if line.get("new") is None:
        return [*cells, "–", "", "–", ""]
    cells += [f"{100 * line['new']:.1f} %", _interval([100 * end for end in line["new_interval"]], 1)]
    return [*cells, number(line["stability"], 3), _interval(line["stability_interval"], 3)]


def _interval(ends: list[float], digits: int) -> str:
    return f"{ends[0]:.{digits}f} – {ends[1]:.{digits}f}"
