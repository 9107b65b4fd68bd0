"""A fingerprint of every model after training: `python -m benchmarks.states > states.txt`, at two commits, then `diff`.

Every kind of model learns 200,000 rows of the synthetic world; several threads in turns, several passes, expectation propagation, a
simulated cluster and the batch models learn 30,000. One line per array of `model.state()`, and of what was predicted on the way:

    <model> <array> <sha256 of its bytes>

A change that is meant to leave the mathematics alone must leave every line as it was. Words given as arguments choose models by
parts of their names.
"""

import hashlib
import sys
from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import pbodl
from pbodl.data.synthetic import World
from pbodl.models.contract import Model
from pbodl.models.learning import Learning
from pbodl.parallel.simulated import Cluster
from pbodl.parallel.threads.learning_threads import Threads
from pbodl.training.visits.reinforcement import EP, Passes

LARGE, SMALL = World(seed=3, days=10, rows=200_000), World(seed=4, days=4, rows=30_000)
FORGETTING = {"half_life": "2d", "decay_mean": True, "step_cap": 1.0, "initial_spread": 0.0}

ALONE: dict[str, Callable[[pbodl.Schema], Model]] = {
    "deep-probit": pbodl.DeepProbit,
    "sparse-mlp": pbodl.SparseMLP,
    "fm-mlp": pbodl.FMMLP,
    "ffm-mlp": pbodl.FFMMLP,
    "fm-mlp-shortcut": partial(pbodl.FMMLP, shortcut=True),
    "fm-mlp-half_life": partial(pbodl.FMMLP, half_life="2d"),
    "fm-mlp-decay_mean-cap": partial(pbodl.FMMLP, **FORGETTING),
    "fm-mlp-paper": partial(pbodl.FMMLP, paper=True),
    "fm-mlp-capacity": partial(pbodl.FMMLP, capacity=20_000),
    "adpredictor": pbodl.AdPredictor,
    "adpredictor-half_life": partial(pbodl.AdPredictor, half_life="2d"),
    "adpredictor-eps": partial(pbodl.AdPredictor, epsilon=0.001),
    "ftrl": pbodl.FTRLProximal,
    "matchbox": pbodl.MatchBox,
}


def learning_with(make: Callable[[], Learning], **options: str) -> Callable[[pbodl.Schema], Model]:
    """An FM-MLP that learns otherwise than row by row."""

    def model(schema: pbodl.Schema) -> Model:
        made = pbodl.FMMLP(schema, **options)
        made.learn_with(make())
        return made

    return model


OTHERWISE: dict[str, Callable[[pbodl.Schema], Model]] = {
    "threads": learning_with(partial(Threads, 2, in_turns=True)),
    "threads-half_life": learning_with(partial(Threads, 2, in_turns=True), half_life="2d"),
    "ep": learning_with(EP),
    "passes": learning_with(Passes),
    "batch-fm": pbodl.BatchFM,
    "batch-dnn": pbodl.BatchDNN,
}


def show(name: str, arrays: dict[str, NDArray]) -> None:
    """Print the lines of a model."""
    for array in sorted(arrays):
        digest = hashlib.sha256(np.ascontiguousarray(arrays[array]).tobytes()).hexdigest()
        print(name, array, digest, flush=True)


def fingerprint(name: str, model: Model, batches: list[pa.RecordBatch]) -> None:
    """Train a model and print its lines."""
    ctr = np.concatenate([model.learn(batch) for batch in batches])
    if hasattr(model, "fit"):
        model.fit()
    show(name, {**model.state(), "~ctr": ctr, "~predicted": model.predict(batches[0]).ctr})


def main(words: list[str]) -> None:
    def wanted(name: str) -> bool:
        return not words or any(word in name for word in words)

    for world, models in ((LARGE, ALONE), (SMALL, OTHERWISE)):
        batches = list(world.batches()) if any(map(wanted, models)) else []
        for name in filter(wanted, models):
            fingerprint(name, models[name](world.schema), batches)
    for half_life in (None, "2d"):
        name = f"cluster-{half_life}"
        if wanted(name):
            cluster = Cluster(pbodl.FMMLP(SMALL.schema, half_life=half_life), workers=4, shards=2)
            ctr = np.concatenate([cluster.learn(batch) for batch in SMALL.batches()])
            show(name, {**cluster.model().state(), "~ctr": ctr})


if __name__ == "__main__":
    main(sys.argv[1:])
