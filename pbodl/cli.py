"""The commands. Thin: each reads its options, calls one function, and prints.

Progress, tables and logs go to stderr; with --json one JSON object is the last line of stdout. Exit codes: 0 good, 1 the work
failed, 2 bad usage or bad input, 130 and 143 stopped by a signal after saving.
"""

import json
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.markup import escape

from pbodl.data.guess.guess_toml import guess_toml
from pbodl.data.guess.schema_guess import guess
from pbodl.data.log.log_reader import open_log
from pbodl.data.synthetic import World
from pbodl.errors import InputError
from pbodl.models.snapshot import load, rollback
from pbodl.parallel.cluster.ledger import ledger_table
from pbodl.parallel.engines import check_engine
from pbodl.parallel.merge import DEFAULT as DEFAULT_MERGE
from pbodl.parallel.merge import MERGES
from pbodl.parallel.threads.learning_threads import burn_in_of, threads_for
from pbodl.streaming.commands import online, replay
from pbodl.training.config import check_config, read_config, to_toml, with_changes
from pbodl.training.display import bar, console, evaluation_tables, periods_table
from pbodl.training.evaluate import evaluate as evaluate_model
from pbodl.training.inspect import inspection
from pbodl.training.predict import predict_file
from pbodl.training.presets import PRESETS, named_tables
from pbodl.training.session import Interrupted
from pbodl.training.session import train as train_model

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Bayesian online deep learning for click-through rates.")
data_app = typer.Typer(no_args_is_help=True, help="Make data, and look at data.")
app.add_typer(data_app, name="data")
experiment_app = typer.Typer(no_args_is_help=True, help="The paper's experiments.")
app.add_typer(experiment_app, name="experiment")
app.command()(online)
data_app.command()(replay)

Paths = Annotated[list[str], typer.Argument(help="Files (CSV, CSV.gz, Parquet), globs, folders, s3:// addresses.")]
RunFolder = Annotated[Path, typer.Argument(help="The folder that `pbodl train --out` wrote.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line of stdout.")]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="A TOML file with [schema], [model], [training].")]
Preset = Annotated[str | None, typer.Option(help=f"A known log instead of a file: {', '.join(PRESETS)}.")]
Kind = Annotated[str | None, typer.Option("--model", help="The model's kind, such as fm-mlp, ffm-mlp, sparse-mlp.")]
Changes = Annotated[list[str], typer.Option("--set", help="Change one key of the configuration: --set model.dim=8.")]
BadRows = Annotated[str, typer.Option(help="What to do with a bad row: stop, or skip.")]
BadRowsFile = Annotated[str | None, typer.Option(help="Where skipped rows go, with the reason.")]


@data_app.command()
def synth(
    out: Annotated[Path, typer.Option(help="File to write: .parquet, .csv or .csv.gz.")],
    rows: Annotated[int, typer.Option(help="How many impressions.")] = 1_000_000,
    days: Annotated[int, typer.Option(help="Over how many days.")] = 10,
    seed: Annotated[int, typer.Option(help="Of the world.")] = 0,
) -> None:
    """Write a log of an Avazu-like world whose true click probabilities (p_true) are known."""
    with bar() as progress:
        task = progress.add_task("synth", total=rows, text="")
        World(seed=seed, days=days, rows=rows).write(out, lambda more: progress.advance(task, more))
    console.print(f"{rows:,} rows in {out}")


@data_app.command("inspect")
def inspect_data(path: Annotated[str, typer.Argument(help="A file of the log.")]) -> None:
    """Guess a schema from a file and print it as TOML, ready to edit; what was noticed goes to stderr."""
    found = guess(path)
    for warning in found.warnings:
        console.print(f"[yellow]note:[/] {escape(warning)}")
    print(guess_toml(found))


