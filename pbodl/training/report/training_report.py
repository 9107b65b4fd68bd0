"""The report of a training run: one page, `report.html`, that opens offline."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from pbodl.training.config import Config, to_toml
from pbodl.training.display import moment, number
from pbodl.training.report.chart_data import Series, bar_chart, calibration_plot, line_chart
from pbodl.training.report.page import charts, page, section, table, tiles, write_page
from pbodl.training.tracker import POINTS, Tracker

COLUMNS = ("from", "rows", "CTR", "AUC", "log loss", "NE", "calibration", "new ads: rows", "new ads: AUC", "new ads: log loss")
NEW = 3  # columns about new ads


def write_report(folder: Path, config: Config, summary: Mapping[str, Any], tracker: Tracker) -> Path:
    """Write `report.html` into the run folder: learning curves, calibration, log loss by age of the ad, periods, configuration."""
    in_time = not config.training.period(config.schema).in_rows
    ages = summary["ages"]
    body = tiles(_figures(summary))
    body += section("Learning", charts(*(_curve(config, tracker, summary["days"], name) for name in ("auc", "log_loss"))))
    by_age = bar_chart(
        "Log loss by age of the ad", [age["age"] for age in ages], {config.kind: [age["log_loss"] for age in ages]},
        "time since the ad was first seen", "log loss", note="The first day of the stream is left out: every ad would be new.",
    )  # fmt: skip
    reliability = [(group["weight"], group["predicted"], group["observed"]) for group in tracker.reliability()]
    calibration = calibration_plot(
        "Calibration",
        {config.kind: reliability},
        "Rows are grouped by their prediction. On the diagonal, the predictions are right.",
    )
    body += section("Trust", charts(calibration, by_age))
    body += section("Figures by period", _periods(summary, in_time))
    body += section("Counters", table(("what", "count"), [(name.replace("_", " "), f"{n:,}") for name, n in _counters(summary)]))
    toml = f"<details><summary>config.toml</summary><pre>{escape(to_toml(config))}</pre></details>"
    body += section("Configuration", f'<div class="card">{toml}</div>')
    lead = f"{summary['rows']:,} rows in one pass, each predicted before it was learned; {summary['rows_per_second']:,.0f} rows/s."
    return write_page(folder / "report.html", page(f"{config.kind}: {folder.name}", lead, body))


def _figures(summary: Mapping[str, Any]) -> dict[str, str]:
    new = summary["new_ads"]
    return {
        "AUC": number(summary["auc"]),
        "log loss": number(summary["log_loss"]),
        "NE": number(summary["ne"]),
        "calibration": number(summary["calibration"], 3),
        "CTR": f"{100 * summary['ctr']:.2f} %" if summary["ctr"] is not None else "–",
        "new ads: AUC": number(new["auc"]),
        "new ads: log loss": number(new["log_loss"]),
    }


def _curve(config: Config, tracker: Tracker, periods: Sequence[Mapping[str, Any]], figure: str) -> str:
    period = config.training.period(config.schema)
    name = {"auc": "AUC", "log_loss": "log loss"}[figure]
    points = tracker.curve()
    middles = [line["start"] + period.amount / 2 for line in periods]
    short = [point["start"] + period.amount / POINTS / 2 for point in points]
    series = [
        Series(_each(period.amount, period.in_rows), middles, [line[figure] for line in periods], colour=0),
        Series(_each(period.amount / POINTS, period.in_rows), short, [point[figure] for point in points], faint=True, colour=0),
        Series("new ads", middles, [line["new_ads"][figure] for line in periods], colour=1),
    ]
    return line_chart(f"{name}, progressive", series, "rows" if period.in_rows else "time (UTC)", name, not period.in_rows)


def _each(amount: float, in_rows: bool) -> str:
    """The period of one point of a curve, in words."""
    if in_rows:
        return f"each {_thousands(amount)} rows"
    for seconds, name in ((86400.0, "day"), (3600.0, "hour"), (60.0, "minute")):
        if amount >= seconds:
            return f"each {name}" if amount == seconds else f"each {amount / seconds:.3g} {name}s"
    return f"each {amount:.3g} seconds"


def _thousands(count: float) -> str:
    """A count in few letters, such as 100k."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.4g}{letter}"
    return f"{count:.4g}"


def _periods(summary: Mapping[str, Any], in_time: bool) -> str:
    """The figures of each period, and of all; those of new ads only if there are any."""
    lines = [_cells(moment(line["start"], in_time), line) for line in summary["days"]]
    lines += [_cells("all", summary)] if len(lines) > 1 else []
    has_new = any(line["new_ads"]["rows"] for line in [*summary["days"], summary])
    width = len(COLUMNS) if has_new else len(COLUMNS) - NEW
    return table(COLUMNS[:width], [line[:width] for line in lines])


def _cells(name: str, line: Mapping[str, Any]) -> list[str]:
    new = line["new_ads"]
    cells = [name, f"{line['rows']:,}", number(line["ctr"]), number(line["auc"])]
    cells += [number(line["log_loss"]), number(line["ne"]), number(line["calibration"], 3)]
    return [*cells, f"{new['rows']:,}", number(new["auc"]), number(new["log_loss"])]


def _counters(summary: Mapping[str, Any]) -> list[tuple[str, float]]:
    return [*summary["counters"].items(), *((name, summary[name]) for name in ("bad_rows", "out_of_order", "negative_rate"))]
