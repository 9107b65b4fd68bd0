"""Forgetting over 40 days: `python -m benchmarks.forgetting --seeds 311`.

A world with known truth and 50,000 rows a day, that does not change, or whose ads change their quality every --turn days. On days
3, 21 and 40 the model predicts the day's first rows: its latent standard deviation, the true rms error, and the divergence
(Kullback-Leibler) from the true click probabilities.
"""

import argparse
from typing import Any

import numpy as np
import pyarrow as pa

import pbodl
from pbodl.data.convert import from_data
from pbodl.data.synthetic import World
from pbodl.experiments.uncertainty.honesty import coverage, latent

KINDS: dict[str, type] = {
    "PairFM": pbodl.PairFM, "FM-MLP": pbodl.FMMLP, "FFM-MLP": pbodl.FFMMLP, "Sparse-MLP": pbodl.SparseMLP,
    "DeepProbit": pbodl.DeepProbit,
}  # fmt: skip
HALF_LIVES = (None, "30d", "7d", "1d")
NEXT = 20_000


def days(seed: int, n: int, rows: int, turn: int) -> Any:
    """The rows of each day and their true click probabilities."""
    world = World(seed=seed, rows=n * rows, days=n)
    table = pa.Table.from_batches(world.batches()).unify_dictionaries()
    truth, clicks = table["p_true"].to_numpy().copy(), table["click"].to_numpy().astype(np.float32)
    rng = np.random.default_rng(seed)
    if turn:  # C14, the ad, changes its quality: a shift of its log-odds that is drawn anew every `turn` days
        ads = np.unique(table["C14"].to_numpy(zero_copy_only=False).astype(str), return_inverse=True)[1]
        for start in range(0, n, turn):
            some = slice(start * rows, (start + turn) * rows)
            odds = np.log(truth[some] / (1 - truth[some])) + rng.normal(0.0, 0.7, ads.max() + 1)[ads[some]]
            truth[some] = 1 / (1 + np.exp(-odds))
        clicks = (rng.random(len(truth)) < truth).astype(np.float32)
    batch = from_data(world.schema, table, True)._replace(clicks=clicks)
    return world.schema, [(batch.rows(day * rows, (day + 1) * rows), truth[day * rows : (day + 1) * rows]) for day in range(n)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.forgetting", description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="*", default=[311])
    parser.add_argument("--days", type=int, default=40)
    parser.add_argument("--rows", type=int, default=50_000, help="rows of a day")
    parser.add_argument("--turn", type=int, default=0, help="days after which ads change their quality; 0: never")
    parser.add_argument("--models", nargs="*", default=list(KINDS))
    parser.add_argument("--half-lives", nargs="*", default=HALF_LIVES, help="such as 7d, or none")
    given = parser.parse_args()
    looked_at = (2, given.days // 2, given.days - 1)
    shown = " | ".join(f"day {day + 1}: sd, error, KL 10³" for day in looked_at)
    print(f"| seed | model | half-life | {shown} | last: inside 50/80/95 |")
    print("|--:|---|---|" + "---|" * (len(looked_at) + 1))
    for seed in given.seeds:
        schema, log = days(seed, given.days, given.rows, given.turn)
        for name in given.models:
            for half_life in given.half_lives:
                model, cells, inside = KINDS[name](schema, half_life=half_life if half_life != "none" else None), [], ""
                for day, (batch, truth) in enumerate(log):
                    if day in looked_at:
                        predicted, p = model.predict(batch.rows(0, NEXT)), truth[:NEXT]
                        found = coverage(predicted.mean, np.sqrt(predicted.variance), latent(p))
                        divergence = np.mean(p * np.log(p / predicted.ctr) + (1 - p) * np.log((1 - p) / (1 - predicted.ctr)))
                        cells.append(f"{found['deviation']:.3f}, {found['error']:.3f}, {1000 * divergence:.1f}")
                        inside = "/".join(f"{100 * share:.0f}" for share in found["inside"].values())
                    model.learn(batch)
                print(f"| {seed} | {name} | {half_life or 'none'} | {' | '.join(cells)} | {inside} |", flush=True)


if __name__ == "__main__":
    main()
