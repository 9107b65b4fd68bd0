"""Choose priors, half-life, dim and the edges of numbers by progressive log loss.

This needs no validation set. A model that predicts each row before it learns it is tested on every row with unseen data, and by the
chain rule the sum of these log losses is -log p(clicks | settings): the evidence, by which Bayesians compare models. A setting with
too wide a prior pays while it is uncertain, one with too narrow a prior while it is wrong.

A long stream rewards a wider prior than its beginning does: tune on as many rows as you can afford.

The search walks through a small grid (`grids.GRIDS`) one key at a time: it tries the neighbours of the best value so far, continues
in a direction that helps, and spends the remaining trials on random points nearby. It is deterministic. Two threads learn two
settings at a time, from one copy of the rows in memory.

The best of many is partly luck. So the command reports on rows behind those that it chose by (`verdict`).
"""

from collections.abc import Callable, Sequence
from itertools import islice
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from rich.table import Table

from pbodl.data.batch import Batch
from pbodl.data.log.log_reader import open_log
from pbodl.data.schema import Schema, nearest
from pbodl.errors import InputError
from pbodl.training.config import Config
from pbodl.training.display import bar, plain_table
from pbodl.training.stream_metrics import CLIP
from pbodl.training.tuning.cross_trials import CROSS, crosses_beyond, try_crosses
from pbodl.training.tuning.effects import useful
from pbodl.training.tuning.grid_search import GridSearch, Point
from pbodl.training.tuning.grids import Grid, current_value, grid_of, with_values
from pbodl.training.tuning.number_trials import NUMBERS, Read, numbers_of, try_numbers
from pbodl.training.tuning.verdict import Side, Verdict, judge, progressive

BATCH_ROWS = 16384  # between two updates of the progress bar
LossOf = Callable[[Config, Sequence[Batch]], float]
REPORT = 4  # rows of a log to choose by, for one row of the report


class Trial(NamedTuple):
    """A configuration, its values on the grid, and its log loss."""

    config: Config
    values: dict[str, Any]
    log_loss: float
    given: bool  # the configuration to start from
    changed: dict[str, Any]  # values that differ from the given ones


class Tuned(NamedTuple):
    """All trials, best first, and how the best compares on rows that none of them saw."""

    trials: list[Trial]
    verdict: Verdict | None  # None if the given setting is the best, or no rows are left


