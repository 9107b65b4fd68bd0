"""One training session: a log, a run folder, a progress bar, and signals that end it cleanly."""

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pbodl.data.log.log_reader import Chunk, LogPosition, LogReader, open_log
from pbodl.data.log.log_sources import find_sources
from pbodl.data.table.memory import keep_freed
from pbodl.errors import InputError
from pbodl.models.contract import Model
from pbodl.models.snapshot import naming_snapshot, snapshots
from pbodl.system.atomic_files import write_file
from pbodl.system.folder_lock import writing
from pbodl.system.stop_signals import stop_signals
from pbodl.training.config import Config, to_toml
from pbodl.training.display import TrainingBar
from pbodl.training.inspect.feature_names import NameStore, kept_names
from pbodl.training.report.training_report import write_report
from pbodl.training.run import LogLearner, Run, Status

SMALL = 8_000_000  # bytes of a log that is read in small chunks
FEW_ROWS = 4096


class Interrupted(Exception):
    """A signal ended the session after it had saved; `code` is the exit code for the shell."""

    def __init__(self, signal_number: int) -> None:
        self.code = 128 + signal_number


def train(
    config: Config,
    paths: Sequence[str],
    out: str | Path,
    *,
    resume: bool = False,
    bad_rows: str = "stop",
    bad_rows_file: str | None = None,
    keep_names: bool = False,
    prepare: Callable[[Model], None] = lambda model: None,
    engine: Callable[[Run], contextlib.AbstractContextManager[LogLearner | None]] = lambda run: contextlib.nullcontext(),
) -> dict[str, Any]:
    """Train into the folder `out`; returns the figures. After SIGINT or SIGTERM it saves what it learned and raises `Interrupted`.

    With `keep_names` the run stores readable feature names beside their hashes; a resumed run keeps collecting names. `prepare`
    gets the model before it learns, and may set how it learns. `engine` provides a learner that replaces the model.
    """
    keep_freed()
    with writing(out, "pbodl train"), naming_snapshot(out, "continue with --resume"):
        return _train(config, paths, Path(out), resume, bad_rows, bad_rows_file, keep_names, prepare, engine)


def _train(
    config: Config,
    paths: Sequence[str],
    out: Path,
    resume: bool,
    bad_rows: str,
    bad_rows_file: str | None,
    keep_names: bool,
    prepare: Callable[[Model], None],
    engine: Callable[[Run], contextlib.AbstractContextManager[LogLearner | None]],
) -> dict[str, Any]:
    run = None
    if resume:
        if not snapshots(out):
            raise InputError(f"{out} holds no run to resume; leave --resume out to start one")
        run = Run.resume(config, out)
    elif snapshots(out):  # before opening the log, which would empty that run's file of bad rows
        raise InputError(f"{out} already holds a run; continue it with --resume, or choose another --out")
    start = LogPosition(**run.position) if run is not None and run.position is not None else None
    began = time.monotonic()
    options: dict[str, Any] = {"bad_rows": bad_rows, "bad_rows_file": bad_rows_file, "start": start}
    if sum(source.size for source in find_sources(paths)) < SMALL:
        options["batch_rows"] = FEW_ROWS  # several chunks, so that there is a snapshot before the last one
    with open_log(paths, config.schema, **options) as reader:
        names = kept_names(out, config.schema) if resume else None
        if names is None and keep_names:
            names = NameStore(config.schema)
        chunks: Iterator[Chunk] = reader
        if run is None:
            first = next(chunks, None)
            if first is None:
                raise InputError(f"the log has no good rows; {reader.bad_rows:,} were bad")
            run = Run.start(config, out, first.batch)
            write_file(run.folder / "config.toml", to_toml(config).encode())
            chunks = itertools.chain([first], chunks)
        run.names = names
        prepare(run.model)
        before, own = run.rows, {}
        with engine(run) as run.learner, stop_signals() as stop, TrainingBar(config.kind, reader.rows_total) as bar:
            if run.learner is not None:
                own["start_seconds"], began = time.monotonic() - began, time.monotonic()
            try:
                stopped = run.learn(
                    chunks, lambda status: _watch(status, reader, bar, before, began) or bool(stop), _Halfway(reader, resume)
                )
            except InputError as error:
                if not snapshots(out):
                    raise
                raise InputError(f"{error}. The {run.rows:,} rows before it are saved in {out}: continue with --resume") from error
            seconds = time.monotonic() - began
            if run.learner is not None:
                own |= run.learner.summary()
        summary = run.summary()
        summary |= {**own, "seconds": seconds, "rows_per_second": (run.rows - before) / max(seconds, 1e-9)}
        summary |= {"bad_rows": reader.bad_rows, "out_of_order": reader.out_of_order, "negative_rate": run.model.negative_rate}
        summary["files"] = [source.name for source in reader.sources]
    write_report(run.folder, config, summary, run.tracker)
    if stopped and stop.number is not None:
        raise Interrupted(stop.number)
    return summary


class _Halfway:
    """True once, when half of the log is learned: so that `pbodl rollback` has a snapshot to return to after any run.

    A log so small that it was read at once says nothing about its number of rows: then it is true whenever the rows have doubled.
    """

    def __init__(self, reader: LogReader, resumed: bool) -> None:
        self._reader, self._next = reader, 0
        self._passed = resumed and reader.bytes_read >= reader.bytes_total / 2

    def __call__(self, rows: int) -> bool:
        total = self._reader.rows_total
        if self._passed or total is None:
            return False
        if rows >= total:
            doubled, self._next = rows >= self._next, max(self._next, 2 * rows)
            return doubled
        self._passed = rows >= total / 2
        return self._passed


def _watch(status: Status, reader: LogReader, bar: TrainingBar, before: int, began: float) -> bool:
    bar.show(status, reader.rows_total, (status.rows - before) / max(time.monotonic() - began, 1e-9))
    return False
