"""`pbodl data`: generate a log, replay it as a stream, guess the schema of a file."""

from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer
from rich.markup import escape

from pbodl.commands import PLAIN
from pbodl.commands.shared_options import (
    MOST,
    Columns,
    ConfigFile,
    Delimiter,
    Keep,
    Label,
    Paths,
    Preset,
    Seed,
    chosen_tables,
    finite,
    layout_keys,
)
from pbodl.data.guess.guess_toml import guess_toml
from pbodl.data.guess.schema_guess import guess
from pbodl.data.log.log_reader import open_log
from pbodl.data.synthetic import World
from pbodl.data.synthetic.resampled_log import resampled
from pbodl.data.synthetic.synthetic_log import check_suffix, write_rows
from pbodl.errors import InputError
from pbodl.streaming.online_service import parse_speed
from pbodl.streaming.replay import replay as send
from pbodl.streaming.sources.event_sink import open_sink
from pbodl.training.config import check_config
from pbodl.training.display import bar, console

app = typer.Typer(
    no_args_is_help=True, **PLAIN, help="Generate data and look at data.", epilog="Example: pbodl data inspect clicks.csv"
)  # fmt: skip
Rows = Annotated[int, typer.Option(min=1, max=MOST, help="Number of impressions to generate.")]
Days = Annotated[int, typer.Option(min=1, max=100_000, help="Number of days that the impressions cover.")]


@app.command(epilog="Example: pbodl data synth --rows 100000 --out clicks.parquet")
def synth(
    out: Annotated[Path, typer.Option(help="File to write: .parquet, .csv or .csv.gz.")],
    rows: Rows = 1_000_000,
    days: Days = 10,
    seed: Seed = 0,
) -> None:
    """Generate an Avazu-like click log. Its column p_true holds the true click probabilities."""
    with bar() as progress:
        task = progress.add_task("synth", total=rows, text="")
        World(seed=seed, days=days, rows=rows).write(out, lambda more: progress.advance(task, more))
    console.print(f"{rows:,} rows in {out}")


@app.command(epilog="Example: pbodl data resample clicks.csv --out likeness.parquet")
def resample(
    data: Paths,
    out: Annotated[Path, typer.Option(help="File to write: .parquet, .csv or .csv.gz.")],
    config: ConfigFile = None,
    preset: Preset = None,
    rows: Rows = 1_000_000,
    seed: Seed = 0,
    columns: Columns = None,
    delimiter: Delimiter = None,
) -> None:
    """Generate a log like yours. Its clicks are drawn from a truth fitted to yours, which p_true holds."""
    check_suffix(out)
    tables = chosen_tables(config, preset, data, Path("."), False, layout_keys(columns, delimiter))
    schema = check_config(tables).schema
    with open_log(data, schema) as reader:
        read = [chunk.table for chunk in reader]
    if not read:
        raise InputError("the log has no rows; a truth needs rows to be fitted to")
    write_rows(out, resampled(schema, pa.concat_tables(read, promote_options="default"), rows, seed))
    console.print(f"{rows:,} rows in {out}")


@app.command("inspect", epilog="Example: pbodl data inspect clicks.csv > config.toml")
def inspect_data(
    data: Paths,
    label: Label = None,
    keep: Keep = [],  # noqa: B006
    columns: Columns = None,
    delimiter: Delimiter = None,
) -> None:
    """Guess a schema from a log. Prints it as TOML, ready to edit; notes go to stderr."""
    found = guess(data, **layout_keys(columns, delimiter), label=label, keep=keep)
    for warning in found.warnings:
        console.print(f"[yellow]note:[/] {escape(warning)}")
    print(guess_toml(found))


@app.command(epilog="Example: pbodl data replay --to redis://localhost:6379/clicks --speed 60x")
def replay(
    to: Annotated[str, typer.Option(help="Target: redis://host:6379/stream, kafka://host:9092/topic, or a .jsonl file.")],
    rows: Rows = 100_000,
    days: Days = 1,
    seed: Seed = 0,
    delay: Annotated[
        float, typer.Option(min=0.0, callback=finite, help="Mean seconds between an impression and its click.")
    ] = 60.0,
    pack: Annotated[int, typer.Option(min=1, max=MOST, help="Events per message.")] = 500,
    speed: Annotated[str | None, typer.Option(help="Multiple of real time, such as 60x (default: as fast as possible).")] = None,
) -> None:
    """Send generated traffic as a live stream. Clicks follow some time after their impressions."""
    sink = open_sink(to, pack)
    try:
        sent = send(World(seed=seed, days=days, rows=rows), sink, delay, parse_speed(speed))
    finally:
        sink.close()
    console.print(f"{sent:,} events sent to {to}")
