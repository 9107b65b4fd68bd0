"""The trainer of `pbodl up`: PairFM, FTRL and AdPredictor learn from the same traffic, and the PairFM is published as it learns.

A snapshot holds all three, their figures and the position in the traffic at one moment. So a stopped trainer continues exactly
where it was.
"""

import functools
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from pbodl.baselines.adpredictor import AdPredictor
from pbodl.baselines.ftrl import FTRLProximal
from pbodl.data.convert import from_data
from pbodl.data.synthetic import World
from pbodl.errors import InputError
from pbodl.models.contract import Model
from pbodl.models.pair_fm import PairFM
from pbodl.models.snapshot import Snapshot, load_snapshot, naming_snapshot, save, snapshots
from pbodl.publishing.curves import Curves
from pbodl.publishing.publisher import Publisher
from pbodl.serving.models.follower import PUBLISHED
from pbodl.streaming.live_figures import LiveFigures
from pbodl.system.folder_lock import writing
from pbodl.system.setbacks import Setbacks
from pbodl.training.inspect.feature_names import NameStore, kept_names

SERVED = "PairFM"
BEST = "best"
DAY_ROWS = 150_000  # impressions per day of the world: new ads then appear every half minute at the usual rate
CHUNK = 1000
NAMES_EVERY = DAY_ROWS // 3  # rows
NAMING = "writing the names"
POINT_EVERY, SAVE_EVERY = 1.0, 60.0  # seconds


