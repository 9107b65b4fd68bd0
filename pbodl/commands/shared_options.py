"""What several commands share: options, the configuration they ask for, and the JSON at the end."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.markup import escape

from pbodl.data.guess.guess_lines import guess_lines
from pbodl.data.guess.schema_guess import guess
from pbodl.data.log.csv_layout import delimiter_of
from pbodl.data.schema import Schema
from pbodl.errors import InputError
from pbodl.interface.workflow import tables_for
from pbodl.training.display import console
from pbodl.training.presets import PRESETS
from pbodl.training.visits.worker_rules import MERGES

Paths = Annotated[list[str], typer.Argument(help="Files (CSV, JSON lines, Parquet, Arrow), globs, folders or s3:// addresses.")]
RunFolder = Annotated[Path, typer.Argument(help="Run folder written by `pbodl train` or `pbodl online`.")]
SnapshotNumber = Annotated[
    int | None,
    typer.Option("--snapshot", min=1, max=10**12 - 1, help="Number of an older snapshot of the run (default: the newest)."),
]
OutFolder = Annotated[Path, typer.Option(help="Folder to write the results to.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line of stdout.")]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="TOML file with the tables [schema], [model] and [training].")]
Preset = Annotated[str | None, typer.Option(help=f"Built-in configuration instead of a file: {', '.join(PRESETS)}.")]
Kind = Annotated[str | None, typer.Option("--model", help="Model kind, such as pair-fm (the default), fm-mlp or ffm-mlp.")]
Changes = Annotated[list[str], typer.Option("--set", help="Override a key of the configuration, such as model.dim=8; repeatable.")]
BadRows = Annotated[str, typer.Option(help="Action on a bad row: stop, or skip.")]
BadRowsFile = Annotated[str | None, typer.Option(help="File that collects skipped rows with the reason.")]
Columns = Annotated[str | None, typer.Option(help="Names of all columns of a CSV file without a header: click,user,ad.")]
Delimiter = Annotated[str | None, typer.Option(help="Character between the values of a CSV file, or tab (default: find out).")]
Label = Annotated[str | None, typer.Option(help='Column with the outcome, or a comparison, "rating >= 4" (default: find out).')]
Keep = Annotated[list[str], typer.Option(help="Column to learn from, though the guess would leave it out; repeatable.")]
Merge = Annotated[
    str | None, typer.Option(help=f"Rule for merging the workers' updates: {', '.join(MERGES)} (the paper's); training.merge.")
]
Seed = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Random seed for the generated data.")]
MOST = 10**12  # rows, bytes, candidates: more is a slip of the finger
MOST_WORKERS = 1024
Engine = Annotated[str, typer.Option(help="Kind of workers: threads, or ray for a cluster.")]
RayAddress = Annotated[str | None, typer.Option(help="Address of a Ray cluster (default: start one locally).")]
Shards = Annotated[int, typer.Option(min=1, max=MOST_WORKERS, help="Number of processes that hold the weights (--engine ray).")]
Minibatch = Annotated[
    int | None, typer.Option(min=1, max=MOST, help="Rows per message (--engine ray); about 4096 rows are in flight.")
]
WireBits = Annotated[int, typer.Option(help="Bits per number in a message: 16 or 32 (--engine ray).")]
PORTS = {"min": 0, "max": 65535}


def finite(value: float | None) -> float | None:
    """Check that a number is one; `nan` passes every range."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number.")
    return value


ShardTimeout = Annotated[
    float,
    typer.Option(min=1.0, callback=finite, help="Seconds after which a shard that does not answer is replaced (--engine ray)."),
]


def layout_keys(columns: str | None, delimiter: str | None) -> dict[str, Any]:
    """The keys of [schema] that `--columns` and `--delimiter` give."""
    keys: dict[str, Any] = {} if delimiter is None else {"delimiter": delimiter_of(delimiter)}
    return keys if columns is None else keys | {"columns": [name.strip() for name in columns.split(",")]}


def read_with(schema: Schema, columns: str | None, delimiter: str | None) -> Schema:
    """The schema, for files of another layout."""
    return msgspec.structs.replace(schema, **layout_keys(columns, delimiter))


def chosen_tables(
    config: Path | None,
    preset: str | None,
    data: list[str],
    out: Path,
    resume: bool,
    layout: dict[str, Any] | None = None,
    label: str | None = None,
    keep: Sequence[str] = (),
) -> dict[str, Any]:
    """The configuration from a file, a preset or the run to resume; without any, one with a schema guessed from the data."""

    def guessing(source: Any) -> Schema:
        found = guess(source, **(layout or {}), label=label, keep=keep)
        schema = found.schema()
        console.print(f"no --config and no --preset: the schema is guessed from {found.files[0]} (see `pbodl data inspect`)")
        for line in guess_lines(found):
            console.print(f"  {escape(line)}")
        return schema

    tables = tables_for(data, config=config, preset=preset, resumed=out if resume else None, guessing=guessing)
    schema = tables.get("schema")
    if not isinstance(schema, dict):
        return tables
    if label is not None and schema.get("label") != label:
        raise InputError(f"--label is {label!r}, but the configuration has the label {schema.get('label')!r}; change it there")
    sources = [field.get("column", field.get("name")) for field in schema.get("fields", [])]
    for name in keep:
        if name not in sources:
            raise InputError(f"--keep names {name!r}, which is no field of the configuration; add it there")
    return tables | ({"schema": {**schema, **layout}} if layout else {})


def print_json(result: dict[str, Any], as_json: bool) -> None:
    """Print the result as the last line of stdout, if --json asks for it."""
    if as_json:
        print(json.dumps(result))
