"""Do intervals hold what they promise? `python -m benchmarks.coverage --seeds 301 302`.

Every model learns worlds with known truth, once with its defaults and once with each option that touches its variance. At 100,000,
300,000 and 1,000,000 rows it predicts the next rows: the share of true latents within their 50, 80 and 95 % intervals, for all
rows, for ads that it never saw, and for ads seen up to 99 and at least 1,000 times.
"""

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

import pbodl
from benchmarks.shop_world import SCHEMA, shop_log
from pbodl.data.convert import Batch, from_data
from pbodl.data.schema import Schema
from pbodl.data.synthetic import World
from pbodl.experiments.uncertainty.honesty import LEVELS, Occurrences, coverage, latent
from pbodl.models.recalibration import recalibrated_latent

NETWORKS = {"FM-MLP": pbodl.FMMLP, "FFM-MLP": pbodl.FFMMLP, "Sparse-MLP": pbodl.SparseMLP, "DeepProbit": pbodl.DeepProbit}
OPTIONS: dict[str, dict[str, Any]] = {
    "": {},
    ", half_life 7d": {"half_life": "7d"},
    ", negative_rate 0.3": {"negative_rate": 0.3},
    ", one layer": {"hidden": (64,)},
    ", no layer": {"hidden": ()},
    ", shortcut": {"shortcut": True},
}
MODELS: dict[str, tuple[type, dict[str, Any]]] = {
    **{f"PairFM{name}": (pbodl.PairFM, OPTIONS[name]) for name in ("", ", half_life 7d", ", negative_rate 0.3")},
    **{f"{name}{option}": (kind, given) for name, kind in NETWORKS.items() for option, given in OPTIONS.items()},
    "MatchBox": (pbodl.MatchBox, {}),
    "AdPredictor": (pbodl.AdPredictor, {}),
}
MOMENTS = (100_000, 300_000, 1_000_000)
NEXT = 20_000  # rows predicted at each moment
PART = 65_536
FREQUENCIES = {"all": (0, 2**62), "new": (0, 1), "under 100": (1, 100), "over 1,000": (1000, 2**62)}


def logs(seed: int, rows: int) -> Iterator[tuple[str, Schema, Batch, np.ndarray, np.ndarray]]:
    """Worlds of two makes: name, schema, samples, true latents, and how often each row's ad came before."""
    world = World(seed=seed, rows=rows)
    for name, schema, ad, table in (
        ("world", world.schema, "C14", pa.Table.from_batches(world.batches()).unify_dictionaries()),
        ("shop", SCHEMA, "item", shop_log(seed, rows)),
    ):
        truth, batch = latent(table["p_true"].to_numpy()), from_data(schema, table, True)
        field = [each.name for each in schema.fields].index(ad)
        yield f"{name}, seed {seed}", schema, batch, truth, Occurrences().before(batch.keys[batch.fields == field])


def sampled(batch: Batch, rate: float) -> Batch:
    """The batch with this share of its negatives."""
    assert batch.clicks is not None
    kept = (batch.clicks > 0) | (np.random.default_rng(0).random(len(batch)) < rate)
    return batch.take(np.flatnonzero(kept)) if rate < 1.0 else batch


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coverage", description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="*", default=[301])
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--moments", type=int, nargs="*", default=MOMENTS)
    parser.add_argument("--makes", nargs="*", default=["world", "shop"], help="of worlds")
    arguments = parser.parse_args()
    print("| log | model | rows | sd, rms error |", " | ".join(FREQUENCIES), "| rank correlation, of |")
    print("|---|---|--:|---|" + "---|" * len(FREQUENCIES) + "--:|")
    for seed in arguments.seeds:
        for name, schema, batch, truth, seen in logs(seed, max(arguments.moments) + NEXT):
            for label in arguments.models if name.split(",")[0] in arguments.makes else ():
                kind, options = MODELS[label]
                model, learned = kind(schema, **options), 0
                for moment in arguments.moments:
                    for start in range(learned, moment, PART):
                        model.learn(sampled(batch.rows(start, min(start + PART, moment)), options.get("negative_rate", 1.0)))
                    learned, now = moment, slice(moment, moment + NEXT)
                    mean, deviation = recalibrated_latent(model, model.predict(batch.rows(now.start, now.stop)))
                    whole, cells = coverage(mean, deviation, truth[now]), []
                    for least, most in FREQUENCIES.values():
                        some = (seen[now] >= least) & (seen[now] < most)
                        inside = coverage(mean[some], deviation[some], truth[now][some])["inside"] if some.sum() >= 30 else None
                        cells.append("/".join(f"{100 * inside[str(level)]:.0f}" for level in LEVELS) if inside else "–")
                    figures = f"{whole['deviation']:.2f}, {whole['error']:.2f} | {' | '.join(cells)}"
                    figures += f" | {whole['rank_correlation']:.2f}, {whole['rank_ceiling']:.2f}"
                    print(f"| {name} | {label} | {moment:,} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
