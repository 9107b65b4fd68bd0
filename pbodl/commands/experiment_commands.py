"""`pbodl experiment`: the paper's experiments."""

import warnings
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markdown import Markdown

from pbodl.commands import PLAIN
from pbodl.commands.shared_options import (
    MOST,
    MOST_WORKERS,
    AsJson,
    Changes,
    ConfigFile,
    OutFolder,
    Paths,
    Preset,
    chosen_tables,
    print_json,
)
from pbodl.errors import InputError
from pbodl.system.folder_lock import writing
from pbodl.training.config import check_config, with_changes
from pbodl.training.display import bar, console

TestDays = Annotated[int, typer.Option(min=1, max=MOST, help="Number of last days to test on, with the model frozen.")]
Trials = Annotated[int, typer.Option(min=1, max=MOST, help="Number of settings to try for each model (1: the configured ones).")]
TuneRows = Annotated[int, typer.Option(min=1, max=MOST, help="Number of rows to tune on, from the start of the log.")]

app = typer.Typer(
    no_args_is_help=True, **PLAIN, help="Run the paper's experiments.", epilog="Example: pbodl experiment ab --out results/ab"
)  # fmt: skip


@app.command(epilog="Example: pbodl experiment table1 train.gz --preset avazu --out table1")
def table1(
    data: Paths,
    out: OutFolder,
    config: ConfigFile = None,
    preset: Preset = None,
    changes: Changes = [],  # noqa: B006
    test_days: TestDays = 1,
    seeds: Annotated[int, typer.Option(min=1, max=MOST, help="Number of seeds for each model that starts from random means.")] = 3,
    trials: Trials = 8,
    tune_rows: TuneRows = 200_000,
    as_json: AsJson = False,
) -> None:
    """Reproduce Table 1. Compares online models on one log, tuned alike, on its last day; continues after an interruption."""
    from pbodl.experiments.table1.table1_run import Table1Settings
    from pbodl.experiments.table1.table1_run import table1 as run

    settings = check_config(with_changes(chosen_tables(config, preset, data, out, False), changes))
    with writing(out, "pbodl experiment table1"):
        result = run(settings, data, out, Table1Settings(test_days=test_days, seeds=seeds, tune_rows=tune_rows, trials=trials))
    _show(out, "table1", result, as_json)


@app.command(epilog="Example: pbodl experiment table2 log.parquet --config c.toml --out table2")
def table2(
    data: Paths,
    out: OutFolder,
    config: ConfigFile = None,
    preset: Preset = None,
    changes: Changes = [],  # noqa: B006
    test_days: TestDays = 1,
    every: Annotated[str, typer.Option(help="Period of one line of figures: 1h, 15m, 1d.")] = "1h",
    trials: Trials = 1,
    tune_rows: TuneRows = 200_000,
    as_json: AsJson = False,
) -> None:
    """Run the protocol of Table 2 on your own log. Compares its models hour by hour; continues after an interruption."""
    from pbodl.experiments.table2.table2_run import Table2Settings
    from pbodl.experiments.table2.table2_run import table2 as run

    settings = check_config(with_changes(chosen_tables(config, preset, data, out, False), changes))
    with writing(out, "pbodl experiment table2"):
        result = run(settings, data, out, Table2Settings(test_days, every, tune_rows, trials))
    _show(out, "table2", result, as_json)


