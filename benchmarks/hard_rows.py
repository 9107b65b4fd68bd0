"""`python -m benchmarks.hard_rows`: rows with weights, long lists and wide tables, which models must survive.

    python -m benchmarks.hard_rows --seeds 101 102 --page docs/lab/hard-rows.md

Weights: a log of five columns, whose rows weigh what the world's name says. Lists: an ad, and a list of 50 or 300 of 5,000 values,
each with an effect, or of a length that is drawn anew for every row. Wide: 150 or 400 columns of 40 values, of which five matter.
Every row is predicted before it is learned. A figure is the (weighted) log loss of the last half of the rows minus that
of their base rate, and in brackets the largest |z| predicted in all rows.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import pbodl
from pbodl.models.contract import Model

Floats = NDArray[np.float64]
CHUNK = 1000
SIZES = {"user": 2000, "ad": 300, "site": 60, "hour": 24, "device": 8}
VALUES, ADS, LEVELS = 5000, 100, 40
MODELS: dict[str, type[Model]] = {
    "pair-fm": pbodl.PairFM, "fm-mlp": pbodl.FMMLP, "ffm-mlp": pbodl.FFMMLP, "sparse-mlp": pbodl.SparseMLP,
    "deep-probit": pbodl.DeepProbit, "adpredictor": pbodl.AdPredictor, "ftrl": pbodl.FTRLProximal, "matchbox": pbodl.MatchBox,
}  # fmt: skip
ALWAYS = ("pair-fm", "fm-mlp", "adpredictor", "ftrl", "matchbox")


class Log(NamedTuple):
    """A generated log."""

    schema: pbodl.Schema
    table: pa.Table
    clicks: NDArray[np.int64]
    weights: Floats
    truth: Floats  # the probability of a click


def _log(fields: list[pbodl.Field], columns: dict, latent: Floats, draw: np.random.Generator, weigh: Callable | None = None) -> Log:
    truth = np.array([NormalDist().cdf(z) for z in latent])
    clicks = (draw.random(len(latent)) < truth).astype(np.int64)
    weights = np.ones(len(latent)) if weigh is None else weigh(clicks, draw)
    columns |= {"click": clicks} | ({"weight": weights} if weigh else {})
    schema = pbodl.Schema(label="click", weight="weight" if weigh else None, fields=fields)
    return Log(schema, pa.table(columns), clicks, weights, truth)


def weighted(rows: int, seed: int, weigh: Callable) -> Log:
    """Five columns, of which users and ads meet; `weigh(clicks, draw)` gives the weights."""
    draw = np.random.default_rng([seed, 1])
    at = {name: (size * draw.random(rows) ** 2).astype(np.int64) for name, size in SIZES.items()}
    latent = np.full(rows, -1.05)
    for name, size in SIZES.items():
        latent += 0.22 * draw.normal(size=size)[at[name]]
    taste, appeal = draw.normal(size=(SIZES["user"], 4)), draw.normal(size=(SIZES["ad"], 4))
    latent += 0.15 * (taste[at["user"]] * appeal[at["ad"]]).sum(axis=1)
    groups = {"user": "user", "ad": "ad"}
    fields = [pbodl.Field(name, group=groups.get(name, "context")) for name in SIZES]
    return _log(fields, at, latent, draw, weigh)


def lists(rows: int, seed: int, length: int, spread: bool = False) -> Log:
    """An ad, and a list of values that all have an effect."""
    draw = np.random.default_rng([seed, 2])
    lengths = draw.integers(1, 2 * length, size=rows) if spread else np.full(rows, length)
    values = draw.integers(VALUES, size=int(lengths.sum()))
    ends = np.concatenate([[0], np.cumsum(lengths)])
    ad, effect = draw.integers(ADS, size=rows), 0.5 * draw.normal(size=VALUES)
    latent = -0.62 + np.add.reduceat(effect[values], ends[:-1]) / length**0.5 + 0.35 * draw.normal(size=ADS)[ad]
    of_lists = pa.ListArray.from_arrays(pa.array(ends.astype(np.int32)), pa.array(values))
    fields = [pbodl.Field("history", group="user", kind="multi"), pbodl.Field("ad", group="ad")]
    return _log(fields, {"history": of_lists, "ad": ad}, latent, draw)


def wide(rows: int, seed: int, columns: int) -> Log:
    """Columns of LEVELS values, five of them with effects."""
    draw = np.random.default_rng([seed, 3])
    values = draw.integers(LEVELS, size=(rows, columns))
    latent = np.full(rows, -0.85)
    for column in draw.choice(columns, 5, replace=False):
        latent += 0.25 * draw.normal(size=LEVELS)[values[:, column]]
    names = [f"c{i}" for i in range(columns)]
    groups = ("user", "ad", "context")
    fields = [pbodl.Field(name, group=groups[i % 3]) for i, name in enumerate(names)]
    return _log(fields, {name: values[:, i] for i, name in enumerate(names)}, latent, draw)


def of_clicks(clicks: NDArray[np.int64], draw: np.random.Generator) -> Floats:
    """Ten for a click, one for another row."""
    return np.where(clicks > 0, 10.0, 1.0)


def log_normal(clicks: NDArray[np.int64], draw: np.random.Generator) -> Floats:
    """Of mean 7, up to 1,000."""
    return np.minimum(np.exp(1.97 * draw.normal(size=len(clicks))), 1000.0)


def always(weight: float) -> Callable:
    return lambda clicks, draw: np.full(len(clicks), weight)


# The rows of a world, and how it is made; the most that a model may lose to the base rate.
WORLDS: dict[str, tuple[int, Callable[[int, int], Log], float]] = {
    "weight 1": (120_000, lambda rows, seed: weighted(rows, seed, always(1.0)), 0.01),
    "weight 5": (120_000, lambda rows, seed: weighted(rows, seed, always(5.0)), 0.1),
    "weight 20": (120_000, lambda rows, seed: weighted(rows, seed, always(20.0)), 0.2),
    "weights to 1000": (120_000, lambda rows, seed: weighted(rows, seed, log_normal), 0.1),
    "clicks weigh 10": (120_000, lambda rows, seed: weighted(rows, seed, of_clicks), 0.2),
    "list of 50": (20_000, lambda rows, seed: lists(rows, seed, 50), 0.003),
    "list of 300": (20_000, lambda rows, seed: lists(rows, seed, 300), 0.003),
    "list of 300, longer": (60_000, lambda rows, seed: lists(rows, seed, 300), 0.003),
    "list of 1 to 99": (20_000, lambda rows, seed: lists(rows, seed, 50, spread=True), 0.003),
    "list of 1 to 7": (60_000, lambda rows, seed: lists(rows, seed, 4, spread=True), 0.003),
    "150 columns": (40_000, lambda rows, seed: wide(rows, seed, 150), 0.003),
    "400 columns": (40_000, lambda rows, seed: wide(rows, seed, 400), 0.003),
}


class Outcome(NamedTuple):
    """What a model made of a log: losses of the last half (and the worst 20,000 rows) minus that of the base rate."""

    loss: float
    base: float
    optimum: float
    worst: float
    farthest: float  # |z|


def loss_of(p: Floats, clicks: NDArray[np.int64], weights: Floats) -> float:
    p = np.clip(p, 1e-300, 1.0)
    losses = -np.where(clicks > 0, np.log(p), np.log(np.maximum(1.0 - p, 1e-17)))
    return float(np.average(losses, weights=weights))


def base_loss(clicks: NDArray[np.int64], weights: Floats) -> float:
    return loss_of(np.full(len(clicks), np.average(clicks, weights=weights)), clicks, weights)


def outcome(model: Model, log: Log) -> Outcome:
    rows, p, farthest = len(log.clicks), [], 0.0
    for start in range(0, rows, CHUNK):
        part = log.table.slice(start, CHUNK)
        farthest = max(farthest, float(np.abs(model.predict(part).mean).max()))
        p.append(model.learn(part))
    ctr = np.concatenate(p)
    half, spans = slice(rows // 2, rows), [slice(at, at + 20_000) for at in range(0, max(rows - 19_999, 1), 5000)]
    excess = [loss_of(ctr[s], log.clicks[s], log.weights[s]) - base_loss(log.clicks[s], log.weights[s]) for s in spans]
    clicks, weights = log.clicks[half], log.weights[half]
    return Outcome(
        loss_of(ctr[half], clicks, weights), base_loss(clicks, weights), loss_of(log.truth[half], clicks, weights),
        max(excess), farthest,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[101])
    parser.add_argument("--worlds", nargs="+", choices=WORLDS, default=list(WORLDS))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(ALWAYS))
    parser.add_argument("--share", type=float, default=1.0, help="share of the rows of every world")
    parser.add_argument("--page", type=Path, help="write the table here, too")
    options = parser.parse_args()
    lines = ["| rows | base rate | optimum | " + " | ".join(options.models) + " |", "|---|---|---|" + "---|" * len(options.models)]
    for name in options.worlds:
        rows, make, _ = WORLDS[name]
        for seed in options.seeds:
            log, cells = make(int(rows * options.share), seed), []
            for kind in options.models:
                found = outcome(MODELS[kind](log.schema), log)
                cells.append(f"{found.loss:.3f} ({found.loss - found.base:+.3f}, {found.worst:+.3f}, {found.farthest:.3g})")
            lines.append(f"| {name}, seed {seed} | {found.base:.3f} | {found.optimum:.3f} | " + " | ".join(cells) + " |")
            print(lines[-1], flush=True)
    if options.page:
        options.page.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