@app.command()
def train(
    data: Paths,
    out: Annotated[Path, typer.Option(help="The run folder to write.")],
    config: ConfigFile = None,
    preset: Preset = None,
    model: Kind = None,
    changes: Changes = [],  # noqa: B006
    negative_rate: Annotated[str | None, typer.Option(help='Share of non-clicks to learn from, or "auto".')] = None,
    every: Annotated[str | None, typer.Option(help="What a line of the table covers: 1d, 1h, 100k rows.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the newest snapshot of --out.")] = False,
    keep_names: Annotated[bool, typer.Option("--keep-names", help="Keep readable names of features beside their hashes.")] = False,
    workers: Annotated[int, typer.Option(help="How many threads, or with --engine ray processes, learn at the same time.")] = 1,
    merge: Annotated[str, typer.Option(help=f"How their updates are merged: {', '.join(MERGES)} (the paper's).")] = DEFAULT_MERGE,
    burn_in: Annotated[str | None, typer.Option(help="Learn so much with one worker first: 100k, 2d.")] = None,
    engine: Annotated[str, typer.Option(help="What the workers are: threads, or ray for a cluster.")] = "threads",
    address: Annotated[str | None, typer.Option(help="Of a Ray cluster; without it, one on this machine for the training.")] = None,
    shards: Annotated[int, typer.Option(help="With --engine ray: processes that hold the weights.")] = 1,
    minibatch: Annotated[int | None, typer.Option(help="With --engine ray: rows of a message; about 4096 are under way.")] = None,
    wire_bits: Annotated[int, typer.Option(help="With --engine ray: 16, or 32 for messages of twice the size.")] = 16,
    bad_rows: BadRows = "stop",
    bad_rows_file: BadRowsFile = None,
    as_json: AsJson = False,
) -> None:
    """Learn from a log in one pass, predicting each row before learning it."""
    check_engine(engine, address=address, shards=shards, minibatch=minibatch, wire_bits=wire_bits)
    how: dict[str, Any] = {"prepare": threads_for(workers, merge, burn_in)}
    if engine == "ray":
        from pbodl.parallel.cluster.on_ray import RaySettings, ray_for

        how = {"engine": ray_for(RaySettings(workers, shards, minibatch, merge, burn_in_of(burn_in), wire_bits == 16, address))}
    options = {"model.kind": model, "training.negative_rate": negative_rate, "training.every": every}
    changes = [*changes, *(f"{key}={value}" for key, value in options.items() if value is not None)]
    settings = check_config(with_changes(_tables(config, preset, data, out, resume), changes))
    try:
        summary = train_model(
            settings, data, out, resume=resume, bad_rows=bad_rows, bad_rows_file=bad_rows_file, keep_names=keep_names, **how
        )  # fmt: skip
    except Interrupted as stop:
        console.print(f"stopped and saved; go on with the same command and --resume (run folder {out})")
        raise typer.Exit(stop.code) from None
    console.print(periods_table(f"{settings.kind}, progressive", summary["days"], settings.schema.time is not None))
    console.print(f"{summary['rows']:,} rows in {summary['seconds']:.1f} s; figures, snapshots and report.html are in {out}")
    if "ledger" in summary:
        console.print(ledger_table(summary["ledger"]))
    _finish(summary, as_json)
    if not summary.get("ledger", {}).get("sound", True):
        raise typer.Exit(1)


def _tables(config: Path | None, preset: str | None, data: list[str], out: Path, resume: bool) -> dict[str, Any]:
    """The configuration asked for: a file, a preset, that of the run to resume, or one guessed from the data."""
    named = named_tables(config, preset)
    if named is not None:
        return named
    if resume and (out / "config.toml").exists():
        return read_config(out / "config.toml")
    found = guess(data[0])
    console.print(f"no --config and no --preset: the schema is guessed from {data[0]} (see `pbodl data inspect`)")
    return {"schema": msgspec.to_builtins(found.schema())}


@app.command()
def evaluate(
    run: RunFolder,
    data: Paths,
    by: Annotated[str | None, typer.Option(help="Also by the values of this column.")] = None,
    bad_rows: BadRows = "stop",
    bad_rows_file: BadRowsFile = None,
    as_json: AsJson = False,
) -> None:
    """Figures of the frozen model on a log: overall with intervals, by day, by slice."""
    model = load(run)
    columns = [] if by is None else [by]
    with open_log(data, model.schema, bad_rows=bad_rows, bad_rows_file=bad_rows_file, columns=columns) as reader, bar() as progress:
        task = progress.add_task("evaluate", total=reader.rows_total, text="")
        figures = evaluate_model(model, reader, by, lambda done: progress.update(task, completed=done, total=reader.rows_total))
    for table in evaluation_tables(figures):
        console.print(table)
    _finish(figures, as_json)


