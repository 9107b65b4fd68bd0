"""A stream whose posterior is known in closed form, so that an event that was lost, or counted twice, shows in the weights.

Every impression has one feature, its own. The model is linear and has no bias: its one weight is a Gaussian N(0, v), and the single
update by a probit likelihood is textbook (Graepel et al., 2010). A non-click has 1 - F Φ, with F the share of the clicks that has come
when it is judged. Messages of different impressions concern different weights, so
their product is exact, however they are merged and whoever sent them.
"""

import math
from pathlib import Path
from statistics import NormalDist
from typing import Any

import msgspec
import numpy as np

import pbodl
from pbodl.data.hashing import hash_value
from pbodl.data.schema import Field, Schema
from pbodl.streaming.same_run import StreamOptions
from pbodl.training.config import Config, check_config

HORIZON, MOST = 300.0, 0.995  # seconds at which every impression is judged, once; the share of the clicks that has come by then
JUDGED_ONCE = StreamOptions("5m", "5m", ages="5m")
SCHEMA = Schema(label="click", time="time", fields=[Field("visit", group="ad")])
PRIOR = 0.25


def exact_config(**training: Any) -> Config:
    model = {"kind": "sparse-mlp", "dim": 1, "hidden": [], "linear": False, "initial_spread": 0.0, "adapt_prior": False}
    model |= {"prior": {"embedding": PRIOR, "dense": 1e-8, "bias": 1e-8}}  # the bias of the output stays where it is, at 0
    return check_config({"schema": msgspec.to_builtins(SCHEMA), "model": model, "training": {"merge": "add"} | training})


def visits(first: int, count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Impressions number `first` and on, a second apart, in the order of time, every third or so with a click within minutes."""
    draws = np.random.default_rng((seed, first))
    events: list[dict[str, Any]] = []
    for number in range(first, first + count):
        events.append({"event": "impression", "id": f"i{number}", "time": float(number), "visit": f"v{number}"})
        if draws.random() < 0.3:
            events.append({"event": "click", "id": f"i{number}", "time": number + float(draws.uniform(0, 200))})
    return sorted(events, key=lambda event: event["time"])


def closing(events: list[dict[str, Any]], count: int = 80) -> list[dict[str, Any]]:
    """Clicks of nobody, by which the last impressions pass the age at which they are judged, in every partition."""
    last = max(event["time"] for event in events) + HORIZON + 1.0
    return [{"event": "click", "id": f"i{10**9 + number}", "time": last} for number in range(count)]


def posterior(clicked: bool) -> tuple[float, float]:
    """Mean and variance of a weight after its one impression."""
    normal, sign = NormalDist(), 1.0 if clicked else -1.0
    total, share = 1.0 + PRIOR, 1.0 if clicked else MOST
    v = share * normal.pdf(0.0) / (1.0 - share * normal.cdf(0.0) if share < 1.0 else normal.cdf(0.0))
    return sign * PRIOR / math.sqrt(total) * v, PRIOR * (1.0 - PRIOR / total * v * v)


def expected_ctr(clicked: bool) -> float:
    """The probability of a click after the one impression."""
    mean, variance = posterior(clicked)
    return NormalDist().cdf(mean / math.sqrt(1.0 + variance))


def clicked_ones(events: list[dict[str, Any]]) -> set[str]:
    """The numbers of the impressions with a click."""
    return {event["id"][1:] for event in events if event["event"] == "click"}


def check_posterior(run: Path, events: list[dict[str, Any]], whole: bool = True) -> None:
    """Every impression, and nothing else, is in the weights of a run, once; if not `whole`, some may be missing yet."""
    model = pbodl.load(run)
    clicked = clicked_ones(events)
    shown = [event["id"][1:] for event in events if event["event"] == "impression"]
    keys = np.array([hash_value("visit", f"v{number}") for number in shown], np.uint64)
    at = model.table.find(keys)
    at[at >= 0] = np.where(model.table.count[at[at >= 0]] > 0, at[at >= 0], -1)  # what was only predicted has its prior
    lost = [number for number, row in zip(shown, at, strict=True) if row < 0]
    assert not lost or not whole, f"{len(lost)} impressions were lost, among them {lost[:5]}"
    shown, at = [number for number, row in zip(shown, at, strict=True) if row >= 0], at[at >= 0]
    assert (model.table.count > 0).sum() == len(shown)
    ref = np.array([posterior(number in clicked) for number in shown]).reshape(-1, 2)
    comp = np.column_stack([model.table.column("mean")[at, 0], model.table.column("variance")[at, 0]])
    wrong = ~np.isclose(comp, ref, rtol=2e-4).all(axis=1)
    assert not wrong.any(), f"{wrong.sum()} weights are wrong, such as {comp[wrong][:3]}, which should be {ref[wrong][:3]}"
    added = (1.0 / comp[:, 1] - 1.0 / PRIOR).sum()
    np.testing.assert_allclose(added, (1.0 / ref[:, 1] - 1.0 / PRIOR).sum(), rtol=1e-5)
    assert (model.table.count[at] == 1).all()
