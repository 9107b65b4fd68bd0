"""Small streams for the tests: a schema, events of it, and the state of a model as bytes to compare."""

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from pbodl.data.schema import Field, Schema
from pbodl.models.contract import Model
from pbodl.streaming.events import EventDecoder, Events
from pbodl.training.config import Config, check_config

SCHEMA = Schema(
    label="click", time="time", fields=[Field("user", group="user"), Field("ad", group="ad"), Field("hour", derive="hour_of_day")]
)


def config(**training: Any) -> Config:
    tables = {"schema": msgspec.to_builtins(SCHEMA), "model": {"kind": "fm-mlp", "dim": 4, "hidden": [8]}, "training": training}
    return check_config(tables)


def impression(name: Any, time: float, **fields: Any) -> dict[str, Any]:
    return {"event": "impression", "id": name, "time": time, "user": "u", "ad": "a", **fields}


def click(name: Any, time: float) -> dict[str, Any]:
    return {"event": "click", "id": name, "time": time}


def traffic(rows: int, seed: int = 0, ctr: float = 0.2, delay: float = 300.0, step: float = 1.0) -> list[dict[str, Any]]:
    """Impressions every `step` seconds and their clicks, after exponential delays, in the order of their times."""
    draws = np.random.default_rng(seed)
    events: list[tuple[float, int, dict[str, Any]]] = []
    for number in range(rows):
        user, ad, now = int(draws.integers(40)), int(draws.integers(15)), number * step
        events.append((now, 2 * number, impression(f"i{number}", now, user=user, ad=ad)))
        if draws.random() < min(ctr * (0.3 + 0.1 * ad), 1.0):
            later = now + draws.exponential(delay)
            events.append((later, 2 * number + 1, click(f"i{number}", later)))
    return [event for _, _, event in sorted(events, key=lambda entry: entry[:2])]


def decoded(events: list[dict[str, Any]], schema: Schema = SCHEMA) -> Events:
    return EventDecoder(schema).decode([msgspec.msgpack.encode(events)])


def pieces(events: list[dict[str, Any]], sizes: list[int]) -> Iterator[list[dict[str, Any]]]:
    """The events cut into pieces of these sizes, over and over."""
    start = turn = 0
    while start < len(events):
        yield events[start : start + sizes[turn % len(sizes)]]
        start += sizes[turn % len(sizes)]
        turn += 1


def fingerprint(model: Model) -> dict[str, bytes]:
    """All that a model has learned, bit by bit."""
    return {name: np.ascontiguousarray(array).tobytes() for name, array in model.state().items()}
