"""`pbodl train` and `pbodl tune`: learn from a log, and choose the settings for it."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from pbodl.commands.shared_options import (
    MOST,
    MOST_WORKERS,
    AsJson,
    BadRows,
    BadRowsFile,
    Changes,
    Columns,
    ConfigFile,
    Delimiter,
    Engine,
    Keep,
    Kind,
    Label,
    Merge,
    Minibatch,
    Paths,
    Preset,
    RayAddress,
    Shards,
    ShardTimeout,
    WireBits,
    chosen_tables,
    layout_keys,
    print_json,
)
from pbodl.commands.warmup_command import tell_if_compiling
from pbodl.parallel.cluster.ledger import ledger_table
from pbodl.parallel.engines import SHARD_TIMEOUT, check_engine
from pbodl.parallel.threads.learning_threads import threads_for
from pbodl.system.atomic_files import write_file
from pbodl.training.config import check_config, to_toml, with_changes
from pbodl.training.display import console, log_notes, periods_table
from pbodl.training.session import Interrupted
from pbodl.training.session import train as train_model
from pbodl.training.visits.worker_rules import burn_in_of


def train(
    data: Paths,
    out: Annotated[Path, typer.Option(help="Run folder to write.")],
    config: ConfigFile = None,
    preset: Preset = None,
    model: Kind = None,
    changes: Changes = [],  # noqa: B006
    negative_rate: Annotated[str | None, typer.Option(help='Share of non-clicks to learn from, or "auto".')] = None,
    every: Annotated[str | None, typer.Option(help="Period of one line of figures: 1d, 1h, 100k rows.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the newest snapshot in --out.")] = False,
    keep_names: Annotated[bool, typer.Option("--keep-names", help="Store readable feature names beside their hashes.")] = False,
    workers: Annotated[
        int,
        typer.Option(min=1, max=MOST_WORKERS, help="Number of threads, or processes with --engine ray, that learn in parallel."),
    ] = 1,
    merge: Merge = None,
    burn_in: Annotated[str | None, typer.Option(help="Amount to learn with one worker first: 100k, 2d; training.burn_in.")] = None,
    engine: Engine = "threads",
    address: RayAddress = None,
    shards: Shards = 1,
    minibatch: Minibatch = None,
    wire_bits: WireBits = 16,
    shard_timeout: ShardTimeout = SHARD_TIMEOUT,
    label: Label = None,
    keep: Keep = [],  # noqa: B006
    columns: Columns = None,
    delimiter: Delimiter = None,
    bad_rows: BadRows = "stop",
    bad_rows_file: BadRowsFile = None,
    as_json: AsJson = False,
) -> None:
    """Learn from a log in one pass. Each row is predicted before it is learned."""
    check_engine(engine, address=address, shards=shards, minibatch=minibatch, wire_bits=wire_bits, shard_timeout=shard_timeout)
    options = {"model.kind": model, "training.negative_rate": negative_rate, "training.every": every, "training.merge": merge}
    options["training.burn_in"] = burn_in
    changes = [*changes, *(f"{key}={value}" for key, value in options.items() if value is not None)]
    tables = chosen_tables(config, preset, data, out, resume, layout_keys(columns, delimiter), label, keep)
    settings = check_config(with_changes(tables, changes))
    training = settings.training
    how: dict[str, Any] = {"prepare": threads_for(workers, training.merge, training.burn_in)}
    if engine == "ray":
        from pbodl.parallel.cluster.on_ray import RaySettings, ray_for

        ray = RaySettings(
            workers=workers, shards=shards, rows=minibatch, merge=training.merge, burn_in=burn_in_of(training.burn_in),
            half=wire_bits == 16, address=address, shard_timeout=shard_timeout,
        )  # fmt: skip
        how = {"engine": ray_for(ray)}
    tell_if_compiling()
    try:
        summary = train_model(
            settings, data, out, resume=resume, bad_rows=bad_rows, bad_rows_file=bad_rows_file, keep_names=keep_names, **how
        )  # fmt: skip
    except Interrupted as stop:
        console.print(f"stopped and saved; continue with the same command and --resume (run folder {out})")
        raise typer.Exit(stop.code) from None
    in_time = not settings.training.period(settings.schema).in_rows
    console.print(periods_table(f"{settings.kind}, progressive", summary, in_time))
    for note in log_notes(summary, settings.schema.groups):
        console.print(f"[yellow]note:[/] {escape(note)}")
    console.print(f"{summary['rows']:,} rows in {summary['seconds']:.1f} s; figures, snapshots and report.html are in {out}")
    if "ledger" in summary:
        console.print(ledger_table(summary["ledger"]))
    print_json(summary, as_json)
    if not summary.get("ledger", {}).get("sound", True):
        raise typer.Exit(1)


def tune(
    data: Paths,
    out: Annotated[Path, typer.Option(help="TOML file to write.")],
    config: ConfigFile = None,
    preset: Preset = None,
    model: Kind = None,
    rows: Annotated[int, typer.Option(min=1, max=MOST, help="Number of rows to choose by, from the start of the log.")] = 200_000,
    trials: Annotated[int, typer.Option(min=1, max=MOST, help="Number of settings to try.")] = 12,
    crosses: Annotated[int, typer.Option(min=0, max=100, help="Number of crosses of two fields to try after them.")] = 2,
    numbers: Annotated[int, typer.Option(min=0, max=100, help="Number of other edges for numbers to try.")] = 2,
    columns: Columns = None,
    delimiter: Delimiter = None,
    as_json: AsJson = False,
) -> None:
    """Choose priors, half-life and dim for a log. Compares settings by progressive log loss; reports on rows that no trial saw."""
    from pbodl.training.tuning.tune import results_table, tune_log

    tables = chosen_tables(config, preset, data, Path("."), False, layout_keys(columns, delimiter))
    settings = check_config(with_changes(tables, [] if model is None else [f"model.kind={model}"]))
    results, verdict = tune_log(settings, data, rows, trials, crosses, numbers)
    console.print(results_table(results))
    if verdict is not None:
        console.print(verdict.text())
    elif results[0].given:
        console.print("the given setting is the best of those tried")
    write_file(out, to_toml(results[0].config).encode())
    console.print(f"the best setting is in {out}: train with --config {out}")
    found = {"log_loss": results[0].log_loss, "trials": len(results), "out": str(out), "changed": results[0].changed}
    print_json({**found, "report": None if verdict is None else verdict.plain()}, as_json)
