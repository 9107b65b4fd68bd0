"""The command line: which commands there are, and how errors reach a person.

Progress, tables and logs go to stderr; with --json one JSON object is the last line of stdout. Exit codes: 0 success, 1 the work
failed (a full disk, a broker that is away), 2 bad usage or bad input, 130 and 143 stopped by a signal after saving.
"""

import importlib
import sys
import warnings
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import Annotated, Any

import typer
from rich.markup import escape
from typer.core import TyperGroup

from pbodl.commands import PLAIN
from pbodl.system.failures import report
from pbodl.training.display import console

# In `pbodl.commands`: the function of each command, or the app of a group, and an example.
COMMANDS = {
    "train": ("training_commands.train", "train clicks.csv --out runs/first"),
    "evaluate": ("model_commands.evaluate", "evaluate runs/first tomorrow.csv --by site_id"),
    "predict": ("model_commands.predict", "predict runs/first tomorrow.csv --out ctr.parquet"),
    "inspect": ("model_commands.inspect", "inspect runs/first --feature site_id=85f751fd"),
    "doctor": ("upkeep_commands.doctor", "doctor runs/live"),
    "migrate": ("upkeep_commands.migrate", "migrate runs/live --config new.toml --dry-run"),
    "rollback": ("model_commands.roll_back", "rollback runs/first"),
    "tune": ("training_commands.tune", "tune clicks.csv --trials 12 --out tuned.toml"),
    "compare": ("compare_command.compare", "compare clicks.csv --out results/compare"),
    "online": ("online_command.online", "online --source clicks/ --config config.toml --out runs/live"),
    "serve": ("serving_commands.serve", "serve runs/first --port 8080"),
    "route": ("serving_commands.route", "route --shard http://one:8080 --shard http://two:8080"),
    "deploy": ("deploy_command.deploy", "deploy runs/first --out deploy"),
    "warmup": ("warmup_command.warmup", "warmup pair-fm"),
    "up": ("serving_commands.up", "up --rate 2000 --port 8080"),
    "data": ("data_commands.app", ""),
    "experiment": ("experiment_commands.app", ""),
}


class OnDemand(Mapping[str, Any]):
    """Commands by name, each imported when it is asked for: a command waits for nothing that only others need."""

    def __getitem__(self, name: str) -> Any:
        where, example = COMMANDS[name]
        module, _, attribute = where.partition(".")
        found = getattr(importlib.import_module(f"pbodl.commands.{module}"), attribute)
        if not isinstance(found, typer.Typer):
            function, found = found, typer.Typer(**PLAIN)
            found.command(name, epilog=f"Example: pbodl {example}")(function)
        command = typer.main.get_command(found)
        command.name = name
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class Commands(TyperGroup):
    """The group of all commands."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = OnDemand()  # type: ignore[assignment]


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    **PLAIN,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Bayesian online deep learning for click-through rates.",
    epilog="Example: pbodl train clicks.csv --out runs/first",
)


_debug: list[bool] = []  # what --debug was


def _show_version(asked: bool) -> None:
    if asked:
        print(f"pbodl {version('pbodl')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Print the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    _debug.append(debug)


def _show_warning(message: Warning | str, *rest: Any, **more: Any) -> None:
    console.print(f"[yellow]warning:[/] {escape(str(message))}")


def main() -> None:
    """Run the command line. Errors are told in prose: bad input exits with 2, what fails otherwise with 1."""
    warnings.showwarning = _show_warning
    _debug.clear()
    try:
        app(prog_name="pbodl")
    except Exception as error:
        if any(_debug):
            raise
        told, code = report(error)
        console.print(f"[red]error:[/] {escape(told)}")
        sys.exit(code)


if __name__ == "__main__":
    main()
