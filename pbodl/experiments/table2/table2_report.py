"""The pages of Table 2: a Markdown table, and `report.html` with the models hour by hour."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pbodl.experiments.table1.table1_report import chosen_text, markdown, settings_text
from pbodl.models.clock import parse_duration
from pbodl.training.display import number
from pbodl.training.report.chart_data import Series, line_chart
from pbodl.training.report.page import charts, page, section, table, tiles, write_page

DAY = 86400.0
COLUMNS = (
    "model", "last day: AUC", "log loss", "paper: AUC", "paper: log loss", "progressive: AUC", "log loss", "after day 1: log loss",
    "new ads: log loss", "best in", "log loss over MatchBox (95 %)", "lower than MatchBox in", "rows/s",
)  # fmt: skip


def write_table2(out: Path, result: Mapping[str, Any]) -> None:
    """Write table2.md and report.html."""
    facts = result["provenance"]
    rows = [_row(model) for model in result["models"]]
    lead = (
        f"{facts['rows']:,} rows in one pass, every row predicted before it is learned; figures for every {facts['every']}. "
        f"The last {facts['test_days']} day(s), {facts['rows'] - facts['train_rows']:,} rows, are also predicted by the model as "
        "it was before them. The paper's figures are of its own traffic; only their order compares."
    )
    if facts["trials"] > 1:
        lead += f" {facts['trials']} settings tried per model on the first {min(facts['tune_rows'], facts['train_rows']):,} rows."
    if facts["training"]:
        lead += f" [training] of all models that can: {settings_text(facts['training'])}."
    chosen = [(model["name"], chosen_text(model["chosen"])) for model in result["models"]]
    text = f"# Table 2\n\n{lead}\n\n{markdown(COLUMNS, rows)}\n\n## Settings\n\n{markdown(('model', 'settings'), chosen)}\n\n"
    (out / "table2.md").write_text(f"{text}Data checksum {facts['checksum']}, PBODL {facts['version']}.\n", encoding="utf-8")
    best = min(result["models"], key=lambda model: model["runs"][0]["progressive"]["log_loss"])
    figures = best["runs"][0]["progressive"]
    body = tiles(
        {"lowest progressive log loss": number(figures["log_loss"]), "by": best["name"], "its AUC": number(figures["auc"])}
    )
    body += section("Models", table(COLUMNS, rows))
    every = parse_duration(facts["every"], "every").amount
    body += section(
        f"Every {facts['every']}", charts(*(_curves(result["models"], figure, every) for figure in ("log_loss", "auc")))
    )
    body += section("Settings", table(("model", "settings"), chosen))
    write_page(out / "report.html", page("Table 2", lead, body))


def _row(model: Mapping[str, Any]) -> list[str]:
    run, (auc, loss) = model["runs"][0], model["published"] or (None, None)
    figures, against = run["progressive"], model.get("against_periods")
    shares = ["–", "–"]
    if against is not None:
        shares = [f"{against['mean']:+.4f} ({against['low']:+.4f} to {against['high']:+.4f})", f"{100 * against['better']:.0f} %"]
    return [
        model["name"], number(model["auc"]), number(model["log_loss"]), number(auc), number(loss), number(figures["auc"]),
        number(figures["log_loss"]), number(_later(figures["days"])), number(figures["new_ads"]["log_loss"]),
        f"{model['best_periods']} of {model['periods']}", *shares, f"{run['rows_per_second']:,.0f}",
    ]  # fmt: skip


def _later(lines: Sequence[Mapping[str, Any]]) -> float | None:
    """The log loss after the first day."""
    later = [line for line in lines if line["start"] >= lines[0]["start"] + DAY and line["log_loss"] is not None]
    rows = sum(line["rows"] for line in later)
    return sum(line["rows"] * line["log_loss"] for line in later) / rows if rows else None


def _curves(models: Sequence[Mapping[str, Any]], figure: str, every: float) -> str:
    name = {"auc": "AUC", "log_loss": "log loss"}[figure]
    series = []
    for model in models:
        lines = model["runs"][0]["progressive"]["days"]
        series.append(Series(model["name"], [line["start"] + every / 2 for line in lines], [line[figure] for line in lines]))
    return line_chart(f"{name}, progressive", series, "time (UTC)", name, in_time=True)
