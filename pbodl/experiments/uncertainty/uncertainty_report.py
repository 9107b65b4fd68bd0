"""The pages of the experiment: Markdown tables, and `report.html` with the pictures."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pbodl.experiments.table1.table1_report import markdown
from pbodl.experiments.uncertainty.honesty import LEVELS
from pbodl.system.atomic_files import write_file
from pbodl.training.report.chart_data import bar_chart, calibration_plot
from pbodl.training.report.page import charts, page, section, table, write_page

COLUMNS = ("rows of", "rows", "clicked", "predicted", "log loss", "latent deviation")
WITH_TRUTH = ("rms error", *(f"inside {level} %" for level in LEVELS), "rank correlation", "of")
CHECKED = ("learned before", "learned after", "change²", "fall of variance", "ratio")


def write_uncertainty(out: Path, result: Mapping[str, Any]) -> None:
    """Write uncertainty.md and report.html."""
    columns = COLUMNS + (WITH_TRUTH if result["truth"] else ())
    lines = [_figures(line) for line in result["figures"]]
    checks = [_check(line) for line in result["martingale"]]
    lead = (
        f"{result['model']}, {result['rows']:,} rows, each predicted before it was learned; figures of the last "
        f"{result['judged']:,}, by how often the value of {result['field']} came before."
    )
    about = (
        "A posterior mean changes by as much as its variance falls: the ratio of the two should be near 1. Above 1 the model is "
        "too sure, or its level drifts."
    )
    text = f"# Uncertainty\n\n{lead}\n\n{markdown(columns, lines)}\n\n"
    text += f"## Martingale check\n\n{about}\n\n{markdown(CHECKED, checks)}\n" if checks else ""
    write_file(out / "uncertainty.md", text.encode())
    body = section("Figures", table(columns, lines))
    pictures = [calibration_plot("Reliability", {result["model"]: result["reliability"]})]
    if result["truth"]:
        pictures.insert(0, _coverage(result))
    body += section("Pictures", charts(*pictures))
    if checks:
        body += section("Martingale check", f"<p>{about}</p>" + table(CHECKED, checks))
    write_page(out / "report.html", page("Uncertainty", lead, body))


def _coverage(result: Mapping[str, Any]) -> str:
    """What intervals hold, beside what they should hold."""
    groups = {"wanted": [float(level) for level in LEVELS]}
    groups |= {line["rows of"]: [100 * line["inside"][str(level)] for level in LEVELS] for line in result["figures"]}
    labels = [f"{level} % intervals" for level in LEVELS]
    return bar_chart("Coverage", labels, groups, y_label="% of true values inside", digits=0)


def _figures(line: Mapping[str, Any]) -> list[str]:
    shown = [
        line["rows of"], f"{line['rows']:,}", f"{line['clicked']:.4f}", f"{line['predicted']:.4f}", f"{line['log_loss']:.4f}",
        f"{line['deviation']:.3f}",
    ]  # fmt: skip
    if "inside" not in line:
        return shown
    inside = [f"{100 * line['inside'][str(level)]:.0f}" for level in LEVELS]
    return [*shown, f"{line['error']:.3f}", *inside, _number(line["rank_correlation"]), _number(line["rank_ceiling"])]


def _check(line: Mapping[str, Any]) -> list[str]:
    return [f"{line['from']:,}", f"{line['to']:,}", f"{line['change']:.4f}", f"{line['fall']:.4f}", _number(line["ratio"])]


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