def tune_log(
    config: Config, paths: Sequence[str], rows: int = 200_000, trials: int = 12, crosses: int = 0, numbers: int = 0
) -> Tuned:
    """`tune` on the first `rows` of a log, and the report on a quarter as many after them, with a progress bar.

    A log that is shorter is split in the same way: its last fifth is for the report. Up to `numbers` more trials give the numbers
    fewer edges or more, and then up to `crosses` add a cross of two fields each to the best setting.
    """
    if rows < 1 or trials < 1:
        raise InputError(f"rows is {rows} and trials is {trials}; both must be at least 1")
    batches = read_first(config, paths, rows + rows // REPORT)
    read = sum(len(batch) for batch in batches)
    chosen_by = min(rows, read - read // (REPORT + 1))
    seen, unseen = split_at(batches, chosen_by)
    numbers = numbers if numbers_of(config.schema) else 0
    total = (trials + numbers + crosses) * chosen_by + 2 * read

    def read_for(schema: Schema) -> list[Batch]:
        return seen if schema == config.schema else read_first(config._replace(schema=schema), paths, chosen_by)

    with bar() as progress:
        task = progress.add_task(f"tune {config.kind}", total=total, text="")

        def watch(done: int, best: Trial | None) -> None:
            progress.update(task, completed=done, text=f"{chosen_by:,} rows, {trials} trials  {so_far(best)}")

        results = tune(config, seen, trials, watch)
        done, lock = len(results) * chosen_by, Lock()

        def count(more: int) -> None:
            nonlocal done
            with lock:
                done += more
                progress.update(task, completed=done, text=f"{step}  {so_far(results[0])}")

        def loss_of(changed: Config, rows: Sequence[Batch]) -> float:
            return progressive_log_loss(changed, rows, count)

        step = "edges of numbers"
        results = with_numbers(results, read_for, numbers, loss_of)
        made_for = results[0].config.schema
        best_seen, best_unseen = seen, unseen
        if made_for != config.schema:
            again = read_first(config._replace(schema=made_for), paths, read)
            best_seen, best_unseen = split_at(again, chosen_by)
        step = "crosses of fields"
        results = with_crosses(results, best_seen, crosses, loss_of)
        step = f"report on {read - chosen_by:,} rows"
        given = next(trial.config for trial in results if trial.given)
        sides = Side(given, config.schema, seen, unseen), Side(results[0].config, made_for, best_seen, best_unseen)
        verdict = judge(*sides, count)
        progress.update(task, completed=total)
    return Tuned(results, verdict)


def with_numbers(results: list[Trial], read: Read, most: int, loss_of: LossOf) -> list[Trial]:
    """The trials, and those of the best one with other edges for its numbers; best first."""
    best = results[0]
    tried = try_numbers(best.config, best.log_loss, read, most, loss_of)
    if not tried:
        return results
    before = [trial._replace(values=trial.values | {NUMBERS: "as given"}) for trial in results]
    more = []
    for config, parts, loss in tried:
        value = {NUMBERS: f"curve of {parts}"}
        more.append(Trial(config, best.values | value, loss, False, best.changed | value))
    return sorted([*before, *more], key=lambda trial: (trial.log_loss, not trial.given))


def with_crosses(results: list[Trial], batches: Sequence[Batch], most: int, loss_of: LossOf) -> list[Trial]:
    """The trials, and those of the best one with crosses of fields; best first."""
    best, given = results[0], results[0].config.schema
    tried = try_crosses(best.config, best.log_loss, batches, most, loss_of) if most else []
    if not tried:
        return results
    more = [
        Trial(
            config,
            best.values | {CROSS: crosses_beyond(config, given)},
            loss,
            False,
            best.changed | {CROSS: crosses_beyond(config, given)},
        )
        for config, _, loss in tried
    ]
    before = [trial._replace(values=trial.values | {CROSS: None}) for trial in results]
    return sorted([*before, *more], key=lambda trial: (trial.log_loss, not trial.given))


def so_far(best: Trial | None) -> str:
    """The best trial so far, in a few words for a progress bar."""
    if best is None:
        return ""
    changed = ", ".join(f"{short(key)} {shown(value)}" for key, value in best.changed.items()) or "as given"
    return f"best log loss {best.log_loss:.5f} ({changed})"


def read_first(config: Config, paths: Sequence[str], rows: int) -> list[Batch]:
    """The first rows of a log, in batches."""
    batches: list[Batch] = []
    with open_log(paths, config.schema, batch_rows=min(BATCH_ROWS, rows)) as reader:
        for chunk in islice(reader, -(-rows // min(BATCH_ROWS, rows))):
            batches.append(chunk.batch.rows(0, rows - sum(len(batch) for batch in batches)))
    return batches


def split_at(batches: Sequence[Batch], rows: int) -> tuple[list[Batch], list[Batch]]:
    """The batches up to a row, and those from it on."""
    parts: tuple[list[Batch], list[Batch]] = [], []
    for batch in batches:
        cut = min(max(rows, 0), len(batch))
        for part, piece in zip(parts, (batch.rows(0, cut), batch.rows(cut, len(batch))), strict=True):
            if len(piece):
                part.append(piece)
        rows -= cut
    return parts


def tune(
    config: Config,
    batches: Sequence[Batch],
    trials: int = 12,
    watch: Callable[[int, Trial | None], None] = lambda rows, best: None,
    keys: Sequence[str] | None = None,
) -> list[Trial]:
    """Try up to `trials` settings on labelled batches, `config` itself first; returns the results, best first.

    `watch` gets the rows learned by all trials so far and the best trial. With `keys`, only these keys vary. Keys and values that
    cannot matter on these rows are left out (`effects`).
    """
    grid = grid_of(config)
    for key in keys or ():
        if key not in grid:
            raise InputError(f"{key!r} cannot be tuned{nearest(key, grid)}; keys to tune: {', '.join(grid)}")
    grid = useful(config, {key: axis for key, axis in grid.items() if keys is None or key in keys}, batches)
    search = GridSearch([len(axis) for axis in grid.values()], _start(config, grid))
    start = _values(grid, search.start)
    results: dict[Point, Trial] = {}
    learned: list[int] = []
    one_at_a_time = Lock()

    def count(rows: int) -> None:
        with one_at_a_time:
            learned.append(rows)
            watch(sum(learned), min(results.values(), key=_loss, default=None))

    def attempt(point: Point) -> float:
        values = _values(grid, point)
        changes = {key: value for key, value in values.items() if value != start[key]}
        changed = config if point == search.start else with_values(config, values)
        trial = Trial(changed, values, progressive_log_loss(changed, batches, count), point == search.start, changes)
        with one_at_a_time:
            results[point] = trial
        return trial.log_loss

    search.run(trials, attempt)
    return sorted((results[point] for point in sorted(results)), key=lambda trial: (trial.log_loss, not trial.given))


def progressive_log_loss(config: Config, batches: Sequence[Batch], count: Callable[[int], None] = lambda rows: None) -> float:
    """The log loss of a new model that predicts each row before it learns it; with sampling, that of the whole stream."""
    loss, weight = 0.0, 0.0
    for clicks, predicted, weights in progressive(config, batches, count):
        safe = np.clip(np.where(clicks > 0, predicted, 1.0 - predicted), CLIP, 1.0)
        loss -= float(weights @ np.log(safe))
        weight += float(weights.sum())
    return loss / weight


def _start(config: Config, grid: Grid) -> Point:
    return tuple(list(axis).index(current_value(config, key)) for key, axis in grid.items())


def _values(grid: Grid, point: Point) -> dict[str, Any]:
    return {key: axis[index] for (key, axis), index in zip(grid.items(), point, strict=True)}


def _loss(trial: Trial) -> float:
    return trial.log_loss


def short(key: str) -> str:
    """A key without its table."""
    return key.removeprefix("model.").removeprefix("training.").removeprefix("schema.")


def shown(value: Any) -> str:
    """A value of a key; a dash for none."""
    return "–" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)


def results_table(results: Sequence[Trial]) -> Table:
    """All trials with their values, best first."""
    keys = list(results[0].values)
    names = [short(key) for key in keys]
    table = plain_table(f"{results[0].config.kind}: progressive log loss of {len(results)} settings", "log loss", ["gain", *names])
    given = next((trial.log_loss for trial in results if trial.given), results[0].log_loss)
    best = results[0]
    for trial in results:
        gain = "as given" if trial.given else f"{given - trial.log_loss:+.5f}"
        cells = [shown(trial.values[key]) for key in keys]
        table.add_row(f"{trial.log_loss:.5f}", gain, *cells, style="bold" if trial is best else None)
    return table
