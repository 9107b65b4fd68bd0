"""`pbodl warmup`: compile what a model needs before it is needed."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from pbodl._jit import first_compilation
from pbodl.data.log.log_reader import open_log
from pbodl.data.schema import Field, Schema
from pbodl.errors import InputError
from pbodl.models.contract import Model
from pbodl.models.deep_probit import DeepProbit
from pbodl.training.display import bar, console

SCHEMA = Schema(label="click", time="time", fields=[Field("user", group="user"), Field("site"), Field("ad", group="ad")])
ROWS = 64
STEPS = ("reading", "learning", "predicting", "drawing weights", "serving")


def warmup(
    kinds: Annotated[
        list[str] | None, typer.Argument(help="Model kinds, such as pair-fm (the default), fm-mlp or matchbox.")
    ] = None,
) -> None:
    """Compile a model's kernels beforehand. Its first rows and requests then need not wait; for images and new machines."""
    known = sorted(Model.kinds)
    for kind in kinds or []:
        if kind not in known:
            raise InputError(f"unknown model kind {kind!r}; kinds are: {', '.join(known)}")
    with bar() as progress:
        for kind in kinds or ["pair-fm"]:
            task = progress.add_task(kind, total=len(STEPS), text="")
            for step, text in enumerate(compile_steps(kind)):
                progress.update(task, completed=step, text=text)
            progress.update(task, completed=len(STEPS), text="ready")


def compile_steps(kind: str) -> Iterator[str]:
    """Do in turn what a user would do with a model of this kind; yields the name of each step before it is done."""
    from pbodl.serving.models.predictor_source import ready
    from pbodl.serving.scoring.predictor import Predictor

    yield STEPS[0]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.csv"
        lines = [f"{i % 7},{i % 3},{i % 5},{i},{int(i % 5 == i % 7)}\n" for i in range(ROWS)]
        log.write_text("".join(["user,site,ad,time,click\n", *lines]), encoding="utf-8")
        with open_log([str(log)], SCHEMA) as reader:
            (chunk,) = reader
    yield STEPS[1]
    known = Model.kinds[kind]
    model = known.from_spec(SCHEMA, known.Spec())
    model.learn(chunk.batch)
    yield STEPS[2]
    model.predict(chunk.batch)
    yield STEPS[3]
    with contextlib.suppress(InputError):  # some models have no weights to draw
        model.sample(chunk.batch, 1)
    yield STEPS[4]
    if isinstance(model, DeepProbit):
        ready(Predictor.of(model))


def tell_if_compiling() -> None:
    """One line before a wait that has no other reason."""
    if first_compilation():
        console.print("compiling once on this machine, which takes about half a minute (`pbodl warmup` does it beforehand)")
