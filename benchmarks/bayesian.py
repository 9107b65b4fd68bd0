"""`python -m benchmarks.bayesian`: our uncertainty beside that of Bayesian deep learning, on logs whose truth is known.

Every learner makes one pass over the log, predicting each batch before it learns it. Then, for the next rows: the share of true
latents within the intervals; and the joint log loss of 10 clicks at a time, minus the logarithm of the mean over draws of the
product of their probabilities. As the Neural Testbed does, the 10 rows repeat two rows (`dyadic`), or they are 10 different ones.
Clicks of the joint figures are drawn from the true probabilities. Rates and the learners' own settings are chosen on another seed.
"""

import argparse
import json
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import pbodl
from benchmarks.peer_logs import CHOOSING
from benchmarks.peer_tuning import Settings, choose
from benchmarks.shop_world import SCHEMA, shop_log
from benchmarks.split import log_loss
from pbodl.data.convert import Batch, from_data
from pbodl.data.synthetic import World
from pbodl.experiments.uncertainty.honesty import LEVELS, coverage, latent
from pbodl.models.recalibration import recalibrated_latent

Floats = NDArray[np.float64]
NEXT = 4000  # rows after the pass, to judge by
GROUPS, TAU = 2000, 10  # groups of clicks that are judged together
DRAWS = 100
BATCH = 256
PART = 4096  # rows of ours in a call
TUNE_ROWS = 30_000
OURS: dict[str, type] = {"PBODL PairFM": pbodl.PairFM, "PBODL FM-MLP": pbodl.FMMLP}
RATES = (0.0125, 0.025, 0.05, 0.1, 0.2)
IVON_RATES = (0.03, 0.1, 0.3, 1.0, 3.0)
# The settings to choose: rates by progressive log loss; then the others, by the joint log loss.
LADDERS: dict[str, dict[str, tuple[float, ...]]] = {
    "point weights": {"rate": RATES},
    "ensemble of 10": {},
    "MC dropout": {"rate": RATES, "dropout": (0.05, 0.1, 0.2, 0.4, 0.6)},
    "last-layer Laplace": {},
    "VBLL": {"rate": RATES},
    "IVON": {"rate": IVON_RATES, "hessian": (0.003, 0.01, 0.03, 0.1, 0.3)},
}
START: dict[str, Settings] = {
    "MC dropout": {"rate": 0.05, "dropout": 0.1}, "IVON": {"rate": 0.1, "hessian": 0.03},
}  # fmt: skip
LIKE = {"ensemble of 10": "point weights", "last-layer Laplace": "point weights"}  # the same network: the same rate


class KnownLog(NamedTuple):
    """Rows with their true click probabilities; the last NEXT rows are to judge by."""

    name: str
    schema: pbodl.Schema
    batch: Batch
    places: NDArray[np.int64]
    truth: Floats

    @property
    def learned(self) -> int:
        return len(self.batch) - NEXT


class Judged(NamedTuple):
    progressive: float
    inside: dict[str, float]
    correlation: float
    dyadic: Floats  # joint log loss of each group
    random: Floats
    speed: float  # rows per second of CPU time


def known_log(make: str, seed: int, rows: int) -> KnownLog:
    world = World(seed=seed, rows=rows + NEXT)
    if make == "world":
        schema, table = world.schema, pa.Table.from_batches(world.batches()).unify_dictionaries()
    else:
        schema, table = SCHEMA, shop_log(seed, rows + NEXT)
    batch = from_data(schema, table, True)
    places = np.unique(batch.keys, return_inverse=True)[1].reshape(len(batch), len(schema.fields))
    return KnownLog(f"{make}, seed {seed}", schema, batch, places, table["p_true"].to_numpy().astype(np.float64))


def joint_loss(probabilities: Floats, truth: Floats, anchors: int) -> Floats:
    """The joint log loss of each group of TAU clicks. probabilities: (draws, rows); the groups are the same for every learner."""
    rng = np.random.default_rng(0)
    rows = rng.integers(0, len(truth), (GROUPS, anchors))
    members = rows if anchors == TAU else np.take_along_axis(rows, rng.integers(0, anchors, (GROUPS, TAU)), 1)
    clicks = rng.random((GROUPS, TAU)) < truth[members]
    p = np.clip(probabilities, 1e-7, 1.0 - 1e-7)
    lines = np.log(p)[:, members] * clicks + np.log1p(-p)[:, members] * ~clicks  # [draws, groups, TAU]
    total = lines.sum(2)
    top = total.max(0)
    return -(top + np.log(np.exp(total - top).mean(0)))


def judge_ours(name: str, log: KnownLog) -> Judged:
    OURS[name](log.schema).learn(log.batch.rows(0, 64))  # compiles
    model, last = OURS[name](log.schema), log.batch.rows(log.learned, len(log.batch))
    began = time.process_time()
    before = np.concatenate(
        [model.learn(log.batch.rows(start, min(start + PART, log.learned))) for start in range(0, log.learned, PART)]
    )
    seconds = time.process_time() - began
    mean, deviation = recalibrated_latent(model, model.predict(last))
    return _judged(before, log, seconds, coverage(mean, deviation, latent(log.truth[log.learned :])), model.sample(last, DRAWS))