@app.command()
def predict(
    run: RunFolder,
    data: Paths,
    out: Annotated[Path, typer.Option(help="File to write: .parquet or .csv.")],
    as_json: AsJson = False,
) -> None:
    """Write the CTR of every row, with the latent mean and standard deviation; the label is not needed."""
    model = load(run)
    with open_log(data, model.schema, labelled=False) as reader, bar() as progress:
        task = progress.add_task("predict", total=reader.rows_total, text="")
        rows = predict_file(model, reader, out, lambda done: progress.update(task, completed=done, total=reader.rows_total))
    console.print(f"{rows:,} predictions in {out}")
    _finish({"rows": rows, "out": str(out)}, as_json)


@app.command()
def inspect(
    run: RunFolder,
    feature: Annotated[str | None, typer.Option(help="Show one feature's weights: --feature site_id=85f751fd.")] = None,
    explain: Annotated[Path | None, typer.Option(help="A JSON file with one row: what each feature adds to its CTR.")] = None,
    as_json: AsJson = False,
) -> None:
    """Look inside a model: its size, its features, its guards; one feature; one prediction."""
    if feature is not None and explain is not None:
        raise InputError("give --feature or --explain, not both")
    if feature is not None:
        found = inspection.feature(run, feature)
    elif explain is not None:
        found = inspection.explain(run, explain)
    else:
        found = inspection.overview(run)
    for table in inspection.tables(found):
        console.print(table)
    _finish(found, as_json)


@app.command("rollback")
def roll_back(run: RunFolder) -> None:
    """Set the newest snapshot aside and go back to the one before it."""
    aside, newest = rollback(run)
    console.print(f"the newest snapshot went to {aside}; {newest.name} is the newest now")


@app.command()
def tune(
    data: Paths,
    out: Annotated[Path, typer.Option(help="The TOML file to write.")],
    config: ConfigFile = None,
    preset: Preset = None,
    model: Kind = None,
    rows: Annotated[int, typer.Option(help="How much of the log to use, from its start.")] = 200_000,
    trials: Annotated[int, typer.Option(help="How many settings to try.")] = 12,
    as_json: AsJson = False,
) -> None:
    """Choose priors, half-life and dim by progressive log loss on the first part of a log; no validation set needed."""
    from pbodl.training.tuning.tune import results_table, tune_log

    tables = _tables(config, preset, data, Path("."), False)
    settings = check_config(with_changes(tables, [] if model is None else [f"model.kind={model}"]))
    results = tune_log(settings, data, rows, trials)
    console.print(results_table(results))
    best = results[0].config
    out.write_text(to_toml(best), encoding="utf-8")
    console.print(f"the best setting is in {out}: train with --config {out}")
    _finish({"log_loss": results[0].log_loss, "trials": len(results), "out": str(out)}, as_json)


@experiment_app.command()
def table1(
    data: Paths,
    out: Annotated[Path, typer.Option(help="The folder to write.")],
    config: ConfigFile = None,
    preset: Preset = None,
    test_days: Annotated[int, typer.Option(help="How many of the last days to test on, the model frozen.")] = 1,
    seeds: Annotated[int, typer.Option(help="Seeds of each model that starts from random means.")] = 3,
    trials: Annotated[int, typer.Option(help="Settings to try for each model.")] = 8,
    tune_rows: Annotated[int, typer.Option(help="Rows from the start of the training days to tune on.")] = 200_000,
    as_json: AsJson = False,
) -> None:
    """Table 1 of the paper: online models on one log, tuned alike, tested on its last day. Goes on where it was interrupted."""
    from pbodl.experiments.table1.table1_run import Table1Settings
    from pbodl.experiments.table1.table1_run import table1 as run

    settings = check_config(_tables(config, preset, data, out, False))
    result = run(settings, data, out, Table1Settings(test_days, seeds, tune_rows, trials))
    console.print((out / "table1.md").read_text(encoding="utf-8"), markup=False)
    console.print(f"table1.md, table1.json and report.html are in {out}")
    _finish(result, as_json)


