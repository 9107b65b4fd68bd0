"""The help of every command: complete, in plain words, with an example that the command accepts."""

import re
import shlex
from importlib.metadata import version

import pytest
import typer.main

import pbodl
from pbodl.cli import app
from tests.command_line import run_pbodl


def commands(command, path=()):
    """Every command and group with its path of names."""
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*path, name))


ALL = dict(commands(typer.main.get_command(app)))
PATHS = pytest.mark.parametrize("path", ALL, ids=" ".join)


def rendered(path, flag="--help") -> str:
    done = run_pbodl(*path, flag)
    assert done.code == 0
    return done.out


def squeezed(text: str) -> str:
    """Without spaces: lines break where the terminal ends."""
    return re.sub(r"\s", "", text)


def texts(command) -> dict[str, str]:
    """The help of a command and of each of its parameters, by name."""
    return {"": command.help or "", **{parameter.name: getattr(parameter, "help", None) or "" for parameter in command.params}}


@PATHS
def test_every_help_text_is_shown_in_full(path):
    output = squeezed(rendered(path))
    for name, text in texts(ALL[path]).items():
        assert text, f"{' '.join(path)}: {name or 'the command'} has no help"
        assert squeezed(text) in output
    assert rendered(path, "-h") == rendered(path)


@PATHS
def test_help_starts_with_a_noun_or_a_verb(path):
    for name, text in texts(ALL[path]).items():
        assert not re.match(r"(Of|Over|On|With|At|How|Where|What)\b", text), f"{name}: {text}"
        assert text[0].isupper() or "://" in text.split()[0], f"{name}: {text}"


@PATHS
def test_every_command_has_an_example_that_it_accepts(path):
    command = ALL[path]
    (line,) = [line.strip() for line in rendered(path).splitlines() if line.strip().startswith("Example:")]
    assert line == command.epilog, "the example does not fit on one line"
    program, *words = shlex.split(line.removeprefix("Example:").partition(">")[0])
    assert program == "pbodl"
    if hasattr(command, "commands"):
        return
    assert tuple(words[: len(path)]) == path
    command.make_context(" ".join(path), words[len(path) :])


def test_the_list_of_commands_is_not_cut_short():
    for path, command in ALL.items():
        if hasattr(command, "commands"):
            assert "..." not in rendered(path).replace("[ARGS]...", "")


def test_version():
    assert run_pbodl("--version").out == f"pbodl {version('pbodl')}\n"
    assert pbodl.__version__ == version("pbodl")