def judge_torch(name: str, log: KnownLog, settings: Settings) -> Judged:
    import torch

    from benchmarks.rivals.bayesian_networks import LEARNERS

    assert log.batch.clicks is not None
    index, clicks, n = torch.from_numpy(log.places), torch.from_numpy(log.batch.clicks), log.learned
    began = time.process_time()
    learner = LEARNERS[name](int(log.places.max()) + 1, n, **settings)
    before = np.concatenate(
        [learner.learn(index[start : min(start + BATCH, n)], clicks[start : min(start + BATCH, n)]) for start in range(0, n, BATCH)]
    )
    learner.finish(index[:n], clicks[:n])
    seconds = time.process_time() - began
    logits = learner.draws(index[n:], DRAWS).astype(np.float64)
    truth, deviation = log.truth[n:], logits.std(0, ddof=1) if len(logits) > 1 else np.zeros(logits.shape[1])
    found = coverage(logits.mean(0), deviation, np.log(truth / (1.0 - truth)))
    return _judged(before, log, seconds, found, 1.0 / (1.0 + np.exp(-logits)))


def _judged(before: NDArray, log: KnownLog, seconds: float, found: dict[str, Any], probabilities: Floats) -> Judged:
    assert log.batch.clicks is not None
    truth, n = log.truth[log.learned :], log.learned
    losses = (joint_loss(probabilities, truth, anchors) for anchors in (2, TAU))
    return Judged(
        log_loss(before, log.batch.clicks[:n]), found["inside"], found["rank_correlation"] or 0.0, *losses, n / seconds,
    )  # fmt: skip


def chosen_settings(name: str, make: str, known: dict[str, Settings], rows: int) -> Settings:
    """Chosen on the first rows of another log: the rate by progressive log loss, then the others by the dyadic one."""
    if name in LIKE:
        return known[LIKE[name]]
    log = known_log(make, CHOOSING[make], rows)
    kept: dict[str, Judged] = {}

    def judged(settings: Settings) -> Judged:
        key = json.dumps(settings)
        if key not in kept:
            kept[key] = judge_torch(name, log, settings)
        return kept[key]

    best, ladders = START.get(name, {"rate": 0.05}), LADDERS[name]
    by: list[tuple[str, Callable[[Settings], float]]] = [("rate", lambda settings: judged(settings).progressive)]
    by += [(other, lambda settings: float(judged(settings).dyadic.mean())) for other in ladders if other != "rate"]
    for setting, loss_of in by:
        best = choose(best, {setting: ladders[setting]}, loss_of).settings
    print(f"{name}, {make}: {best}, of {len(kept)} settings", flush=True)
    return best


def line(name: str, found: Judged, base: Judged) -> str:
    inside = "/".join(f"{100 * found.inside[str(level)]:.0f}" for level in LEVELS)
    joint = []
    for mine, theirs in ((found.dyadic, base.dyadic), (found.random, base.random)):
        gap = mine - theirs
        error = 1.96 * gap.std(ddof=1) / np.sqrt(len(gap))
        joint += [f"{mine.mean():.4f}", "" if found is base else f"{gap.mean():+.4f} ± {error:.4f}"]
    return f"| {name} | {found.progressive:.4f} | {inside} | {found.correlation:.2f} | {' | '.join(joint)} | {found.speed:,.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bayesian", description=__doc__)
    parser.add_argument("--rows", type=int, default=300_000, help="rows to learn")
    parser.add_argument("--seeds", type=int, nargs="+", default=[511, 512])
    parser.add_argument("--makes", nargs="+", default=["world", "shop"], choices=list(CHOOSING))
    parser.add_argument("--tune-rows", type=int, default=TUNE_ROWS, help="rows of the log that settings are chosen on")
    parser.add_argument("--only", nargs="+", default=[""], metavar="PART", help="only learners whose name contains one of these")
    options = parser.parse_args()
    chosen = [name for name in LADDERS if any(part in name for part in options.only)]
    settings: dict[str, dict[str, Settings]] = {make: {} for make in options.makes}
    for make in options.makes:
        for name in chosen:
            settings[make][name] = chosen_settings(name, make, settings[make], options.tune_rows)
    for seed in options.seeds:
        for make in options.makes:
            log = known_log(make, seed, options.rows)
            print(f"\n{log.name}, {options.rows:,} rows:\n")
            print("| learner | progressive | inside 50/80/95 | ranks | joint, dyadic | minus PairFM's", end=" ")
            print("| joint, 10 rows | minus PairFM's | rows/CPU s |\n|---|--:|---|--:|--:|--:|--:|--:|--:|", flush=True)
            base = judge_ours("PBODL PairFM", log)
            print(line("**PBODL PairFM**", base, base), flush=True)
            print(line("PBODL FM-MLP", judge_ours("PBODL FM-MLP", log), base), flush=True)
            for name in chosen:
                print(line(name, judge_torch(name, log, settings[make][name]), base), flush=True)


if __name__ == "__main__":
    main()
