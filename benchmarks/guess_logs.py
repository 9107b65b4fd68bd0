"""Logs of other shapes for `benchmarks.guesses`, and what they have in common. `guess_corpus` and `guess_held_out` hold the logs.

A log comes with the schema that a person would write who knows what its columns mean. Generated ones have a known truth: a user and
an ad have levels of their own, and tastes meet topics.
"""

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray

from pbodl.data.schema import Field, Schema

ROWS = 20_000
START = 1_735_689_600  # 2025-01-01
Rows = list[dict[str, Any]]


class TestLog(NamedTuple):
    """A log, and its schema by hand; `label` where a person must say which it is."""

    name: str
    source: str  # where it comes from
    write: Callable[[Path], Any]  # writes it into a folder, and returns what to read
    by_hand: Schema
    label: str | None = None
    options: dict[str, Any] = {}  # noqa: RUF012


class Traffic(NamedTuple):
    """Users meet ads: integers, and clicks by the truth."""

    user: NDArray[np.int64]
    ad: NDArray[np.int64]
    topic: NDArray[np.int64]  # of each ad
    taste: NDArray[np.int64]  # of each user
    hour: NDArray[np.int64]
    clicks: NDArray[np.int64]
    draws: np.random.Generator


def traffic(
    seed: int, ctr: float = 0.15, users: int = 400, ads: int = 120, topics: int = 6, rows: int = ROWS, **more: Any
) -> Traffic:
    """`more`: what else adds to the level, as functions of (draws, user, ad, hour)."""
    draws = np.random.default_rng(seed)
    user = np.minimum(draws.zipf(1.3, rows) - 1, draws.integers(0, users, rows))
    ad = np.minimum(draws.zipf(1.2, rows) - 1, draws.integers(0, ads, rows))
    topic, taste = draws.integers(0, topics, ads), draws.integers(0, topics, users)
    hour = np.arange(rows) * 72 // rows % 24
    level = np.log(ctr / (1 - ctr)) + draws.normal(0, 0.4, users)[user] + draws.normal(0, 0.5, ads)[ad]
    level += np.where(topic[ad] == taste[user], 1.2, -0.3) + 0.2 * np.sin(hour / 3.8)
    for add in more.values():
        level += add(draws, user, ad, hour)
    return Traffic(user, ad, topic, taste, hour, (draws.random(rows) < 1 / (1 + np.exp(-level))).astype(np.int64), draws)


def seconds(number: int, rows: int = ROWS, days: int = 3) -> int:
    return START + number * 86400 * days // rows


def rows_of(columns: dict[str, Sequence[Any]]) -> Rows:
    """Columns as rows of plain Python values."""
    lists = [values.tolist() if isinstance(values, np.ndarray) else list(values) for values in columns.values()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*lists, strict=True)]


def write_csv(path: Path, rows: Rows, delimiter: str = ",", header: bool = True) -> str:
    with path.open("w", newline="", encoding="utf-8") as file:
        lines = ([*rows[0]] if header else None, *(["" if v is None else v for v in row.values()] for row in rows))
        csv.writer(file, delimiter=delimiter).writerows([line for line in lines if line is not None])
    return str(path)


def write_jsonl(path: Path, rows: Rows) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def write_parquet(path: Path, rows: Rows) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    pa.parquet.write_table(pa.Table.from_pylist(rows), path)
    return str(path)


def user(name: str, **more: Any) -> Field:
    return Field(name, group="user", **more)


def ad(name: str, **more: Any) -> Field:
    return Field(name, group="ad", **more)


def curve(name: str, edges: Sequence[float], group: str = "context") -> Field:
    return Field(name, group=group, kind="number", transform="curve", edges=edges)


HOUR = Field("hour_of_day", derive="hour_of_day")
