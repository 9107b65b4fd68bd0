"""Choose priors, half-life and dim by progressive log loss.

This needs no validation set. A model that predicts each row before it learns it is tested on every row with unseen data, and by the
chain rule the sum of these log losses is -log p(clicks | settings): the evidence, by which Bayesians compare models. A setting with
too wide a prior pays while it is uncertain, one with too narrow a prior while it is wrong.

A long stream rewards a wider prior than its beginning does: tune on as many rows as you can afford.

The search walks through a small grid (`grids.GRIDS`) one key at a time: it tries the neighbours of the best value so far, continues
in a direction that helps, and spends the remaining trials on random points nearby. It is deterministic. Two threads learn two
settings at a time, from one copy of the rows in memory.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from rich.table import Table

from pbodl.data.batch import Batch
from pbodl.data.log.log_reader import open_log
from pbodl.data.schema import nearest
from pbodl.errors import InputError
from pbodl.training.config import Config
from pbodl.training.display import bar, plain_table
from pbodl.training.run import learn_rows, new_model
from pbodl.training.stream_metrics import CLIP
from pbodl.training.tuning.grid_search import AT_A_TIME, GridSearch, Point
from pbodl.training.tuning.grids import Grid, current_value, grid_of, with_values

BATCH_ROWS = 16384  # between two updates of the progress bar


class Trial(NamedTuple):
    """A configuration, its values on the grid, and its log loss."""

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
    """Try up to `trials` settings on labelled batches, `config` itself first; returns the results, best first.

    `watch` gets the rows learned by all trials so far and the best log loss. With `keys`, only these keys vary.
    """
    grid = grid_of(config)
    for key in keys or ():
        if key not in grid:
            raise InputError(f"{key!r} cannot be tuned{nearest(key, grid)}; keys to tune: {', '.join(grid)}")
    grid = {key: axis for key, axis in grid.items() if keys is None or key in keys}
    search = GridSearch([len(axis) for axis in grid.values()], _start(config, grid))
    results: list[Trial] = []
    learned: list[int] = []
    one_at_a_time = Lock()

    def count(rows: int) -> None:
        with one_at_a_time:
            learned.append(rows)
            watch(sum(learned), min((trial.log_loss for trial in results), default=np.inf))

    def attempt(point: Point) -> Trial:
        values = {key: axis[index] for (key, axis), index in zip(grid.items(), point, strict=True)}
        changed = config if point == search.start else with_values(config, values)
        return Trial(changed, values, progressive_log_loss(changed, batches, count), point == search.start)

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        while len(results) < trials and (points := search.proposals()[: trials - len(results)]):
            # Finish a round before the next: the order of trials must not depend on which thread is faster.
            found = list(pool.map(attempt, points))
            results += found
            search.tell(points, [trial.log_loss for trial in found])
    return sorted(results, key=lambda trial: trial.log_loss)


def progressive_log_loss(config: Config, batches: Sequence[Batch], count: Callable[[int], None] = lambda rows: None) -> float:
    """The log loss of a new model that predicts each row before it learns it; with sampling, that of the whole stream."""
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


def _start(config: Config, grid: Grid) -> Point:
    return tuple(list(axis).index(current_value(config, key)) for key, axis in grid.items())


def results_table(results: Sequence[Trial]) -> Table:
    """All trials with their values, best first."""
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
