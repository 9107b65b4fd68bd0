"""Choosing priors, half-life and dim by progressive log loss.

No validation set is needed. A model that predicts each row before it learns it is tested on every row by data it has not seen; and
the sum of those log losses is -log p(clicks | settings), by the chain rule: the evidence, by which Bayesians compare models. A
setting with too wide a prior pays for it while it is unsure, one with too narrow a prior while it is wrong.

The search goes through a small grid (`GRIDS`) one key at a time: it tries the neighbours of the best value so far, goes on in a
direction that helps, and with the trials that are left looks at random points nearby. It is deterministic. Two settings are learned
at a time, in threads, from one copy of the rows in memory.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice, product
from typing import Any, NamedTuple

import numpy as np
from rich.table import Table

from pbodl.data.arrays import Batch
from pbodl.data.readers import open_log
from pbodl.errors import InputError
from pbodl.models.clock import parse_duration
from pbodl.training.config import Config, check_config, to_tables
from pbodl.training.display import bar, plain_table
from pbodl.training.metrics import CLIP
from pbodl.training.online import learn_rows, new_model

AT_A_TIME = 2
BATCH_ROWS = 16384  # between two looks at the clock by the progress bar
HALF_LIVES = (None, "30d", "14d", "7d", "3d", "1d")
HALF_LIVES_IN_ROWS = (None, "30M rows", "10M rows", "3M rows", "1M rows", "300k rows")
Grid = dict[str, Sequence[Any]]

_DEEP: Grid = {
    "model.prior.linear": (0.004, 0.0075, 0.015, 0.03, 0.06, 0.12),
    "model.prior.embedding": (0.006, 0.0125, 0.025, 0.05, 0.1, 0.2, 0.4),
    "training.half_life": HALF_LIVES,
    "model.prior.dense": (0.0125, 0.025, 0.05, 0.1, 0.2),
    "model.dim": (4, 8, 16, 32),
}
_BATCH: Grid = {
    "model.learning_rate": (0.003, 0.01, 0.03, 0.1),
    "model.l2": (0.0, 1e-7, 1e-6, 1e-5, 1e-4),
    "model.dim": (4, 8, 16, 32),
}
# What may be tuned of each kind, the key that matters most first.
GRIDS: dict[str, Grid] = {
    **dict.fromkeys(("deep-probit", "sparse-mlp", "fm-mlp", "ffm-mlp"), _DEEP),
    "adpredictor": {"model.prior_variance": (0.003, 0.006, 0.01, 0.02, 0.04, 0.08, 0.16), "training.half_life": HALF_LIVES},
    "ftrl": {
        "model.alpha": (0.01, 0.02, 0.05, 0.1, 0.2, 0.4),
        "model.l2": (0.0, 0.3, 1.0, 3.0, 10.0),
        "model.beta": (0.3, 1.0, 3.0),
        "model.l1": (0.0, 0.1, 0.3, 1.0),
    },
    "matchbox": {
        "model.bias_variance": (0.005, 0.01, 0.02, 0.04, 0.08),
        "model.prior_variance": (0.005, 0.01, 0.02, 0.05, 0.1, 0.2),
        "model.dim": (2, 4, 8, 16),
        "model.initial_spread": (0.01, 0.03, 0.1),
    },
    **dict.fromkeys(("fm-batch", "dnn-batch"), _BATCH),
}
Point = tuple[int, ...]  # a place on each of the grid's axes


class Trial(NamedTuple):
    """A configuration, the values it has on the grid, and how it did."""

    config: Config
    values: dict[str, Any]
    log_loss: float
    given: bool  # the configuration to start from


def tune_log(config: Config, paths: Sequence[str], rows: int = 200_000, trials: int = 12) -> list[Trial]:
    """`tune` on the first `rows` of a log, with a progress bar."""
    if rows < 1 or trials < 1:
        raise InputError(f"rows is {rows} and trials is {trials}; both must be at least 1")
    batches = read_first(config, paths, rows)
    read = sum(len(batch) for batch in batches)
    with bar() as progress:
        task = progress.add_task(f"tune {config.kind}", total=trials * read, text="")

        def watch(done: int, best: float) -> None:
            text = f"{read:,} rows, {trials} trials" + (f"  best log loss {best:.5f}" if np.isfinite(best) else "")
            progress.update(task, completed=done, text=text)

        results = tune(config, batches, trials, watch)
        progress.update(task, completed=trials * read)
    return results


def read_first(config: Config, paths: Sequence[str], rows: int) -> list[Batch]:
    """The first rows of a log, in batches."""
    batches: list[Batch] = []
    with open_log(paths, config.schema, batch_rows=min(BATCH_ROWS, rows)) as reader:
        for chunk in islice(reader, -(-rows // min(BATCH_ROWS, rows))):
            batches.append(chunk.batch.rows(0, rows - sum(len(batch) for batch in batches)))
    return batches


def tune(
    config: Config,
    batches: Sequence[Batch],
    trials: int = 12,
    watch: Callable[[int, float], None] = lambda rows, best: None,
    keys: Sequence[str] | None = None,
) -> list[Trial]:
    """Try up to `trials` settings on labelled batches, `config` itself first; the results, the best first.

    `watch` is told the rows learned by all trials so far, and the best log loss. With `keys`, only these are varied.
    """
    grid = {key: axis for key, axis in grid_of(config).items() if keys is None or key in keys}
    search = _Search([len(axis) for axis in grid.values()], _place(config, grid))
    results: list[Trial] = []
    learned = [0]

    def count(rows: int) -> None:
        learned[0] += rows
        watch(learned[0], min((trial.log_loss for trial in results), default=np.inf))

    def attempt(point: Point) -> Trial:
        values = {key: axis[place] for (key, axis), place in zip(grid.items(), point, strict=True)}
        changed = with_values(config, values)
        return Trial(changed, values, progressive_log_loss(changed, batches, count), point == search.start)

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        while len(results) < trials and (points := search.proposals()[: trials - len(results)]):
            # All of a round before the next: what is tried must not depend on which thread is the quicker.
            found = list(pool.map(attempt, points))
            results += found
            search.tell(points, [trial.log_loss for trial in found])
    return sorted(results, key=lambda trial: trial.log_loss)


def progressive_log_loss(config: Config, batches: Sequence[Batch], count: Callable[[int], None] = lambda rows: None) -> float:
    """The log loss of a new model over a stream, each row predicted before it is learned (of the whole stream, if it samples)."""
    model = new_model(config, batches[0])
    position, loss, weight = 0, 0.0, 0.0
    for batch in batches:
        kept, predicted, weights = learn_rows(model, batch, position)
        position += len(batch)
        if len(kept):
            assert kept.clicks is not None
            safe = np.clip(np.where(kept.clicks > 0, predicted, 1.0 - predicted), CLIP, 1.0)
            loss -= float(weights @ np.log(safe))
            weight += float(weights.sum())
        count(len(batch))
    return loss / weight


def grid_of(config: Config) -> Grid:
    """What to try for a configuration: its kind's grid, with the configuration's own values on it."""
    if config.kind not in GRIDS:
        raise InputError(f"there is nothing to tune in a {config.kind!r} model; these can be tuned: {', '.join(GRIDS)}")
    grid = dict(GRIDS[config.kind])
    half_life = "training.half_life"
    if half_life in grid:
        own = config.training.half_life
        in_rows = config.schema.time is None if own is None else parse_duration(own, "half_life").in_rows
        grid[half_life] = HALF_LIVES_IN_ROWS if in_rows else HALF_LIVES
    if config.model.get("linear") is False:
        grid.pop("model.prior.linear", None)
    return {key: _with_value(key, axis, current_value(config, key)) for key, axis in grid.items()}


def current_value(config: Config, key: str) -> Any:
    """The value of a key such as "model.prior.dense" in a configuration, its default if it is not given."""
    table, *names = key.split(".")
    value: Any = config.training if table == "training" else config.build().spec
    for name in names:
        value = getattr(value, name)
    return value


def with_values(config: Config, values: dict[str, Any]) -> Config:
    """The configuration with other values of some keys; None removes a key."""
    tables = to_tables(config)
    for key, value in values.items():
        *parents, last = key.split(".")
        table = tables
        for name in parents:
            table[name] = dict(table.get(name, {}))
            table = table[name]
        table[last] = value
        if value is None:
            del table[last]
    tables["training"] = {key: value for key, value in tables["training"].items() if value is not None}
    return check_config(tables)


def _with_value(key: str, axis: Sequence[Any], value: Any) -> list[Any]:
    """The axis with the value in its place."""
    if value in axis:
        return list(axis)
    if key == "training.half_life":
        return sorted([*axis, value], key=lambda text: -np.inf if text is None else -parse_duration(text, key).amount)
    return sorted([*axis, value])


def _place(config: Config, grid: Grid) -> Point:
    return tuple(list(axis).index(current_value(config, key)) for key, axis in grid.items())


class _Search:
    """What to try next: the neighbours of the best point along one axis, then along the next one; when no neighbour is left, points
    at random that differ from the best by a step on a few axes."""

    def __init__(self, sizes: Sequence[int], start: Point) -> None:
        self.start = self._best = start
        self._sizes = sizes
        self._least = np.inf
        self._tried: set[Point] = set()
        self._axis = 0
        self._rng = np.random.default_rng(0)

    def proposals(self) -> list[Point]:
        """Up to two points that were not tried, with the start before the first two; none when the grid is exhausted."""
        if not self._tried:
            return [self.start, *self._neighbours(0)]
        for _ in self._sizes:
            points = self._neighbours(self._axis)
            if points:
                return points
            self._axis = (self._axis + 1) % len(self._sizes)
        return self._nearby()

    def tell(self, points: Sequence[Point], losses: Sequence[float]) -> None:
        """How the proposals did."""
        self._tried.update(points)
        improved = False
        for point, loss in zip(points, losses, strict=True):
            if loss < self._least:
                improved = point != self.start
                self._best, self._least = point, loss
        if not improved:
            self._axis = (self._axis + 1) % len(self._sizes)

    def _neighbours(self, axis: int) -> list[Point]:
        points = []
        for step in (1, -1):
            place = self._best[axis] + step
            point = (*self._best[:axis], place, *self._best[axis + 1 :])
            if 0 <= place < self._sizes[axis] and point not in self._tried:
                points.append(point)
        return points

    def _nearby(self) -> list[Point]:
        reach = 1
        while reach < max(self._sizes):
            around = [range(max(0, b - reach), min(n, b + reach + 1)) for b, n in zip(self._best, self._sizes, strict=True)]
            points = [point for point in product(*around) if point not in self._tried]
            if points:
                chosen = self._rng.permutation(len(points))[:AT_A_TIME]
                return [points[place] for place in chosen]
            reach += 1
        return []


def results_table(results: Sequence[Trial]) -> Table:
    """All trials, the best first, with the values they had."""
    keys = list(results[0].values)
    names = [key.removeprefix("model.").removeprefix("training.") for key in keys]
    table = plain_table(f"{results[0].config.kind}: progressive log loss of {len(results)} settings", "log loss", ["gain", *names])
    given = next((trial.log_loss for trial in results if trial.given), results[0].log_loss)
    best = results[0]
    for trial in results:
        gain = "as given" if trial.given else f"{given - trial.log_loss:+.5f}"
        cells = ["–" if trial.values[key] is None else str(trial.values[key]) for key in keys]
        table.add_row(f"{trial.log_loss:.5f}", gain, *cells, style="bold" if trial is best else None)
    return table
