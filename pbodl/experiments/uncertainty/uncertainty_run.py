"""One pass over a log that asks whether the model's uncertainty is honest: every chunk is predicted before it is learned.

Figures count from the tenth of the log on that `WARM` names. Some chunks are kept with what was predicted for them, and predicted
again at the end of the log: the martingale check (`honesty`).
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pbodl.data.batch import Batch
from pbodl.data.log.log_reader import Chunk, LogReader, open_log
from pbodl.data.schema import Schema, nearest
from pbodl.errors import InputError
from pbodl.experiments.outcomes import write_json
from pbodl.experiments.uncertainty.honesty import FREQUENCIES, Occurrences, coverage, latent, reliability
from pbodl.experiments.uncertainty.uncertainty_report import write_uncertainty
from pbodl.models.contract import Model, Prediction
from pbodl.models.recalibration import recalibrated_latent
from pbodl.training.config import Config
from pbodl.training.martingale import martingale
from pbodl.training.stream_metrics import judged

CHUNK = 8192  # rows
WARM = 0.1  # share of the log whose predictions do not count
KEPT = (0.25, 0.5, 0.75)  # shares of the log after which a chunk is kept
TRUTH = "p_true"


class Predicted(NamedTuple):
    """What is remembered of a chunk: one value per row."""

    ctr: NDArray[np.float64]
    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]
    clicks: NDArray[np.float32]
    seen: NDArray[np.int64]  # how often the value of the field came before
    truth: NDArray[np.float64]  # true probabilities; empty without


class KeptRows(NamedTuple):
    """A chunk to predict again at the end."""

    rows: int  # learned before it
    batch: Batch
    predicted: Prediction


def uncertainty(
    config: Config,
    paths: Any,
    out: Path,
    *,
    by: str | None = None,
    truth: str | None = None,
    progress: Callable[[float], None] = lambda share: None,
) -> dict[str, Any]:
    """Measure, and write uncertainty.md, uncertainty.json and report.html; returns the content of uncertainty.json."""
    model, field = config.build(), _field(config.schema, by)
    parts: list[Predicted] = []
    kept: list[KeptRows] = []
    before = Occurrences()
    reader, column = _opened(paths, config.schema, truth)
    with reader:
        for chunk in reader:
            share = _share(reader, model.rows_learned + len(chunk.batch))
            predicted = model.predict(chunk.batch)
            if len(kept) < len(KEPT) and share >= KEPT[len(kept)]:
                kept.append(KeptRows(model.rows_learned, chunk.batch, predicted))
            remembered = _remember(model, chunk, predicted, before.before(_keys(chunk.batch, field)), column)
            if share > WARM:
                parts.append(remembered)
            model.learn(chunk.batch)
            progress(share)
    rows = Predicted(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
    result = {
        "model": model.kind, "rows": model.rows_learned, "judged": len(rows.ctr), "field": config.schema.fields[field].name,
        "truth": column, "figures": _figures(rows), "martingale": [_check(model, each) for each in kept],
        "reliability": reliability(rows.ctr, rows.clicks),
    }  # fmt: skip
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "uncertainty.json", result)
    write_uncertainty(out, result)
    return result


def _field(schema: Schema, by: str | None) -> int:
    """The field whose values tell new rows from known ones: the first of the ads', unless one is named."""
    names = [field.name for field in schema.fields]
    if by is None:
        return next((index for index, field in enumerate(schema.fields) if field.group == "ad"), 0)
    if by not in names:
        raise InputError(f"--by names an unknown field {by!r}{nearest(by, names)}; fields are: {', '.join(names)}")
    return names.index(by)


def _opened(paths: Any, schema: Schema, asked: str | None) -> tuple[LogReader, str | None]:
    """The log, and the column with the true click probabilities: the one asked for, or `p_true` where the log has it."""
    try:
        return open_log(paths, schema, batch_rows=CHUNK, columns=[asked or TRUTH]), asked or TRUTH
    except InputError:
        if asked is not None:
            raise
        return open_log(paths, schema, batch_rows=CHUNK), None


def _share(reader: LogReader, rows: int) -> float:
    """How much of the log has been read: by rows where their number is known, else by bytes."""
    total = reader.rows_total
    return rows / total if total else reader.bytes_read / max(reader.bytes_total, 1)


def _keys(batch: Batch, field: int) -> NDArray[np.uint64]:
    """The key of each row's first value of a field; 0 where it has none."""
    keys = np.zeros(len(batch), np.uint64)
    entries = np.flatnonzero(batch.fields == field)[::-1]  # the first one wins
    keys[np.searchsorted(batch.indptr, entries, side="right") - 1] = batch.keys[entries]
    return keys


def _remember(model: Model, chunk: Chunk, predicted: Prediction, seen: NDArray[np.int64], column: str | None) -> Predicted:
    mean, deviation = recalibrated_latent(model, predicted)
    assert chunk.batch.clicks is not None
    truth = np.zeros(0) if column is None else _probabilities(chunk, column)
    return Predicted(predicted.ctr, mean, deviation, chunk.batch.clicks, seen, truth)


def _probabilities(chunk: Chunk, column: str) -> NDArray[np.float64]:
    """The true probabilities of a chunk's rows."""
    try:
        values = chunk.table.column(column).cast(pa.float64()).to_numpy()
    except pa.ArrowException as error:
        raise InputError(f"the column {column!r} should hold true click probabilities, but: {error}") from error
    wrong = np.flatnonzero(~((values >= 0.0) & (values <= 1.0)))
    if len(wrong):
        raise InputError(f"the column {column!r} should hold true click probabilities, from 0 to 1, but one is {values[wrong[0]]}")
    return values


def _figures(rows: Predicted) -> list[dict[str, Any]]:
    """One line for all rows, and one for each range of frequencies."""
    groups: list[tuple[str, NDArray[np.bool_]]] = [("all", np.ones(len(rows.ctr), bool))]
    groups += [(name, (rows.seen >= least) & (rows.seen < most)) for least, most, name in FREQUENCIES]
    truth = latent(rows.truth) if len(rows.truth) else rows.truth
    return [{"rows of": name, **_line(rows, some, truth)} for name, some in groups if some.any()]


def _line(rows: Predicted, some: NDArray[np.bool_], truth: NDArray[np.float64]) -> dict[str, Any]:
    ctr, clicks = rows.ctr[some], rows.clicks[some]
    line = {
        "rows": int(some.sum()), "clicked": float(clicks.mean()), "predicted": float(ctr.mean()),
        "log_loss": float(judged(ctr, clicks, np.ones(len(ctr))).loss.mean()),
        "deviation": float(np.sqrt(np.mean(rows.deviation[some] ** 2))),
    }  # fmt: skip
    return line | (coverage(rows.mean[some], rows.deviation[some], truth[some]) if len(truth) else {})


def _check(model: Model, kept: KeptRows) -> dict[str, Any]:
    later = model.predict(kept.batch)
    before = kept.predicted
    return {"from": kept.rows, "to": model.rows_learned, **martingale(before.mean, before.variance, later.mean, later.variance)}


def world_log(seed: int, rows: int, out: Path, progress: Callable[[int], None]) -> Sequence[str]:
    """Write a synthetic world's log into the folder, unless it is there; returns its path."""
    from pbodl.data.synthetic import World

    path = out / f"world-{seed}-{rows}.parquet"
    if not path.exists():
        out.mkdir(parents=True, exist_ok=True)
        World(seed=seed, rows=rows).write(path, progress)
    return [str(path)]