@app.command(epilog="Example: pbodl experiment ab --days 2 --seeds 1 --out results/ab")
def ab(
    out: OutFolder,
    days: Annotated[int, typer.Option(min=1, max=100_000, help="Number of days that the test lasts.")] = 7,
    requests_per_day: Annotated[
        int | None,
        typer.Option(min=1, max=MOST, help="Total requests per day across all arms (default: 400 per ad and arm)."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, max=MOST, help="Number of simulated worlds.")] = 3,
    ads: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MOST,
            help="Ads on the market at a time; about half of them are candidates of a request, or all in the small market "
            "(default: 60, or 40).",
        ),
    ] = None,
    market: Annotated[
        str, typer.Option(help="Kind of market: standard, or quality (small; an ad's own quality is most of what is unknown).")
    ] = "standard",
    test: Annotated[
        str | None, typer.Option(help="Run one test of the market alone: tables or ablation; quality in the small market.")
    ] = None,
    first_seed: Annotated[int, typer.Option(min=0, max=MOST, help="Seed of the first world.")] = 0,
    burn_in: Annotated[
        int, typer.Option(min=0, max=100_000, help="Days of random ads before the test, from which all models learn.")
    ] = 3,
    rank_by: Annotated[str, typer.Option(help="Ranking criterion: ecpm (bid times CTR), or ctr.")] = "ecpm",
    share_traffic: Annotated[bool, typer.Option("--share-traffic", help="Let every arm learn from the traffic of all.")] = False,
    workers: Annotated[int, typer.Option(min=1, max=MOST_WORKERS, help="Number of arms to simulate in parallel.")] = 2,
    as_json: AsJson = False,
) -> None:
    """Reproduce Tables 3 and 4. Runs an A/B test in a simulated ad market with known truth; continues after an interruption."""
    from pbodl.experiments.ab.ab_arms import Setting
    from pbodl.experiments.ab.ab_experiment import ab as run

    setting = Setting(
        days=days, requests_per_day=requests_per_day, ads=ads, burn_in=burn_in, criterion=rank_by, share=share_traffic,
        market=market,
    )  # fmt: skip
    with writing(out, "pbodl experiment ab"):
        result = run(out, setting, seeds, workers, first_seed=first_seed, only=test)
    _show(out, "ab", result, as_json)


@app.command(epilog="Example: pbodl experiment uncertainty --world 7 --out results/uncertainty")
def uncertainty(
    out: OutFolder,
    data: Annotated[list[str] | None, typer.Argument(help="Files of a log, as for `pbodl train`; or use --world.")] = None,
    world: Annotated[int | None, typer.Option(min=0, max=MOST, help="Seed of a synthetic world to use instead of a log.")] = None,
    rows: Annotated[int, typer.Option(min=1, max=MOST, help="Rows of the synthetic world.")] = 300_000,
    config: ConfigFile = None,
    preset: Preset = None,
    changes: Changes = [],  # noqa: B006
    by: Annotated[
        str | None, typer.Option(help="Field that tells new rows from known ones (default: the first of the ads).")
    ] = None,
    truth: Annotated[
        str | None, typer.Option(help="Column with the true click probabilities (default: p_true, where the log has it).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check whether the uncertainty is honest. Prints coverage (known truth), the martingale check and calibration (any log)."""
    from pbodl.experiments.uncertainty.uncertainty_run import uncertainty as run
    from pbodl.experiments.uncertainty.uncertainty_run import world_log

    if (world is None) == (not data):
        raise InputError("give a log, or --world SEED for a synthetic one; one of the two")
    with writing(out, "pbodl experiment uncertainty"), bar() as progress:
        paths = data or []
        if world is not None:
            made = progress.add_task("making the world", total=rows, text="")
            paths = list(world_log(world, rows, out, lambda n: progress.advance(made, n)))
            preset = preset if config or preset else "synthetic"
        settings = check_config(with_changes(chosen_tables(config, preset, paths, out, False), changes))
        task = progress.add_task("predicting and learning", total=1.0, text="")
        result = run(settings, paths, out, by=by, truth=truth, progress=lambda share: progress.update(task, completed=share))
    _show(out, "uncertainty", result, as_json)


@app.command("live-ab", epilog="Example: pbodl experiment live-ab decisions.jsonl clicks.jsonl")
def live_ab(
    log: Annotated[list[str], typer.Argument(help="Logs of `pbodl serve --log-decisions`, and of the clicks; .jsonl files.")],
    control: Annotated[str | None, typer.Option(help="Arm to compare with (default: the one with the largest share).")] = None,
    reward: Annotated[str, typer.Option(help="Reward of a request: click, or bid (the bid of what was clicked).")] = "click",
    as_json: AsJson = False,
) -> None:
    """Compare the models of a live split. Shows the lift with intervals, one of which may be looked at any time."""
    from pbodl.experiments.decisions.live_ab import ab_tables, ab_warnings, read_split
    from pbodl.experiments.decisions.live_ab import live_ab as compared

    found = compared(read_split(log, reward), control)
    for table in ab_tables(found):
        console.print(table)
    for told in ab_warnings(found):
        warnings.warn(told, stacklevel=1)
    print_json(found, as_json)


def _show(out: Path, name: str, result: dict[str, Any], as_json: bool) -> None:
    """Show the page of an experiment, and where it is."""
    console.print(Markdown((out / f"{name}.md").read_text(encoding="utf-8")))
    console.print(f"{name}.md, {name}.json and report.html are in {out}")
    print_json(result, as_json)
