"""One training session: a log, a run folder, a progress bar, and signals that end it cleanly."""

import contextlib
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from pbodl.data.readers import LogReader, Position, open_log
from pbodl.errors import InputError
from pbodl.models.snapshot import snapshots
from pbodl.training.config import Config
from pbodl.training.display import TrainingBar
from pbodl.training.online import Chunk, Run, Status
from pbodl.training.report import write_report


class Interrupted(Exception):
    """A signal ended the session after it had saved; `code` is what the shell expects."""

    def __init__(self, signal_number: int) -> None:
        self.code = 128 + signal_number


def train(
    config: Config, paths: Sequence[str], out: str | Path, *, resume: bool = False, bad_rows: str = "stop", bad_rows_file: str | None = None
) -> dict[str, Any]:
    """Train into the folder `out`; returns the figures. Raises `Interrupted` after SIGINT or SIGTERM, with all that was learned saved."""
    run = None
    if resume:
        if not snapshots(out):
            raise InputError(f"{out} holds no run to resume; leave --resume out to start one")
        run = Run.resume(config, out)
    start = Position(**run.position) if run is not None and run.position is not None else None
    began = time.monotonic()
    with open_log(paths, config.schema, bad_rows=bad_rows, bad_rows_file=bad_rows_file, start=start) as reader:
        chunks = (Chunk(chunk.batch, chunk.position._asdict()) for chunk in reader)
        if run is None:
            first = next(chunks)
            run = Run.start(config, out, first.batch)
            chunks = _again(first, chunks)
        before = run.rows
        with _signals() as received, TrainingBar(config.kind, reader.rows_total) as bar:
            stopped = run.learn(chunks, lambda status: _watch(status, reader, bar, before, began) or bool(received))
        seconds = time.monotonic() - began
        summary = run.summary()
        summary |= {"seconds": seconds, "rows_per_second": (run.rows - before) / max(seconds, 1e-9)}
        summary |= {"bad_rows": reader.bad_rows, "out_of_order": reader.out_of_order, "negative_rate": run.model.negative_rate}
    write_report(run.folder, config, summary, run.tracker)
    if stopped:
        raise Interrupted(received[0])
    return summary


def _again(first: Chunk, rest: Iterator[Chunk]) -> Iterator[Chunk]:
    yield first
    yield from rest


def _watch(status: Status, reader: LogReader, bar: TrainingBar, before: int, began: float) -> bool:
    bar.show(status, status.rows, (status.rows - before) / max(time.monotonic() - began, 1e-9))
    return False


@contextlib.contextmanager
def _signals() -> Iterator[list[int]]:
    """The signals received meanwhile, instead of what they would do."""
    received: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        received.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
