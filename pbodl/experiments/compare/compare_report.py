"""The pages of a comparison: the table on the terminal, compare.md, and report.html with the curves."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from pbodl.experiments.outcomes import write_json
from pbodl.experiments.table1.table1_report import markdown, settings_text
from pbodl.system.atomic_files import write_file
from pbodl.training.display import number, plain_table
from pbodl.training.report.chart_data import Series, line_chart
from pbodl.training.report.page import charts, page, section, table, tiles, write_page

STARTING = "Our models have their defaults, the others rates that suit click logs"
PARTS = ("progressive", "frozen")
COLUMNS = (
    "model", "progressive log loss", "AUC", "difference in log loss (95 %)", "frozen log loss", "AUC",
    "difference in log loss (95 %)", "calibration", "rows/s",
)  # fmt: skip


def write_comparison(out: Path, result: Mapping[str, Any]) -> None:
    """Write compare.md, compare.json and report.html."""
    out.mkdir(parents=True, exist_ok=True)
    rows = [_row(line) for line in result["models"]]
    chosen = [(line["name"], settings_text(line["settings"]), line.get("library", "")) for line in result["models"]]
    columns = ("model", "settings", "library")
    about, left_out = lead(result), notes(result)
    text = f"# Comparison\n\n{about}\n\n{markdown(COLUMNS, rows)}\n\n## Settings\n\n{markdown(columns, chosen)}\n"
    text += "".join(f"\n- {note}" for note in left_out) + "\n" if left_out else ""
    write_json(out / "compare.json", result)
    write_file(out / "compare.md", text.encode())
    best = min(result["models"], key=lambda line: line["frozen"]["log_loss"])
    body = tiles({"least frozen log loss": number(best["frozen"]["log_loss"]), "by": best["name"]})
    body += section("Models", table(COLUMNS, rows)) + section("Learning", charts(_curves(result["models"])))
    body += section("Settings", table(columns, chosen))
    body += section("Left out", table(("model",), [(note,) for note in left_out])) if left_out else ""
    write_page(out / "report.html", page("Comparison", about, body))


def comparison_table(result: Mapping[str, Any]) -> Table:
    """The table on the terminal."""
    facts = result["provenance"]
    title = f"one pass over {facts['learned']:,} rows, then {facts['rows'] - facts['learned']:,} rows frozen"
    against = f"minus {result['reference']} (95 %)"
    shown = plain_table(title, "model", ["log loss", "AUC", against, "frozen: log loss", "AUC", against, "rows/s"])
    for line in result["models"]:
        name, loss, auc, _, frozen_loss, frozen_auc, *_, speed = _row(line)
        intervals = [_interval(line["against"][part]) for part in PARTS]
        shown.add_row(name, loss, auc, intervals[0], frozen_loss, frozen_auc, intervals[1], speed)
    return shown


def lead(result: Mapping[str, Any]) -> str:
    """What was done, in a few sentences."""
    facts = result["provenance"]
    learned, frozen = facts["learned"], facts["rows"] - facts["learned"]
    tuned = f"{facts['trials']} settings tried for each model on the first {min(facts['tune_rows'], learned):,} rows"
    return (
        f"One pass over {learned:,} rows, each predicted before it is learned; then {frozen:,} rows with the models frozen. "
        f"{tuned if facts['trials'] else STARTING}. Differences are those to {result['reference']}, by a paired "
        "bootstrap: a model is better if its whole interval is below 0."
    )


def notes(result: Mapping[str, Any]) -> list[str]:
    """A line for each model that the schema does not allow, and for each library that is not installed."""
    names: dict[str, list[str]] = {}
    for each in result["missing"]:
        names.setdefault(each["install"], []).append(each["name"])
    refused = [f"{name} cannot learn this log: {reason}" for name, reason in result["refused"].items()]
    return refused + [f"not installed: {', '.join(listed)}; to add: {install}" for install, listed in names.items()]


def _row(line: Mapping[str, Any]) -> list[str]:
    cells = [line["name"]]
    for part in PARTS:
        figures = line[part] or {}
        cells += [number(figures.get("log_loss")), number(figures.get("auc")), _difference(line["against"][part])]
    return [*cells, number(line["frozen"]["calibration"], 3), f"{line['rows_per_second']:,.0f}"]


def _difference(against: Mapping[str, float | None] | None) -> str:
    return "–" if against is None else f"{against['log_loss']:+.4f} ({_interval(against)})"


def _interval(against: Mapping[str, float | None] | None) -> str:
    return "–" if against is None else f"{against['log_loss_low']:+.4f} to {against['log_loss_high']:+.4f}"


def _curves(models: Sequence[Mapping[str, Any]]) -> str:
    series = [
        Series(line["name"], [row for row, _ in line["curve"]], [loss for _, loss in line["curve"]])
        for line in models
        if line["curve"]
    ]
    return line_chart("Log loss of parts of the log, progressive", series, "rows", "log loss")
