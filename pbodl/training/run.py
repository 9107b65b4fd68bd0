"""The training loop (predict, then learn, one pass in time order), its snapshots, and how a run resumes.

A snapshot holds the model, the position in the log and the figures at one moment. So a run that was killed and resumed ends with
the same bits as one that never stopped.
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from pbodl.data.batch import Batch
from pbodl.data.log.chunks import Chunk
from pbodl.data.sampling import auto_rate, check_rate, kept_rows, selected
from pbodl.errors import InputError
from pbodl.models.contract import Model
from pbodl.models.snapshot import load_snapshot, save
from pbodl.system.atomic_files import write_file
from pbodl.system.setbacks import Setbacks
from pbodl.system.tensors import Arrays
from pbodl.training.config import Config
from pbodl.training.inspect.feature_names import NameStore
from pbodl.training.stream_metrics import Figures
from pbodl.training.tracker import Tracker


class Status(NamedTuple):
    """The progress of a run; `watch` gets it after every chunk and at the end."""

    rows: int
    figures: Figures  # until the end they lack the last chunk, which is counted while the next one is learned


class LogLearner(Protocol):
    """Something that learns for a run instead of its model, such as a cluster."""

    def learn(self, batch: Batch) -> NDArray[np.float64]:
        """As `Model.learn`, with NaN for rows whose prediction was lost."""

    def save(self, run: Path, facts: Mapping[str, Any], parts: Mapping[str, Arrays]) -> Path:
        """Write a snapshot of everything learned so far, as `models.snapshot.save` does."""

    def summary(self) -> dict[str, Any]:
        """Additional figures of the learner, and the counters of its model."""


class Run:
    """A model in training, and its folder.

    `Run.start` creates a run, `Run.resume` continues from the newest snapshot, and `learn` learns the chunks of a log.
    """

    def __init__(self, config: Config, folder: Path, model: Model, tracker: Tracker) -> None:
        self.config, self.folder, self.model, self.tracker = config, folder, model, tracker
        self.names: NameStore | None = None  # if given, saved with every snapshot
        self.learner: LogLearner | None = None  # learns instead of the model
        self.setbacks = Setbacks()
        self.rows = 0
        self.position: Mapping[str, Any] | None = None
        self._saved_rows = self._fitted_rows = -1

    @classmethod
    def start(cls, config: Config, folder: str | Path, first: Batch) -> "Run":
        """A new run; an automatic rate of negatives is computed from `first`, some rows of the log."""
        model = new_model(config, first)
        Path(folder).mkdir(parents=True, exist_ok=True)
        return cls(config, Path(folder), model, Tracker(config.schema, config.training.period(config.schema)))

    @classmethod
    def resume(cls, config: Config, folder: str | Path) -> "Run":
        """The run of a folder, restored from its newest intact snapshot."""
        snapshot = load_snapshot(folder)
        model, facts = config.prepare(snapshot.model), snapshot.facts
        if "tracker" not in facts:
            raise InputError(f"{folder} holds a model that `pbodl train` did not write; there is no run to resume")
        rate = model.negative_rate if config.training.negative_rate == "auto" else float(config.training.negative_rate)
        spec = config.build(rate).spec
        if type(spec) is type(model.spec) and "fm_variance" in spec.__struct_fields__ and "fm_variance" not in config.model:
            # What a configuration leaves open stays as it was chosen when the run began, perhaps by an earlier release.
            spec = msgspec.structs.replace(spec, fm_variance=model.spec.fm_variance)
        if (model.schema, model.kind, model.spec) != (config.schema, config.kind, spec):
            raise InputError(f"{folder} was trained with another schema or model; resume it with the configuration it began with")
        period = config.training.period(config.schema)
        if facts["period"] != list(period):
            raise InputError(f"{folder} was trained with another `every`; resume it with the one it began with")
        tracker = Tracker(config.schema, period)
        tracker.load_state(facts["tracker"], snapshot.parts["metrics"])
        run = cls(config, Path(folder), model, tracker)
        run.rows = run._saved_rows = facts["rows"]
        run.position, run._fitted_rows = facts["position"], facts["fitted_rows"]
        return run

    def learn(
        self,
        chunks: Iterable[Chunk],
        watch: Callable[[Status], bool] = lambda status: False,
        due: Callable[[int], bool] = lambda rows: False,
    ) -> bool:
        """Learn all chunks, or until `watch` returns True; save regularly, whenever `due(rows)` says so, and at the end.

        Returns whether `watch` stopped it. If a chunk cannot be read, the run saves what it learned before and raises the error; if
        a chunk cannot be learned, it saves nothing, because the model may hold a part of the chunk.
        """
        saved_at = time.monotonic()
        whole = True
        counted: Future[Figures] | None = None  # of the last chunk
        with ThreadPoolExecutor(1, "pbodl-figures") as counting:
            try:
                for chunk in chunks:
                    whole = False
                    if self.names is not None:
                        self.names.add(chunk.table)
                    before, counted = counted, counting.submit(self._count, *self._learn(chunk.batch))
                    status = Status(self.rows, (before or counted).result())
                    self.position, whole = chunk.position._asdict(), True
                    if watch(status):
                        return True
                    if due(self.rows) or time.monotonic() - saved_at > self.config.training.snapshot_every:
                        counted.result()
                        self.save()
                        saved_at = time.monotonic()
                if counted is not None:
                    watch(Status(self.rows, counted.result()))
                self._fit()
                return False
            finally:
                if whole and self.rows != self._saved_rows and self.position is not None:
                    if counted is not None:
                        counted.result()
                    self.save()

    def _learn(self, batch: Batch) -> tuple[Batch, NDArray[np.float64], NDArray[np.float64]]:
        learn = self.model.learn if self.learner is None else self.learner.learn
        learned = learn_rows(self.model, batch, self.rows, learn)
        self.rows += len(batch)
        return learned

    def _count(self, kept: Batch, predicted: NDArray[np.float64], weights: NDArray[np.float64]) -> Figures:
        """Count learned rows; this runs in a thread beside the learning, which does not always use every core."""
        known = ~np.isnan(predicted)
        if not known.all():
            kept, predicted, weights = selected(kept, known), predicted[known], weights[known]
        if len(kept):
            self.tracker.add(kept, predicted, weights)
        return self.tracker.overall()

    def _fit(self) -> None:
        """Fit a batch model, which only collects rows while it learns, at the end of the log."""
        if hasattr(self.model, "fit") and self.model.rows_learned and self.rows != self._fitted_rows:
            self.model.fit()
            self._fitted_rows = self.rows
            self._saved_rows = -1

    def save(self) -> Path:
        """Write metrics.jsonl and a snapshot of this moment."""
        if self.names is not None:
            with self.setbacks.tolerating("writing the names"):
                self.names.save(self.folder)  # before the snapshot: every learned feature has its name then, if disks do not fail
        # Also before the snapshot: after a kill in between, the same rows come again and write the same lines.
        lines = [json.dumps({"kind": "point", **point}) for point in self.tracker.curve()]
        lines += [json.dumps({"kind": "period", **period}) for period in self.tracker.summary()["days"]]
        write_file(self.folder / "metrics.jsonl", "".join(f"{line}\n" for line in lines).encode())
        tracker, arrays = self.tracker.state()
        period = list(self.config.training.period(self.config.schema))
        facts = {"rows": self.rows, "position": self.position, "period": period, "tracker": tracker}
        facts["fitted_rows"] = self._fitted_rows
        if self.learner is not None:
            path = self.learner.save(self.folder, facts, {"metrics": arrays})
        else:
            path = save(self.model, self.folder, facts, {"metrics": arrays})
        self._saved_rows = self.rows
        return path

    def summary(self) -> dict[str, Any]:
        """The figures so far, and the model's counters."""
        return {"model": self.config.kind, **self.tracker.summary(), "rows": self.rows, "counters": self.model.metrics()}


