"""What the buckets of numbers are worth: progressive log loss of the default model on logs with numbers whose optimum is known.

    python -m benchmarks.number_buckets --worlds 0,1,2 --seed 11 --variants r4,q16,q16+q4,c8,c16,c32

A variant names the fields that read each number: r4 has four log-spaced buckets to an octave, q16 has edges at the 16-quantiles of
the first 5,000 rows, c16 is a curve between these edges, `log` is the standardised logarithm; with + between
them, several fields read one column.
"""

import argparse
import time

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import pbodl
from pbodl.data.convert import from_data

ROWS, STEP, FIRST = 120_000, 20_000, 5000
KINDS = ("count", "lognormal", "normal", "uniform", "fraction", "count", "lognormal", "small")
ABOUT = ("thresholds and slopes", "smooth curves", "steps, and slopes that differ by ad", "curves of the logarithm")


def numbers_of(kind: str, rng: np.random.Generator) -> NDArray[np.float64]:
    """A column of numbers of some kind."""
    if kind == "count":
        return np.minimum(rng.pareto(0.8, ROWS).astype(int), 100_000).astype(float)
    if kind == "lognormal":
        return np.exp(rng.normal(3, 1, ROWS))
    if kind == "normal":
        return rng.normal(50, 12, ROWS)
    if kind == "uniform":
        return rng.random(ROWS)
    return rng.beta(1, 60, ROWS) if kind == "fraction" else rng.normal(0, 0.02, ROWS)


def effect(world: int, share: NDArray[np.float64], ads: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.float64]:
    """What a number adds to the log odds, by the share of numbers below it (by its logarithm, in world 3)."""
    if world == 0:
        return rng.normal(0, 0.4) * 2 * (share - 0.5) + rng.normal(0, 0.5) * (share > rng.random())
    if world in (1, 3):
        return 0.6 * rng.normal() * np.sin(2 * np.pi * (share * rng.choice([0.5, 1, 2]) + rng.random()))
    return rng.normal(0, 0.3) * np.floor(share * 5) / 5 + 0.4 * rng.normal(0, 1, 300)[ads] * (share - 0.5)


def log_of(world: int, seed: int) -> tuple[dict[str, NDArray], NDArray[np.float64]]:
    """The columns of a log, and the log loss of the true probabilities by row."""
    rng = np.random.default_rng(seed)
    users, ads = rng.integers(0, 2000, ROWS), rng.zipf(1.4, ROWS) % 300
    odds = -2.0 + rng.normal(0, 0.5, 2000)[users] + rng.normal(0, 0.6, 300)[ads]
    columns: dict[str, NDArray] = {}
    for place, kind in enumerate(KINDS):
        numbers = numbers_of(kind, rng)
        share = (np.argsort(np.argsort(numbers)) + 0.5) / ROWS
        if world == 3:  # where log-spaced buckets are at home
            share = np.sign(numbers) * np.log1p(np.abs(numbers))
            share = (share - share.min()) / (share.max() - share.min())
        odds += effect(world, share, ads, rng)
        columns[f"n{place}"] = np.where(rng.random(ROWS) < 0.05, np.nan, numbers)
    true = 1 / (1 + np.exp(-odds))
    clicks = (rng.random(ROWS) < true).astype(int)
    return {"click": clicks, "user": users, "ad": ads, **columns}, loss(true, clicks)


def loss(predicted: NDArray[np.float64], clicks: NDArray[np.int64]) -> NDArray[np.float64]:
    return -np.log(np.where(clicks, predicted, 1 - predicted))


def schema_of(columns: dict[str, NDArray], variant: str) -> pbodl.Schema:
    """The schema whose numbers are read as the variant says."""
    fields = [pbodl.Field("user", group="user"), pbodl.Field("ad", group="ad")]
    for name in [name for name in columns if name.startswith("n")]:
        for place, part in enumerate(variant.split("+")):
            about: dict = {"kind": "number", "column": name}
            if part.startswith("r"):
                about["resolution"] = int(part[1:])
            elif part[0] in "qc":
                first = columns[name][:FIRST]
                cuts = np.unique(np.quantile(first[~np.isnan(first)], np.arange(int(part[1:]) + 1) / int(part[1:])))
                about |= {"edges": cuts.tolist(), "transform": "curve"} if part[0] == "c" else {"edges": cuts[1:-1].tolist()}
            else:
                about["transform"] = part
            fields.append(pbodl.Field(f"{name} {place}", **about))
    return pbodl.Schema(label="click", fields=fields)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--worlds", default="0,1,2,3")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--variants", default="r4,q8,q16,q32,q16+q4,c8,c16,c32")
    given = parser.parse_args()
    for world in map(int, given.worlds.split(",")):
        columns, optimum = log_of(world, given.seed)
        table = pa.table({name: pa.array(values, from_pandas=True) for name, values in columns.items()})
        shown = [optimum[:FIRST].mean(), optimum[:STEP].mean(), optimum.mean()]
        print(f"{ABOUT[world]}, seed {given.seed}: optimum", *(f"{figure:.4f}" for figure in shown))
        for variant in given.variants.split(","):
            schema = schema_of(columns, variant)
            model, batch, began = pbodl.PairFM(schema), from_data(schema, table, True), time.process_time()
            predicted = np.concatenate([model.learn(batch.rows(start, start + STEP)) for start in range(0, ROWS, STEP)])
            seconds, lost = time.process_time() - began, loss(predicted, columns["click"])
            shown = [lost[:FIRST].mean(), lost[:STEP].mean(), lost.mean()]
            print(f"  {variant:10}", *(f"{figure:.4f}" for figure in shown), f"{ROWS / seconds:,.0f} rows/s")


if __name__ == "__main__":
    main()
