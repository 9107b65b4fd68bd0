"""The clock of a model, which half-lives and times to live refer to: event time in seconds, or rows learned."""

import re
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from pbodl.data.batch import Batch
from pbodl.data.schema import Schema
from pbodl.errors import InputError

SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
THOUSANDS = {"": 1.0, "k": 1e3, "M": 1e6}
FORMS = "'7d', '12h', '30m', '90s', '2w', or '500k rows', '1M rows'"


class Duration(NamedTuple):
    """A span of time in seconds, or of rows."""

    amount: float
    in_rows: bool


class Clocked(Protocol):
    """A model with a clock: where it stands, and how many rows brought it there."""

    clock: float
    rows_learned: int


def has_started(model: Clocked) -> bool:
    """Whether the clock runs: the model has learned something, or at least predicted in its turn."""
    return model.rows_learned > 0 or model.clock != 0.0


def parse_duration(text: str, what: str) -> Duration:
    """A span of time or of rows from its text.

    >>> parse_duration("7d", "half_life"), parse_duration("500k rows", "half_life")
    (Duration(amount=604800.0, in_rows=False), Duration(amount=500000.0, in_rows=True))
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(?:([smhdw])|([kM]?)\s*rows?)\s*", str(text))
    if match is None or float(match[1]) <= 0:
        raise InputError(f"{what} is {text!r}; it must be a span of time or rows, such as {FORMS}")
    if match[2]:
        return Duration(float(match[1]) * SECONDS[match[2]], False)
    return Duration(float(match[1]) * THOUSANDS[match[3]], True)


def clock_of(schema: Schema, half_life: str | None, time_to_live: str | None) -> tuple[bool, float, float | None]:
    """Whether the clock counts rows; the half-life (0: none) and the time to live (None: none) in its units."""
    given = {"half_life": half_life, "time_to_live": time_to_live}
    spans = {what: parse_duration(text, what) for what, text in given.items() if text is not None}
    in_rows = {span.in_rows for span in spans.values()}
    if len(in_rows) > 1:
        raise InputError(f"half_life {half_life!r} and time_to_live {time_to_live!r} must both be given in time, or both in rows")
    if in_rows == {False} and schema.time is None:
        raise InputError(
            f"{' and '.join(spans)} in time needs the schema's time column; name it with time='...', or give rows: '1M rows'"
        )
    counts_rows = in_rows == {True} or schema.time is None
    half = spans["half_life"].amount if "half_life" in spans else 0.0
    return counts_rows, half, spans["time_to_live"].amount if "time_to_live" in spans else None


def clock_of_samples(model: Clocked, batch: Batch, counts_rows: bool) -> NDArray[np.float64]:
    """The model's clock at each sample; it starts with the first sample ever learned, and never goes back.

    A clock of rows stands still for samples that count as none: predictions, and later stages of an impression.
    """
    times = model.rows_learned + np.cumsum(batch.counted, dtype=np.float64) if counts_rows else batch.times
    return np.maximum.accumulate(np.maximum(times, model.clock) if has_started(model) else times)


def clock_of_first(batch: Batch, clock: NDArray[np.float64]) -> float:
    """The clock at the first sample that counts, if there is one: before it, nothing is forgotten."""
    return float(clock[np.argmax(batch.counted)] if batch.counted.any() else clock[-1])
