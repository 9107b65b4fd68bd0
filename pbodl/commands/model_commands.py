"""Commands on a trained model: `evaluate`, `predict`, `inspect` and `rollback`."""

import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from pbodl.commands.shared_options import (
    MOST,
    AsJson,
    BadRows,
    BadRowsFile,
    Columns,
    Delimiter,
    Paths,
    RunFolder,
    SnapshotNumber,
    print_json,
    read_with,
)
from pbodl.data.features.positions import check_positions
from pbodl.errors import InputError
from pbodl.interface.workflow import watched
from pbodl.models.contract import Model
from pbodl.models.snapshot import load, load_numbered, rollback
from pbodl.training.display import bar, console, evaluation_tables
from pbodl.training.evaluate import evaluate as evaluate_model
from pbodl.training.inspect import inspection
from pbodl.training.inspect.field_importance import field_importance
from pbodl.training.inspect.field_report import fields_table, write_fields
from pbodl.training.predict import check_kept, predict_file

SMALL_BATCH = 16384  # rows at a time, each with its weights in every replicate of the bootstrap


def evaluate(
    run: RunFolder,
    data: Paths,
    by: Annotated[str | None, typer.Option(help="Column whose values get figures of their own.")] = None,
    policy: Annotated[
        str | None,
        typer.Option(help="Policy to value on logs of decisions: greedy, thompson[:SPREAD], ucb[:C] or epsilon[:SHARE]."),
    ] = None,
    reward: Annotated[str, typer.Option(help="Reward under --policy: click, or bid (the bid of what was clicked).")] = "click",
    draws: Annotated[int, typer.Option(min=1, max=100_000, help="Draws of the weights per request, for --policy thompson.")] = 200,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Random seed of these draws.")] = 0,
    snapshot: SnapshotNumber = None,
    columns: Columns = None,
    delimiter: Delimiter = None,
    bad_rows: BadRows = "stop",
    bad_rows_file: BadRowsFile = None,
    as_json: AsJson = False,
) -> None:
    """Measure the frozen model on a log. Shows figures with intervals: overall, by day, and by the values of a column.

    With --policy, DATA are logs of decisions (`pbodl serve --log-decisions`) and of their clicks, and the result is what the policy
    with this model would have earned.
    """
    model = load_numbered(run, snapshot).model
    if policy is not None:
        _value_policy(model, policy, data, reward, draws, seed, as_json)
        return
    options = {"bad_rows": bad_rows, "bad_rows_file": bad_rows_file, "columns": [] if by is None else [by]}
    with watched("evaluate", data, read_with(model.schema, columns, delimiter), **options) as (reader, progress):
        figures = evaluate_model(model, reader, by, progress)
    for table in evaluation_tables(figures):
        console.print(table)
    print_json(figures, as_json)


def _value_policy(model: Model, policy: str, data: list[str], reward: str, draws: int, seed: int, as_json: bool) -> None:
    from pbodl.experiments.decisions.policy_value import policy_value, value_tables
    from pbodl.serving.ranking.policies import RankPolicy

    with bar() as progress:
        task = progress.add_task("evaluate", total=None, text="")
        found = policy_value(
            model, RankPolicy.parse(policy), data, reward, draws, seed, lambda done: progress.update(task, completed=done)
        )
    for table in value_tables(found):
        console.print(table)
    for told in found["warnings"]:
        warnings.warn(told, stacklevel=1)
    print_json(found, as_json)


def predict(
    run: RunFolder,
    data: Paths,
    out: Annotated[Path, typer.Option(help="File to write: .parquet or .csv.")],
    keep: Annotated[str | None, typer.Option(help="Columns of the log to write beside the predictions, such as id,time.")] = None,
    reference_position: Annotated[
        bool, typer.Option("--reference-position", help="Predict every row as if it had been shown in the first slot.")
    ] = False,
    snapshot: SnapshotNumber = None,
    columns: Columns = None,
    delimiter: Delimiter = None,
    as_json: AsJson = False,
) -> None:
    """Predict the CTR of every row of a log. Adds its standard deviation, and the latent mean and standard deviation behind it.

    The log needs no label.
    """
    model = load_numbered(run, snapshot).model
    kept = [name.strip() for name in keep.split(",") if name.strip()] if keep is not None else []
    check_kept(kept)
    if reference_position:
        check_positions(model.schema)
    with watched("predict", data, read_with(model.schema, columns, delimiter), labelled=False, columns=kept) as (reader, progress):
        rows = predict_file(model, reader, out, progress, kept, reference_position)
    console.print(f"{rows:,} predictions in {out}")
    print_json({"rows": rows, "out": str(out)}, as_json)


def inspect(
    run: RunFolder,
    feature: Annotated[str | None, typer.Option(help="Feature whose weights to show, such as site_id=85f751fd.")] = None,
    explain: Annotated[Path | None, typer.Option(help="JSON file with one row whose prediction to explain by feature.")] = None,
    log: Annotated[
        list[str],
        typer.Option(help="Labelled log on which to measure what each field is worth, and how far its values drifted; repeatable."),
    ] = [],  # noqa: B006
    rows: Annotated[int, typer.Option(min=1, max=MOST, help="Number of rows of --log to use, from its start.")] = 100_000,
    report: Annotated[Path | None, typer.Option(help="HTML file to write with charts of --log.")] = None,
    as_json: AsJson = False,
) -> None:
    """Look inside a model, a feature, a prediction or the fields. Without options it shows the model's size and its features."""
    if (feature is not None) + (explain is not None) + bool(log) > 1:
        raise InputError("give one of --feature, --explain and --log")
    if report is not None and not log:
        raise InputError("--report writes the charts of --log; give --log FILE")
    if log:
        found = _fields(run, log, rows)
        shown = fields_table(found)
        if report is not None:
            write_fields(report, found)
    else:
        if feature is not None:
            found = inspection.feature(run, feature)
        else:
            found = inspection.overview(run) if explain is None else inspection.explain(run, explain)
        shown = inspection.tables(found)
    for table in shown:
        console.print(table)
    if report is not None:
        console.print(f"the charts are in {report}")
    print_json(found, as_json)


def _fields(run: Path, log: list[str], rows: int) -> dict[str, Any]:
    model = load(run)
    with watched("inspect", log, model.schema, batch_rows=SMALL_BATCH) as (reader, progress):
        return field_importance(model, reader, rows, progress)


def roll_back(run: RunFolder) -> None:
    """Set the newest snapshot aside and return to the one before it."""
    aside, newest = rollback(run)
    console.print(f"the newest snapshot went to {aside}; {newest.name} is the newest now")
