"""The commands as functions: `guess`, `train`, `evaluate` and `explain`, on files and on data in memory.

The commands themselves use `tables_for` and `watched` from here, so both ways read logs and choose configurations alike.
"""

import contextlib
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from pbodl.data.guess.schema_guess import guess as guess_log
from pbodl.data.log.log_reader import LogReader, open_log
from pbodl.data.schema import Schema
from pbodl.errors import InputError
from pbodl.interface.results import Result
from pbodl.models.contract import Model
from pbodl.models.snapshot import load
from pbodl.parallel.threads.learning_threads import threads_for
from pbodl.training.config import check_config, read_config, with_values
from pbodl.training.display import bar, console, evaluation_tables
from pbodl.training.evaluate import evaluate as evaluate_model
from pbodl.training.inspect.explanation import explained
from pbodl.training.inspect.inspection_tables import tables
from pbodl.training.presets import named_tables
from pbodl.training.session import Interrupted
from pbodl.training.session import train as train_log


def guess(source: Any, rows: int = 1_000_000, label: str | None = None, keep: Sequence[str] = ()) -> Schema:
    """Guess a schema: label, time, fields and their groups. What is doubtful comes as warnings.

    source  a path, a list of dicts, or a data frame or table (pandas, polars, pyarrow)
    rows    the number of rows to look at
    label   the label, if it is known: a column, or a comparison such as "rating >= 4"
    keep    columns to learn from, though the guess would leave them out
    """
    found = guess_log(source, rows, label=label, keep=keep)
    for doubt in found.warnings:
        warnings.warn(doubt, stacklevel=2)
    return found.schema()


def train(
    source: Any,
    out: str | Path | None = None,
    *,
    schema: Schema | None = None,
    config: str | Path | Mapping[str, Any] | None = None,
    preset: str | None = None,
    model: str | None = None,
    settings: Mapping[str, Any] | None = None,
    resume: bool = False,
    keep_names: bool = False,
    workers: int = 1,
    merge: str | None = None,
    burn_in: str | None = None,
    bad_rows: str = "stop",
    bad_rows_file: str | None = None,
) -> Model:
    """Learn from a log in one pass, as `pbodl train` does; returns the model, with its figures in `model.figures`.

    Each row is predicted before it is learned, so the figures are honest. `model.report()` shows them as curves.

    source         a path, several, or a list of dicts, or a data frame or table (pandas, polars, pyarrow)
    out            run folder to write, with snapshots and report; None keeps everything in memory
    schema         the columns (`Schema`); None takes those of `config` or `preset`, or guesses them
    config         TOML file, or its tables as a dict
    preset         name of a built-in configuration, such as "avazu"
    model          kind of model, such as "pair-fm" (the default) or "fm-mlp"
    settings       changes to the configuration, such as {"model.dim": 8, "training.half_life": "7d"}
    resume         continue from the newest snapshot in `out`
    keep_names     store readable feature names in `out`
    workers        number of threads that learn in parallel
    merge          rule for merging the threads' updates: training.merge of the settings
    burn_in        amount to learn with one thread first, "100k" or "2d": training.burn_in of the settings
    bad_rows       action on a bad row: "stop", or "skip"
    bad_rows_file  file that collects skipped rows with the reason
    """
    if out is None and (resume or keep_names):
        raise InputError("resume and keep_names need a run folder: give out='runs/...'")
    tables = tables_for(source, config=config, preset=preset, schema=schema, resumed=Path(out) if resume and out else None)
    named = {"model.kind": model, "training.merge": merge, "training.burn_in": burn_in}
    changes = dict(settings or {}) | {key: value for key, value in named.items() if value is not None}
    checked = check_config(with_values(tables, changes))
    prepare = threads_for(workers, checked.training.merge, checked.training.burn_in)
    with contextlib.ExitStack() as stack:
        folder = Path(out) if out is not None else Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pbodl-")))
        try:
            figures = train_log(
                checked, source, folder, resume=resume, bad_rows=bad_rows, bad_rows_file=bad_rows_file, keep_names=keep_names,
                prepare=prepare,
            )  # fmt: skip
        except Interrupted as stop:
            if out is not None:
                console.print(f"stopped and saved; continue with resume=True (run folder {out})")
            raise KeyboardInterrupt from stop
        trained = load(folder)
        trained.figures, trained.page = figures, (folder / "report.html").read_text(encoding="utf-8")
        trained.run = None if out is None else folder
    return trained


def evaluate(
    model: Model | str | Path, source: Any, by: str | None = None, bad_rows: str = "stop", bad_rows_file: str | None = None
) -> Result:
    """Measure a model on a log without learning from it: a dict of figures with intervals, that prints as tables.

    model          a model, or a run folder
    source         a path, several, or a list of dicts, or a data frame or table (pandas, polars, pyarrow)
    by             column whose values get figures of their own
    bad_rows       action on a bad row: "stop", or "skip"
    bad_rows_file  file that collects skipped rows with the reason
    """
    model = model if isinstance(model, Model) else load(model)
    options: dict[str, Any] = {"bad_rows": bad_rows, "bad_rows_file": bad_rows_file, "columns": [] if by is None else [by]}
    with watched("evaluate", source, model.schema, **options) as (reader, progress):
        return Result(evaluate_model(model, reader, by, progress), evaluation_tables)


def explain(model: Model | str | Path, row: Mapping[str, Any]) -> Result:
    """Split one prediction into the contributions of its features: a dict that prints as a table.

    model  a model, or a run folder
    row    the row to predict, as a dict
    """
    if not isinstance(row, Mapping):
        raise InputError(f"the row is of type {type(row).__name__}; it must be a dict, such as {{'ad_id': 'a1', ...}}")
    model = model if isinstance(model, Model) else load(model)
    return Result({"what": "explanation", **explained(model, row)}, tables)


def tables_for(
    source: Any,
    *,
    config: str | Path | Mapping[str, Any] | None = None,
    preset: str | None = None,
    schema: Schema | None = None,
    resumed: Path | None = None,
    guessing: Callable[[Any], Schema] = guess,
) -> dict[str, Any]:
    """The tables of a configuration: those given, or those of the run to resume; without a schema, one is guessed."""
    if isinstance(config, Mapping) and preset is not None:
        raise InputError("give config or preset, not both")
    tables = config if isinstance(config, Mapping) else named_tables(None if config is None else Path(config), preset)
    if tables is None and resumed is not None and (resumed / "config.toml").exists():
        tables = read_config(resumed / "config.toml")
    found = dict(tables or {})
    if schema is not None:
        found["schema"] = msgspec.to_builtins(schema)
    elif tables is None or (isinstance(config, Mapping) and "schema" not in found):
        found["schema"] = msgspec.to_builtins(guessing(source))
    return found


@contextlib.contextmanager
def watched(name: str, source: Any, schema: Schema, **options: Any) -> Iterator[tuple[LogReader, Callable[[int], None]]]:
    """A reader of the log, and a function that moves a progress bar to the number of rows done."""
    with open_log(source, schema, **options) as reader, bar() as progress:
        task = progress.add_task(name, total=reader.rows_total, text="")
        yield reader, lambda done: progress.update(task, completed=done, total=reader.rows_total)
