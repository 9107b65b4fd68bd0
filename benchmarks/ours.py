"""Our models as contestants: `learn` and `predict` on prepared batches, including the lookup of keys in the table."""

from collections.abc import Callable

import numpy as np

import pbodl
from benchmarks.timing import Contestant
from benchmarks.workload import Workload
from pbodl.models.contract import Model

LEARN_ROWS = 4096  # per call of `learn`, which learns them one by one
PREDICT_ROWS = 1000  # per call of `predict`: the candidates of a request

MODELS: dict[str, Callable[[pbodl.Schema], pbodl.DeepProbit]] = {
    "concat": pbodl.DeepProbit,
    "sum": pbodl.SparseMLP,
    "fm": lambda schema: pbodl.FMMLP(schema, pairs="fields"),  # the same network as PyTorch's
    "fm of groups": pbodl.FMMLP,
    "ffm": pbodl.FFMMLP,
    "pairs": pbodl.PairFM,
    "linear": lambda schema: pbodl.SparseMLP(schema, dim=1, hidden=(), linear=False),
}

BASELINES: dict[str, Callable[[pbodl.Schema], Model]] = {
    "adpredictor": pbodl.AdPredictor,
    "ftrl": pbodl.FTRLProximal,
    "matchbox": pbodl.MatchBox,
}


def learner(name: str, model: str, workload: Workload, rows: int, rows_per_call: int = LEARN_ROWS) -> Contestant:
    """Learn `rows` rows with a new model, whose table grows."""
    parts = workload.parts(rows, rows_per_call)

    def fresh() -> Callable[[], list]:
        new = (BASELINES | MODELS)[model](workload.schema)
        return lambda: [new.learn(part) for part in parts]

    return Contestant(name, rows, fresh, lambda ctr: workload.log_loss(np.concatenate(ctr)))


def scorer(name: str, model: str, workload: Workload, rows: int, rows_per_call: int = PREDICT_ROWS) -> Contestant:
    """Score `rows` rows, with variances, by a model that has learned them all."""
    trained = MODELS[model](workload.schema)
    trained.learn(workload.batch)
    parts = workload.parts(rows, rows_per_call)

    def run() -> None:
        for part in parts:
            trained.predict(part)

    return Contestant(name, rows, lambda: run)


def bytes_per_feature(dim: int, sizes: np.ndarray) -> list[float]:
    """Memory of an FM-MLP's table, divided by its features, as it grows through these sizes; index and slack included."""
    schema = pbodl.Schema(label="click", fields=[pbodl.Field("ad", group="ad")])
    table = pbodl.FMMLP(schema, dim=dim, hidden=()).table
    keys = np.random.default_rng(0).integers(1, 2**63, int(sizes[-1]), dtype=np.uint64)
    measured = []
    for start, stop in zip([0, *sizes[:-1]], sizes, strict=True):
        table.insert(keys[start:stop])
        measured.append(table.nbytes / table.size)
    return measured
