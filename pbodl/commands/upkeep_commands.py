"""Commands that look after run folders: `migrate` and `doctor`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from pbodl.commands.shared_options import AsJson, Changes, RunFolder, print_json
from pbodl.errors import InputError
from pbodl.streaming.upkeep import run_migration
from pbodl.streaming.upkeep.run_doctor import PROBLEM, examine
from pbodl.training.config import check_config, read_config, with_changes
from pbodl.training.display import console


def migrate(
    run: RunFolder,
    config: Annotated[Path | None, typer.Option("--config", help="New configuration (default: the run's, with --set).")] = None,
    changes: Changes = [],  # noqa: B006
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would happen, and do nothing.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Return to the snapshot before the last migration.")] = False,
    as_json: AsJson = False,
) -> None:
    """Change the schema or the shape of a run. It keeps what it has learned. A learner that runs there follows at once."""
    if undo:
        found = run_migration.undo(run)
        console.print(f"{escape(str(run))} is back at snapshot {found['snapshot']}, from before the migration")
        print_json(found, as_json)
        return
    if config is None and not changes:
        raise InputError("say what is to change: give the new configuration with --config, or single keys with --set")
    tables = read_config(config or run / run_migration.CONFIG)
    found = run_migration.migrate(run, check_config(with_changes(tables, changes)), dry_run)
    for line in found["changes"] or ["nothing changes"]:
        console.print(escape(f"- {line}"))
    console.print(f"largest change of a prediction, over rows of known values: {found['largest_difference']:.1e}")
    if dry_run:
        console.print("nothing was done: leave out --dry-run to migrate")
    elif found["writer"]:
        console.print("the running learner has followed; its next publication is a full snapshot")
    else:
        console.print(f"done; `pbodl migrate {escape(str(run))} --undo` returns to the snapshot before")
    print_json(found, as_json)


def doctor(
    run: RunFolder,
    published: Annotated[str | None, typer.Option(help="Model folder that the learner publishes to, if not in the run.")] = None,
    as_json: AsJson = False,
) -> None:
    """Tell in plain words what is wrong with a run folder. Exits with 1 if something needs a person."""
    found = examine(run, published)
    for finding in found:
        colour = "red" if finding.kind == PROBLEM else "yellow"
        console.print(f"[{colour}]{finding.kind}, {finding.about}:[/] {escape(finding.told)}")
    problems = sum(finding.kind == PROBLEM for finding in found)
    if not problems:
        console.print("nothing needs a person")
    print_json({"run": str(run), "problems": problems, "findings": [finding._asdict() for finding in found]}, as_json)
    if problems:
        raise typer.Exit(1)
