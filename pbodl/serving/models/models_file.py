"""The file that says which models a server serves, and who answers what. The server watches it.

default = "a"               answers requests that name no model
shadow = ["c"]              scores the requests for rankings, for the log alone

[models]                    run folders, or model folders
a = "runs/a"
b = "runs/b"
c = "runs/c"

[split]                     shares of the requests that name no model, by their split_key
a = 0.9
b = 0.1
"""

import os
import tomllib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from pbodl.errors import InputError
from pbodl.serving.models.served_models import ONLY, TrafficPlan, check_name


class ServingPlan(msgspec.Struct, frozen=True):
    """Folders by name, and who answers what."""

    runs: dict[str, str]
    traffic: TrafficPlan

    def check(self) -> None:
        """InputError if the plan cannot be served."""
        for name in self.runs:
            check_name(name)
        self.traffic.check(self.runs)


class _ModelsFile(msgspec.Struct, forbid_unknown_fields=True):
    models: dict[str, str]
    default: str | None = None
    split: dict[str, float] = {}
    salt: str = ""
    shadow: tuple[str, ...] = ()


def read_models_file(path: str | Path) -> ServingPlan:
    """The plan in a TOML file; InputError says what is wrong with it."""
    try:
        told = msgspec.convert(tomllib.loads(Path(path).read_text(encoding="utf-8")), _ModelsFile)
    except OSError as error:
        raise InputError(f"the file of models {path} cannot be read: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise InputError(f"the file of models {path} is not understood: {error}") from error
    if not told.models:
        raise InputError(f'the file of models {path} names no model; write [models] and lines such as a = "runs/a"')
    plan = ServingPlan(told.models, TrafficPlan(told.default or next(iter(told.models)), told.split, told.salt, told.shadow))
    try:
        plan.check()
    except InputError as error:
        raise InputError(f"the file of models {path}: {error}") from None
    return plan


def plan_of(run: str | None, models: Sequence[str], file: str | None) -> ServingPlan:
    """The plan that a command asks for: one run, or `NAME=RUN` several times, or a file."""
    if (run is not None) + bool(models) + (file is not None) != 1:
        raise InputError("give one of these: a run folder, --model NAME=RUN (repeatable), or --models FILE")
    if file is not None:
        return read_models_file(file)
    if run is not None:
        return ServingPlan({ONLY: run}, TrafficPlan())
    runs: dict[str, str] = {}
    for text in models:
        name, equals, folder = text.partition("=")
        if not equals or not folder:
            raise InputError(f"--model is {text!r}; write NAME=RUN, such as a=runs/a")
        if name in runs:
            raise InputError(f"--model names {name!r} twice; names must differ")
        runs[name] = folder
    plan = ServingPlan(runs, TrafficPlan(next(iter(runs))))
    plan.check()
    return plan


class WatchedPlan:
    """A plan, and the file from which it is read again when the file changes."""

    def __init__(self, plan: ServingPlan, file: str | None) -> None:
        self.plan, self._file = plan, file
        self._seen = self._stamp()

    def changed(self) -> bool:
        """Read the file if it changed; returns whether the plan did. A file that cannot be read leaves the plan; InputError."""
        stamp = self._stamp()
        if self._file is None or stamp is None or stamp == self._seen:
            return False
        self._seen = stamp
        before, self.plan = self.plan, read_models_file(self._file)
        return self.plan != before

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            about = os.stat(self._file) if self._file is not None else None
        except OSError:
            return None
        return None if about is None else (about.st_mtime_ns, about.st_size, about.st_ino)
