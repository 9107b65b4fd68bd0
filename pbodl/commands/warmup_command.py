"""`pbodl warmup`: compile what a model needs before it is needed."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from pbodl._jit import compiling_notice
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
        list[str] | None,
        typer.Argument(help="Kinds of models, such as pair-fm (the default); or all, with and without forgetting."),
    ] = None,
) -> None:
    """Compile a model's kernels beforehand. Its first rows and requests then need not wait; for images and new machines."""
    known = sorted(Model.kinds)
    for kind in kinds or []:
        if kind not in (*known, "all"):
            raise InputError(f"unknown model kind {kind!r}; kinds are: {', '.join(known)}, all")
    with bar() as progress:
        everything = "all" in (kinds or [])
        for kind in known if everything else kinds or ["pair-fm"]:
            task = progress.add_task(kind, total=len(STEPS), text="")
            for step, text in enumerate(compile_steps(kind, forgetting=everything)):
                progress.update(task, completed=step, text=text)
            progress.update(task, completed=len(STEPS), text="ready")


def compile_steps(kind: str, forgetting: bool = False) -> Iterator[str]:
    """Do in turn what a user would do with a model of this kind; yields the name of each step before it is done.

    forgetting    with a model that forgets as well: compiled code contains what forgets, or not
    """
    from pbodl.serving.models.predictor_source import ready
    from pbodl.serving.ranking.policies import RankPolicy
    from pbodl.serving.ranking.propensities import placements
    from pbodl.serving.scoring.exploration import Exploration, explore
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
    models = [known.from_spec(SCHEMA, known.Spec())]
    if forgetting and "half_life" in known.Spec.__struct_fields__:
        models.append(known.from_spec(SCHEMA, known.Spec(half_life="1d")))
    for model in models:
        with contextlib.suppress(InputError):  # some models need an extra that is not installed
            model.learn(chunk.batch)
    yield STEPS[2]
    for model in models:
        model.predict(chunk.batch)
    yield STEPS[3]
    for model in models:
        with contextlib.suppress(InputError):  # some models have no weights to draw
            model.sample(chunk.batch, 1)
    yield STEPS[4]
    for model in models:
        if isinstance(model, DeepProbit):
            predictor = ready(Predictor.of(model))
            encoder = predictor.encoder
            own = encoder.encode_own([(text,) for text in ("a text", "another")])
            shared = encoder.encode_shared({"user": "a text"})
            explore(predictor, shared, own, Exploration("thompson", seed=1))
            placements(predictor, shared, own, None, 1, RankPolicy("thompson"), 1, np.random.default_rng(0))


def tell_if_compiling() -> None:
    """One line before a wait that has no other reason."""
    if notice := compiling_notice():
        console.print(f"{notice} (`pbodl warmup` does it beforehand)", soft_wrap=True)