@experiment_app.command()
def ab(
    out: Annotated[Path, typer.Option(help="The folder to write.")],
    days: Annotated[int, typer.Option(help="How long the test lasts.")] = 7,
    requests_per_day: Annotated[int, typer.Option(help="Of all arms of a test together.")] = 40_000,
    seeds: Annotated[int, typer.Option(help="How many worlds.")] = 3,
    ads: Annotated[int, typer.Option(help="On the market at a time; over a quarter of them are candidates of a request.")] = 300,
    burn_in: Annotated[int, typer.Option(help="Days before the test, with ads at random, that all models learn from.")] = 3,
    rank_by: Annotated[str, typer.Option(help="ecpm (bid times CTR), or ctr.")] = "ecpm",
    share_traffic: Annotated[bool, typer.Option("--share-traffic", help="Every arm learns from the traffic of all.")] = False,
    workers: Annotated[int, typer.Option(help="Arms that are simulated at the same time.")] = 2,
    as_json: AsJson = False,
) -> None:
    """Tables 3 and 4 of the paper: an A/B test in a simulated ad market with known truth. Goes on where it was interrupted."""
    from pbodl.experiments.ab.ab_arms import Setting
    from pbodl.experiments.ab.ab_experiment import ab as run

    result = run(out, Setting(days, requests_per_day, ads, burn_in, rank_by, share_traffic), seeds, workers)
    console.print((out / "ab.md").read_text(encoding="utf-8"), markup=False)
    console.print(f"ab.md, ab.json and report.html are in {out}")
    _finish(result, as_json)


@app.command()
def demo(
    rows: Annotated[int, typer.Option(help="How many impressions.")] = 500_000,
    seed: Annotated[int, typer.Option(help="Of the world.")] = 0,
) -> None:
    """See an FM-MLP overtake a linear model on a generated stream."""
    from pbodl.experiments.demo import side_by_side

    with bar() as progress:
        task = progress.add_task("demo", total=rows, text="")
        table = side_by_side(rows, seed, lambda done, text: progress.update(task, completed=done, text=text))
    console.print(table)


@app.command()
def serve(
    run: Annotated[
        str, typer.Argument(help="A run folder of `pbodl train`, or a model folder of a publisher (a path, or s3://...).")
    ],
    host: Annotated[str, typer.Option(help="Where to listen; 0.0.0.0 lets other machines in.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Where to listen; 0 takes a free one.")] = 8080,
    workers: Annotated[int, typer.Option(help="Processes that answer; they share the model's memory.")] = 1,
    token_file: Annotated[str | None, typer.Option(help="A file with the token that requests must bring.")] = None,
    max_candidates: Annotated[int, typer.Option(help="Candidates that a request may have.")] = 10_000,
    max_body: Annotated[int, typer.Option(help="Bytes that a request's body may have.")] = 8 * 2**20,
    max_concurrent: Annotated[int, typer.Option(help="Requests that a worker reads and scores at a time.")] = 16,
    max_waiting: Annotated[int, typer.Option(help="Requests that wait for their turn; more are refused with 503.")] = 64,
    timeout: Annotated[float, typer.Option(help="Seconds that a request waits for its turn, and its body may take.")] = 5.0,
) -> None:
    """Answer requests for CTRs over HTTP, by the newest model of a run; Ctrl-C finishes what is under way and ends."""
    from pbodl.serving import require_web

    require_web()
    from pbodl.serving.serve import ServeSettings
    from pbodl.serving.serve import serve as serve_run
    from pbodl.serving.server_limits import Limits

    limits = Limits(max_body, max_candidates, max_concurrent, max_waiting, timeout)
    serve_run(ServeSettings(run, host, port, workers, token_file, limits), lambda text: console.print(escape(text), soft_wrap=True))


@app.command()
def up(
    out: Annotated[str, typer.Option(help="The run folder; what is in it goes on.")] = "runs/live",
    port: Annotated[int, typer.Option(help="Of the dashboard; 0 takes a free one.")] = 8080,
    rate: Annotated[float, typer.Option(help="Rows of traffic a second.")] = 5000.0,
    rows: Annotated[int | None, typer.Option(help="Rows of traffic in all; 30 million unless the run began with others.")] = None,
) -> None:
    """Everything at once: generated traffic, three models learning from it, a server, and its dashboard. Ctrl-C stops it."""
    from pbodl.serving import require_web

    require_web()
    from pbodl.experiments.live import UpSettings
    from pbodl.experiments.live import up as run

    raise typer.Exit(run(UpSettings(out, port, rate, rows), lambda text: print(text, flush=True)))


def _finish(result: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(result))


def _show_warning(message: Warning | str, *rest: Any, **more: Any) -> None:
    console.print(f"[yellow]warning:[/] {escape(str(message))}")


def main() -> None:
    """Run the command line; errors in the input are prose, and exit with 2."""
    warnings.showwarning = _show_warning
    try:
        app()
    except InputError as error:
        console.print(f"[red]error:[/] {escape(str(error))}")
        sys.exit(2)


if __name__ == "__main__":
    main()
