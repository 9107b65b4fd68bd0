"""`pbodl compare`: one pass over a user's log with every contestant, on the same rows.

All rows but the last part are learned, each predicted before it is learned; the last part is predicted with the models frozen. Days
and times play no role in the split, so any log will do. Differences to the first model come with 95 % intervals, by a paired
bootstrap. With trials, the settings of each contestant are chosen on the first rows alone, all with as many trials.
"""

import functools
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from pbodl.data.batch import Batch
from pbodl.data.log.log_reader import open_log
from pbodl.data.schema import Schema
from pbodl.errors import InputError
from pbodl.experiments.compare.contestants import Contestant, Entry, entries_for
from pbodl.training.config import Config
from pbodl.training.display import bar
from pbodl.training.paired import difference, losses, plain_difference, resampled
from pbodl.training.tuning.grid_search import GridSearch, Point
from pbodl.training.tuning.tune import read_first, so_far, split_at, tune

CHUNK = 16384  # rows between two updates of the progress bar
LEAST_ROWS = 10
DRAWS = 1000
POINTS = 40  # of a curve
HELD_OUT = 5  # a batch model is tuned by one of these parts of the rows, the last


class CompareSettings(NamedTuple):
    """The options of a comparison."""

    rows: int | None = None  # from the start of the log; None takes all
    last: float = 0.1  # share of the rows that are predicted with the models frozen
    trials: int = 0  # settings to try for each model; 0 takes the defaults
    tune_rows: int = 200_000


class Predictions(NamedTuple):
    """What one contestant predicted."""

    progressive: NDArray[np.float32] | None  # None for a batch model
    frozen: NDArray[np.float32]
    rows_per_second: float


def compare(config: Config, paths: Sequence[str], settings: CompareSettings, models: Sequence[str] | None = None) -> dict[str, Any]:
    """The figures of all contestants, as plain data."""
    entries, refused = entries_for(config, models)
    absent = {entry.slug: entry for entry in entries if entry.absent() is not None}
    entries = [entry for entry in entries if entry.slug not in absent]
    if not entries:
        installs = sorted({entry.install for entry in absent.values()})
        raise InputError(f"none of the models to compare is installed; to add them: {'; '.join(installs)}")
    with bar() as progress:
        task = progress.add_task("counting the rows", total=None, text="")
        clicks = _clicks(paths, config.schema, settings.rows)
        progress.remove_task(task)
        learned = _learned_rows(len(clicks), settings.last)
        lines: list[dict[str, Any]] = []
        runs: list[Predictions] = []
        for entry in entries:
            chosen, values = _tuned(entry, config, paths, learned, settings, progress)
            task = progress.add_task(entry.name, total=len(clicks), text="")
            show = functools.partial(_show, progress, task)
            runs.append(_run(chosen, values, paths, config.schema, clicks, learned, show))
            progress.stop_task(task)
            lines.append({"name": entry.name, "model": entry.slug, "settings": _shown(chosen, values), **_library(entry)})
    _add_figures(lines, runs, clicks, learned)
    return {
        "provenance": {
            "version": version("pbodl"), "data": list(paths), **settings._asdict(), "rows": len(clicks), "learned": learned,
        },
        "reference": lines[0]["name"],
        "models": lines,
        "refused": refused,
        "missing": [{"name": entry.name, "install": entry.install} for entry in absent.values()],
    }  # fmt: skip


def _show(progress: Any, task: Any, rows: int, text: str) -> None:
    progress.update(task, completed=rows, text=text)


def _clicks(paths: Sequence[str], schema: Schema, most: int | None) -> NDArray[np.uint8]:
    """The labels of the log; one field is read for them."""
    narrow = msgspec.structs.replace(schema, fields=tuple(field for field in schema.fields if not field.cross)[:1])
    parts = [np.asarray(batch.clicks, np.uint8) for batch in _read(paths, narrow, most)]
    return np.concatenate([np.zeros(0, np.uint8), *parts])


def _read(paths: Sequence[str], schema: Schema, most: int | None) -> Iterator[Batch]:
    """The first rows of the log, in batches."""
    left = most
    with open_log(paths, schema, batch_rows=CHUNK) as reader:
        for chunk in reader:
            batch = chunk.batch if left is None else chunk.batch.rows(0, left)
            yield batch
            if left is not None and (left := left - len(batch)) <= 0:
                return


def _learned_rows(rows: int, last: float) -> int:
    if rows < LEAST_ROWS:
        raise InputError(f"the log has {rows} row(s); a comparison needs at least {LEAST_ROWS}")
    return rows - max(round(rows * last), 1)


def _run(
    entry: Entry, values: dict[str, Any], paths: Sequence[str], schema: Schema, clicks: NDArray[np.uint8], learned: int,
    progress: Callable[[int, str], None],
) -> Predictions:  # fmt: skip
    """One pass: learn the first rows, then predict the others."""
    contestant = entry.build(schema, values)
    before: list[NDArray[np.float64]] = []
    frozen: list[NDArray[np.float64]] = []
    seconds, done, loss = 0.0, 0, 0.0
    for batch in _read(paths, contestant.schema, len(clicks)):
        cut = min(max(learned - done, 0), len(batch))
        if cut:
            first = batch.rows(0, cut)
            if entry.config is not None and not done:
                entry.build(schema).learn(first.rows(0, 64))  # compiles
            began = time.perf_counter()
            known = contestant.learn(first)
            seconds += time.perf_counter() - began
            if known is not None:
                before.append(known)
                loss += float(losses(known, clicks[done : done + cut]).sum())
        if cut < len(batch):
            if not frozen:
                seconds += _finish(contestant)
            frozen.append(contestant.predict(batch.rows(cut, len(batch))))
        done += len(batch)
        progress(done, f"log loss {loss / min(done, learned):.4f}" if before else "")
    if done != len(clicks):
        raise InputError(f"the log changed while it was compared: it had {len(clicks):,} rows, and now it has {done:,}")
    return Predictions(_single(before) if before else None, _single(frozen), learned / max(seconds, 1e-9))


