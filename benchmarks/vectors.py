"""Does an embedding help ads that are new? The same log is learned with and without the ads' vectors.

    python -m benchmarks.vectors --seeds 11 12 13 --rows 200000

A synthetic world: an ad has a vector of 16 numbers, drawn around one of 40 topics; a user likes some directions of that space. The
vector tells `tells` of what an ad's quality and appeal are; the rest can only be learned from the ad's clicks. Ads live for a short
time, and figures are by how many rows of the ad were learned before. Every row is predicted before it is learned. Intervals are
95 %, by resampling ads.
"""

import argparse
import json

import numpy as np
import pyarrow as pa

import pbodl

LENGTH, TOPICS, USERS, ALIVE = 16, 40, 2000, 200
AGES = ((0, 1, "never seen"), (1, 10, "1 to 9 rows"), (10, 100, "10 to 99 rows"), (100, 10**9, "100 rows or more"))
REPLICATES = 400


def log_of(seed: int, rows: int, tells: float, life: int) -> tuple[pa.Table, np.ndarray]:
    """The log, and how many rows of its ad came before each row."""
    draw = np.random.default_rng(seed)
    ads = ALIVE + ALIVE * rows // (ALIVE * life)
    topics = draw.normal(size=(TOPICS, LENGTH))
    vector = 0.8 * topics[draw.integers(TOPICS, size=ads)] + 0.6 * draw.normal(size=(ads, LENGTH))
    # `life` rows for each of the ads alive: the window of ads moves on by one every `life` rows.
    at = np.arange(rows) // life + draw.integers(ALIVE, size=rows)
    user = draw.integers(USERS, size=rows)
    taste, quality = draw.normal(size=(USERS, LENGTH)) * 0.15, draw.normal(size=LENGTH) * 0.12
    appeal = draw.normal(size=ads) * 0.5
    latent = -1.2 + tells * (vector[at] @ quality + (vector[at] * taste[user]).sum(axis=1)) + (1 - tells) * appeal[at]
    clicks = (latent + draw.normal(size=rows) > 0).astype(np.int8)
    order = np.argsort(at, kind="stable")
    before = np.empty(rows, np.int64)
    sizes = np.bincount(at, minlength=ads)
    before[order] = np.arange(rows) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(vector[at].astype(np.float32).reshape(-1)), LENGTH)
    return pa.table({"user": user, "ad": at, "text": vectors, "click": clicks}), before


def losses(table: pa.Table, with_vector: bool, kind: str) -> np.ndarray:
    """The log loss of every row, predicted before it was learned."""
    fields = [pbodl.Field("user", group="user"), pbodl.Field("ad", group="ad")]
    if with_vector:
        fields.append(pbodl.Field("text", group="ad", kind="vector", length=LENGTH))
    model = {"pair-fm": pbodl.PairFM, "fm-mlp": pbodl.FMMLP}[kind](pbodl.Schema(label="click", fields=fields))
    p, y = model.learn(table), table.column("click").to_numpy()
    return -np.where(y > 0, np.log(p), np.log1p(-p))


def compared(table: pa.Table, before: np.ndarray, kind: str, seed: int) -> list[dict]:
    """Lines of figures by the age of the ad, the first tenth of the log left out."""
    without, vector = (losses(table, given, kind) for given in (False, True))
    ad, draw, lines = table.column("ad").to_numpy(), np.random.default_rng(seed), []
    late = np.arange(len(before)) >= len(before) // 10
    for least, most, name in AGES:
        mine = np.flatnonzero((before >= least) & (before < most) & late)
        if not len(mine):
            continue
        _, group = np.unique(ad[mine], return_inverse=True)
        rows = np.bincount(group)
        gain = np.bincount(group, (without - vector)[mine])
        picks = draw.integers(len(rows), size=(REPLICATES, len(rows)))
        spread = gain[picks].sum(axis=1) / rows[picks].sum(axis=1)
        lines.append({
            "seed": seed, "model": kind, "ads with": name, "rows": len(mine), "ids alone": float(without[mine].mean()),
            "with vectors": float(vector[mine].mean()), "gain": float(gain.sum() / rows.sum()),
            "interval": np.percentile(spread, (2.5, 97.5)).tolist(),
        })  # fmt: skip
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[11, 12, 13])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--tells", type=float, default=0.7)
    parser.add_argument("--life", type=int, default=25)
    parser.add_argument("--models", nargs="+", default=["pair-fm", "fm-mlp"])
    options = parser.parse_args()
    for seed in options.seeds:
        table, before = log_of(seed, options.rows, options.tells, options.life)
        for kind in options.models:
            for line in compared(table, before, kind, seed):
                print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
