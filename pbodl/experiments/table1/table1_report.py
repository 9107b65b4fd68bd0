"""The pages of the experiment: a Markdown table, and `report.html` with the curves of all models."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pbodl.training.config import Config
from pbodl.training.display import number
from pbodl.training.report.chart_data import Series, line_chart
from pbodl.training.report.page import charts, page, section, table, tiles, write_page

REFERENCES = ("AdPredictor", "MatchBox")  # models to compare with: the best linear rival, and the best rival
COLUMNS = (
    "model", "AUC", "log loss", "paper: AUC", "paper: log loss", "progressive AUC", "progressive log loss", "new ads: AUC",
    "new ads: log loss", *(f"{figure} over {reference} (95 %)" for reference in REFERENCES for figure in ("AUC", "log loss")),
    "rows/s", "seconds",
)  # fmt: skip


def write_table1(out: Path, result: Mapping[str, Any], config: Config) -> None:
    """Write table1.md and report.html."""
    rows = [_row(model) for model in result["models"]]
    facts = result["provenance"]
    lead = (
        f"{facts['train_rows']:,} training rows in one pass, {facts['rows'] - facts['train_rows']:,} test rows, model frozen "
        f"({facts['test_days']} day(s)); {facts['seeds']} seed(s); {facts['trials']} settings tried per model on the first "
        f"{min(facts['tune_rows'], facts['train_rows']):,} training rows."
    )
    if facts["training"]:
        lead += f" [training] of all models that can: {settings_text(facts['training'])}."
    chosen = [(model["name"], chosen_text(model["chosen"])) for model in result["models"]]
    text = f"# Table 1\n\n{lead}\n\n{markdown(COLUMNS, rows)}\n\n"
    text += f"## Settings chosen\n\n{markdown(('model', 'settings'), chosen)}\n\n"
    text += f"Data checksum {facts['checksum']}, PBODL {facts['version']}.\n"
    (out / "table1.md").write_text(text, encoding="utf-8")
    best = max(result["models"], key=lambda model: model["auc"])
    body = tiles({"best AUC": number(best["auc"]), "by": best["name"], "its log loss": number(best["log_loss"])})
    body += section("Models", table(COLUMNS, rows))
    body += section("Learning", charts(*(_curves(result["models"], figure, config) for figure in ("auc", "log_loss"))))
    body += section("Settings chosen", table(("model", "settings"), chosen))
    write_page(out / "report.html", page("Table 1", lead, body))


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _row(model: Mapping[str, Any]) -> list[str]:
    progressive = [run["progressive"] for run in model["runs"]]
    published = model["published"] or (None, None)
    speed = sorted(run["rows_per_second"] for run in model["runs"])
    return [
        model["name"], number(model["auc"]), number(model["log_loss"]), number(published[0]), number(published[1]),
        number(mean_of(progressive, "auc")), number(mean_of(progressive, "log_loss")),
        number(mean_of([each["new_ads"] for each in progressive], "auc")),
        number(mean_of([each["new_ads"] for each in progressive], "log_loss")),
        *(_difference(model, reference, figure) for reference in REFERENCES for figure in ("auc", "log_loss")),
        f"{speed[len(speed) // 2]:,.0f}", f"{sum(sum(run['seconds'].values()) for run in model['runs']):.0f}",
    ]  # fmt: skip


def mean_of(lines: Sequence[Mapping[str, Any]], key: str) -> float | None:
    """The mean of a figure over several lines; None if none has it."""
    values = [line[key] for line in lines if line[key] is not None]
    return sum(values) / len(values) if values else None


def _difference(model: Mapping[str, Any], reference: str, figure: str) -> str:
    against = model["against"].get(reference)
    if against is None:
        return "–"
    return f"{against[figure]:+.4f} ({against[f'{figure}_low']:+.4f} to {against[f'{figure}_high']:+.4f})"


def settings_text(settings: Mapping[str, Any]) -> str:
    """The settings of a model that are not its defaults."""
    return ", ".join(f"{key} {_plain(value)}" for key, value in settings.items() if key != "seed") or "defaults"


def chosen_text(chosen: Mapping[str, Any]) -> str:
    """The settings that were chosen for a model."""
    half_life = {} if chosen["half_life"] is None else {"half_life": chosen["half_life"]}
    return settings_text({**chosen["model"], **half_life})


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return "(" + ", ".join(f"{key} {_plain(inner)}" for key, inner in value.items() if inner) + ")"
    return str(value)


def _curves(models: Sequence[Mapping[str, Any]], figure: str, config: Config) -> str:
    period = config.training.period(config.schema)
    name = {"auc": "AUC", "log_loss": "log loss"}[figure]
    series = []
    for model in models:
        days = model["runs"][0]["progressive"]["days"]
        series.append(Series(model["name"], [day["start"] + period.amount / 2 for day in days], [day[figure] for day in days]))
    return line_chart(f"{name} by day, progressive", series, "time (UTC)", name, in_time=True)