def _finish(contestant: Contestant) -> float:
    began = time.perf_counter()
    contestant.finish()
    return time.perf_counter() - began


def _single(parts: Sequence[NDArray[np.float64]]) -> NDArray[np.float32]:
    return np.concatenate(parts).astype(np.float32)


def _tuned(
    entry: Entry, config: Config, paths: Sequence[str], learned: int, settings: CompareSettings, progress: Any
) -> tuple[Entry, dict[str, Any]]:
    """The entry with the settings that its trials chose; without trials, its defaults."""
    if not settings.trials:
        return entry, entry.start
    rows = min(settings.tune_rows, learned)
    schema = config.schema if entry.config is not None else entry.build(config.schema).schema
    batches = read_first(config._replace(schema=schema), paths, rows)
    task = progress.add_task(f"tune {entry.name}", total=settings.trials * rows, text="")
    try:
        if entry.config is not None:
            trials = tune(
                entry.config, batches, settings.trials,
                lambda done, best: progress.update(task, completed=done, text=so_far(best)),
            )  # fmt: skip
            return msgspec.structs.replace(entry, config=trials[0].config), {}
        search = GridSearch(
            [len(axis) for axis in entry.grid.values()],
            tuple(list(axis).index(entry.start[key]) for key, axis in entry.grid.items()),
        )
        found: dict[Point, float] = {}

        def loss(point: Point) -> float:
            found[point] = _loss(entry, config.schema, _values(entry, point), batches)
            progress.update(task, completed=len(found) * rows, text=f"best log loss {min(found.values()):.5f}")
            return found[point]

        search.run(settings.trials, loss, threads=1)
        return entry, _values(entry, min(found, key=found.__getitem__))
    finally:
        progress.remove_task(task)


def _values(entry: Entry, point: Point) -> dict[str, Any]:
    return {key: axis[index] for (key, axis), index in zip(entry.grid.items(), point, strict=True)}


def _loss(entry: Entry, schema: Schema, values: dict[str, Any], batches: Sequence[Batch]) -> float:
    """The progressive log loss of other libraries; that of the last fifth of the rows for a batch model."""
    contestant = entry.build(schema, values)
    rows = sum(len(batch) for batch in batches)
    seen, unseen = split_at(batches, rows - rows // HELD_OUT)
    predicted = [contestant.learn(batch) for batch in seen]
    if predicted[0] is None:
        contestant.finish()
        judged, predicted = unseen, [contestant.predict(batch) for batch in unseen]
    else:
        judged, predicted = [*seen, *unseen], predicted + [contestant.learn(batch) for batch in unseen]
    clicks = [batch.clicks for batch in judged if batch.clicks is not None]
    return float(losses(_single([part for part in predicted if part is not None]), np.concatenate(clicks)).mean())


def _shown(entry: Entry, values: dict[str, Any]) -> dict[str, Any]:
    """The settings of a line: those that are not defaults."""
    if entry.config is None:
        return values
    half_life = entry.config.training.half_life
    return {**entry.config.model, **({} if half_life is None else {"half_life": half_life})}


def _library(entry: Entry) -> dict[str, str]:
    return {"library": f"{entry.package} {version(entry.package)}"} if entry.package else {}


def _add_figures(lines: list[dict[str, Any]], runs: Sequence[Predictions], clicks: NDArray[np.uint8], learned: int) -> None:
    """Add the figures of each model and of its differences to the first one."""
    online = [index for index, run in enumerate(runs) if run.progressive is not None]
    known = [run.progressive for run in runs if run.progressive is not None]
    parts = {
        "progressive": (online, known, clicks[:learned]),
        "frozen": (list(range(len(lines))), [run.frozen for run in runs], clicks[learned:]),
    }
    for line, run in zip(lines, runs, strict=True):
        line |= {"progressive": None, "frozen": None, "against": {"progressive": None, "frozen": None}}
        line |= {"rows_per_second": run.rows_per_second, "curve": _curve(run, clicks[:learned])}
    for part, (indices, predictions, labels) in parts.items():
        figures = resampled(predictions, labels, DRAWS)
        for place, (index, predicted) in enumerate(zip(indices, predictions, strict=True)):
            auc, loss = figures[0, place].tolist()
            level = float(predicted.mean(dtype=np.float64) / labels.mean()) if labels.any() else None
            lines[index][part] = {"auc": auc if np.isfinite(auc) else None, "log_loss": loss, "calibration": level}
            if index and indices[0] == 0:
                lines[index]["against"][part] = plain_difference(difference(figures, place, 0))


def _curve(run: Predictions, clicks: NDArray[np.uint8]) -> list[tuple[int, float]]:
    """The progressive log loss of equal parts of the log, at their last row."""
    if run.progressive is None:
        return []
    loss = losses(run.progressive, clicks)
    edges = np.linspace(0, len(loss), min(POINTS, len(loss)) + 1).astype(int)
    return [(int(stop), float(loss[start:stop].mean())) for start, stop in itertools.pairwise(edges)]