class Traffic(msgspec.Struct, frozen=True):
    """The world that generates the traffic; a run keeps the one it began with."""

    rows: int = 30_000_000
    seed: int = 0

    def world(self) -> World:
        return World(self.seed, max(2, -(-self.rows // DAY_ROWS)), self.rows)


class LiveLearner(NamedTuple):
    model: Model
    figures: LiveFigures


class LiveTraining:
    """Models that learn the same traffic side by side, continuing from the folder's newest snapshot.

    rows  number of rows of the traffic; None: as the run began, or the default
    """

    def __init__(self, folder: str | Path, rows: int | None = None) -> None:
        self.folder = Path(folder)
        snapshot = load_snapshot(folder) if snapshots(folder) else None
        self.traffic = _traffic(self.folder, snapshot, rows)
        self.world = self.traffic.world()
        schema = self.world.schema
        models: dict[str, Model] = {SERVED: PairFM(schema), "FTRL": FTRLProximal(schema), "AdPredictor": AdPredictor(schema)}
        self.learners = {name: LiveLearner(model, LiveFigures(schema)) for name, model in models.items()}
        self.best = LiveFigures(schema)
        self.names = kept_names(folder, schema) or NameStore(schema)
        self.rows = 0
        self.setbacks = Setbacks()
        self.stream_time: float | None = None
        self._seconds = dict.fromkeys(self.learners, 0.0)
        self._told_rows = 0
        self._newest: pa.RecordBatch | None = None
        self._unnamed: list[pa.RecordBatch] = []
        if snapshot is not None:
            self._resume(snapshot)

    def learn(self, records: pa.RecordBatch) -> None:
        """Learn impressions, predicting each first."""
        batch = from_data(self.world.schema, records, labelled=True)
        for name, (model, figures) in self.learners.items():
            began = time.perf_counter()
            predicted = model.learn(batch)
            self._seconds[name] += time.perf_counter() - began
            figures.add(batch, predicted)
        self.best.add(batch, records.column("p_true").to_numpy())
        self._unnamed.append(records)
        self.rows += len(batch)
        self.stream_time = float(batch.times[-1])
        self._newest = records.slice(len(records) - 1)

    def point(self, rows_per_second: float, lag: float) -> dict[str, Any]:
        """The figures of this moment, for the dashboard."""
        learned, self._told_rows = self.rows - self._told_rows, self.rows
        models = {}
        for name, (_, figures) in self.learners.items():
            models[name] = {**figures.figures(), "rows_per_second": round(learned / max(self._seconds[name], 1e-9))}
            self._seconds[name] = 0.0
        about: dict[str, Any] = {"time": round(time.time(), 3), "rows": self.rows, "stream_time": self.stream_time}
        about |= {"rows_per_second": round(rows_per_second), "lag": round(lag, 3), "models": models, BEST: self.best.figures()}
        return about if self._newest is None else about | {"example": self._newest.select(self._asked_for()).to_pylist()[0]}

    def _asked_for(self) -> list[str]:
        """The columns that a request contains."""
        schema = self.world.schema
        return [*schema.sources, str(schema.time)]

    def keep_names(self) -> None:
        """Store the names of the features seen since the last call."""
        if self._unnamed:
            self.names.add(pa.Table.from_batches(self._unnamed))
            self._unnamed = []

    def save(self) -> None:
        """Write a snapshot of everything."""
        self.keep_names()
        with self.setbacks.tolerating(NAMING):
            self.names.save(self.folder)
        parts = {_part(name): learner.model.state() for name, learner in self.learners.items() if name != SERVED}
        figures = {name: learner.figures for name, learner in self.learners.items()} | {BEST: self.best}
        parts |= {f"figures-{_part(name)}": own.state() for name, own in figures.items()}
        facts = {"rows": self.rows, "traffic": msgspec.to_builtins(self.traffic), "stream_time": self.stream_time}
        save(self.learners[SERVED].model, self.folder, facts, parts)

    def _resume(self, snapshot: Snapshot) -> None:
        for name, (model, figures) in self.learners.items():
            model.load_state(snapshot.model.state() if name == SERVED else snapshot.parts[_part(name)])
            figures.load_state(snapshot.parts[f"figures-{_part(name)}"])
        self.best.load_state(snapshot.parts[f"figures-{BEST}"])
        self.rows = self._told_rows = snapshot.facts["rows"]
        self.stream_time = snapshot.facts["stream_time"]


def _traffic(folder: Path, snapshot: Snapshot | None, rows: int | None) -> Traffic:
    """The requested traffic, or that of the run if it has begun."""
    if snapshot is None:
        return Traffic() if rows is None else Traffic(rows)
    if "traffic" not in snapshot.facts:
        raise InputError(f"{folder} holds a run of another command; choose another --out")
    begun = msgspec.convert(snapshot.facts["traffic"], Traffic)
    if rows not in (None, begun.rows):
        raise InputError(
            f"{folder} was begun with --rows {begun.rows}, not {rows}; omit --rows to continue, or choose another --out"
        )
    return begun


def train_live(folder: str | Path, rows: int | None, rate: float, stopped: Callable[[float], bool]) -> None:
    """Learn `rate` rows per second until the traffic ends or `stopped` returns True; publish, write figures and save on the way.

    rows     number of rows of the traffic, as for `LiveTraining`
    stopped  waits for the given seconds and returns whether to stop, early if so
    """
    with writing(folder, "pbodl up"), naming_snapshot(folder, "the next start continues from it"):
        training = LiveTraining(folder, rows)
        publisher = Publisher(training.learners[SERVED].model, training.folder / PUBLISHED)
        with closing(publisher):
            _learn(training, publisher, rate, stopped)


def _learn(training: LiveTraining, publisher: Publisher, rate: float, stopped: Callable[[float], bool]) -> None:
    publishing, showing, naming = (
        functools.partial(training.setbacks.tolerating, what) for what in ("publishing", "writing the curves", NAMING)
    )
    curves = Curves(training.folder)
    with showing():
        curves.rewind(training.rows)
    with publishing():
        publisher.publish()
    began, start = time.monotonic(), training.rows
    told_at, told_rows, saved_at = began, start, began
    for records in training.world.batches(CHUNK, start=start):
        training.learn(records)
        now = time.monotonic()
        ahead = (training.rows - start) / rate - (now - began)
        if now - told_at >= POINT_EVERY:
            training.keep_names()
            if training.rows // NAMES_EVERY > told_rows // NAMES_EVERY or told_rows == start:
                with naming():
                    training.names.save(training.folder)
            with showing():
                curves.append(training.point((training.rows - told_rows) / (now - told_at), max(0.0, -ahead)))
            told_at, told_rows = now, training.rows
        with publishing():
            publisher.publish_when_due()
        if now - saved_at >= SAVE_EVERY:
            training.save()
            saved_at = now
        if stopped(max(0.0, ahead)):
            break
    # Not after an error: some models may have learned a chunk that the others have not.
    training.save()
    with publishing():
        publisher.publish()


def _part(name: str) -> str:
    """A model's name as part of a file name."""
    return name.lower()
