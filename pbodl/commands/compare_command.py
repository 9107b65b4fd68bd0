"""`pbodl compare`: our models and other libraries on the user's own log."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from pbodl.commands.shared_options import (
    MOST,
    AsJson,
    Changes,
    Columns,
    ConfigFile,
    Delimiter,
    Paths,
    Preset,
    chosen_tables,
    finite,
    layout_keys,
    print_json,
)
from pbodl.system.folder_lock import writing
from pbodl.training.config import check_config, with_changes
from pbodl.training.display import console


def compare(
    data: Paths,
    out: Annotated[Path | None, typer.Option(help="Folder for compare.md, compare.json and report.html.")] = None,
    config: ConfigFile = None,
    preset: Preset = None,
    changes: Changes = [],  # noqa: B006
    models: Annotated[
        str | None, typer.Option(help="Models to compare, the first is the reference: pair-fm,ftrl,lightgbm (default: all).")
    ] = None,
    trials: Annotated[int, typer.Option(min=0, max=MOST, help="Settings to try for each model (0: the defaults).")] = 0,
    tune_rows: Annotated[int, typer.Option(min=1, max=MOST, help="Rows to choose settings by, from the start.")] = 200_000,
    rows: Annotated[int | None, typer.Option(min=1, max=MOST, help="Rows to use, from the start (default: all).")] = None,
    last: Annotated[
        float, typer.Option(min=0.001, max=0.9, callback=finite, help="Share of the rows, at the end, to predict frozen.")
    ] = 0.1,
    columns: Columns = None,
    delimiter: Delimiter = None,
    as_json: AsJson = False,
) -> None:
    """Compare models on a log. Runs ours, and River, Vowpal Wabbit and LightGBM where installed; shows intervals of differences."""
    from pbodl.experiments.compare.compare_report import comparison_table, lead, notes, write_comparison
    from pbodl.experiments.compare.compare_run import CompareSettings
    from pbodl.experiments.compare.compare_run import compare as run

    tables = chosen_tables(config, preset, data, Path("."), False, layout_keys(columns, delimiter))
    settings = check_config(with_changes(tables, changes))
    chosen = None if models is None else [name.strip() for name in models.split(",")]
    result = run(settings, data, CompareSettings(rows=rows, last=last, trials=trials, tune_rows=tune_rows), chosen)
    console.print(comparison_table(result))
    console.print(lead(result))
    for note in notes(result):
        console.print(escape(note))
    if out is not None:
        with writing(out, "pbodl compare"):
            write_comparison(out, result)
        console.print(f"compare.md, compare.json and report.html are in {out}")
    print_json(result, as_json)