def new_model(config: Config, first: Batch) -> Model:
    """The model of a configuration; an automatic rate of negatives is computed from `first`, some rows of the log."""
    rate = config.training.negative_rate
    if rate == "auto":
        assert first.clicks is not None
        rate = auto_rate(float(first.clicks.mean()))
    return config.build(check_rate(float(rate)))


def learn_rows(
    model: Model, batch: Batch, position: int, learn: Callable[[Batch], NDArray[np.float64]] | None = None
) -> tuple[Batch, NDArray[np.float64], NDArray[np.float64]]:
    """Learn a batch that starts at `position` of the stream, with `model.learn` or a replacement for it.

    Returns the learned rows, the prediction made for each before learning, and the number of stream rows that each represents.
    """
    assert batch.clicks is not None
    rate, sets, seed = model.negative_rate, model.negatives, getattr(model.spec, "seed", 0)
    chosen = kept_rows(batch.clicks, position, seed, rate, sets.sets)
    kept = selected(batch, chosen)
    if not len(kept):
        return kept, np.zeros(0), np.zeros(0)
    assert kept.clicks is not None
    if sets.sets > 1:
        positions = (position + np.flatnonzero(chosen)).astype(np.uint64)
        kept = kept._replace(weights=kept.weights * sets.powers(kept.clicks, positions, seed, rate))
    assert kept.clicks is not None
    return kept, (learn or model.learn)(kept), stands_for(kept.clicks, sets.share(rate))


def stands_for(clicks: NDArray[np.float32], rate: float) -> NDArray[np.float64]:
    """The number of rows of the whole stream that each kept row represents."""
    return np.where(clicks > 0, 1.0, 1.0 / rate)
