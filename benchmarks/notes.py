"""`python -m benchmarks.notes`: what each key of the paper's notes (§4) did on generated worlds.

Each setting learns nine tenths of the rows in one pass, predicting each row first, and is then tested, frozen, on the last tenth.
Figures are means over the seeds; `CPU` is the processor time of learning, as a multiple of that of the first setting.
"""

import argparse
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from pbodl.data.batch import Batch
from pbodl.data.convert import from_data
from pbodl.data.synthetic import World
from pbodl.parallel.threads.learning_threads import learn_with_threads
from pbodl.training.config import check_config
from pbodl.training.run import learn_rows, new_model
from pbodl.training.stream_metrics import StreamMetrics
from pbodl.training.visits.worker_rules import burn_in_of

CHUNK = 8192
SETTINGS: dict[str, dict[str, Any]] = {
    "one visit per row": {},
    "passes = 2": {"training": {"passes": 2}},
    'passes = 2, power = "paper"': {"training": {"passes": 2, "power": "paper"}},
    "negative_rate = 0.3": {"training": {"negative_rate": 0.3}},
    "negative_rate = 0.3, sets = 2": {"training": {"negative_rate": 0.3, "sets": 2}},
    "negative_rate = 0.3, sets = 4": {"training": {"negative_rate": 0.3, "sets": 4}},
    'negative_rate = 0.3, sets = 2, power = "paper"': {"training": {"negative_rate": 0.3, "sets": 2, "power": "paper"}},
    "8 workers": {"workers": 8},
    '8 workers, burn_in = "50k"': {"workers": 8, "training": {"burn_in": "50k"}},
    'half_life = "7d"': {"training": {"half_life": "7d"}},
    "model.paper = true": {"model": {"paper": True}},
    "passes = 5, ep = true": {"training": {"passes": 5, "ep": True}},
}


class Outcome(NamedTuple):
    auc: float
    log_loss: float
    progressive: float
    cpu: float


def outcome(setting: dict[str, Any], world: World, train: Batch, test: Batch, kind: str) -> Outcome:
    model_keys = {"kind": kind, "seed": world.seed, **setting.get("model", {})}
    tables = {"schema": msgspec.to_builtins(world.schema), "model": model_keys, "training": setting.get("training", {})}
    config = check_config(tables)
    model = new_model(config, train)
    # Threads in turns: what several workers do to accuracy, the same in every run; their speed is another matter. In turns, merge =
    # "add" is one worker, bit for bit.
    learn_with_threads(model, setting.get("workers", 1), config.training.merge, burn_in_of(config.training.burn_in), in_turns=True)
    seen, frozen, cpu = StreamMetrics(), StreamMetrics(), 0.0
    for start in range(0, len(train), CHUNK):
        began = time.process_time()
        kept, predicted, stands_for = learn_rows(model, train.rows(start, start + CHUNK), start)
        cpu += time.process_time() - began
        assert kept.clicks is not None
        seen.add(predicted, kept.clicks, stands_for)
    for start in range(0, len(test), CHUNK):
        batch = test.rows(start, start + CHUNK)
        assert batch.clicks is not None
        frozen.add(model.predict(batch).ctr, batch.clicks)
    figures = frozen.figures()
    return Outcome(figures.auc, figures.log_loss, seen.figures().log_loss, cpu)


def measure(rows: int, seeds: Sequence[int], kind: str, only: str | None) -> None:
    chosen = {name: setting for name, setting in SETTINGS.items() if only is None or only in name or not setting}
    found: dict[str, list[Outcome]] = {name: [] for name in chosen}
    worlds, cut = [World(seed=seed, rows=rows) for seed in seeds], rows * 9 // 10
    logs = [from_data(world.schema, pa.Table.from_batches(list(world.batches())), labelled=True) for world in worlds]
    for name, setting in chosen.items():
        outcome(setting, worlds[0], logs[0].rows(0, cut // 10), logs[0].rows(cut, rows), kind)  # compile
        for world, log in zip(worlds, logs, strict=True):
            found[name].append(outcome(setting, world, log.rows(0, cut), log.rows(cut, rows), kind))
            print(f"seed {world.seed}, {name}: {found[name][-1]}", flush=True)
    first = np.array(found[next(iter(chosen))])
    print("\n| keys | AUC | log loss | progressive log loss | CPU |\n|---|---:|---:|---:|---:|")
    for name, outcomes in found.items():
        auc, loss, progressive, _ = np.mean(outcomes, axis=0)
        cpu = "" if "workers" in chosen[name] else f"{np.median(np.array(outcomes)[:, 3] / first[:, 3]):.1f} ×"
        print(f"| `{name}` | {auc:.4f} | {loss:.4f} | {progressive:.4f} | {cpu} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[11, 12])
    parser.add_argument("--model", default="fm-mlp")
    parser.add_argument("--only", help="settings whose name contains this, and the first")
    given = parser.parse_args()
    measure(given.rows, given.seeds, given.model, given.only)


if __name__ == "__main__":
    main()
