"""One pass over logs that no default was fitted to: `python -m benchmarks.first_pass --rows 1000000 --seeds 21 22`.

Every model has its default settings. It learns all rows but the last tenth, each predicted before it is learned, and then predicts
the last tenth frozen. Logs: worlds of `pbodl.data.synthetic`, the shop of `benchmarks.shop_world`, the exchange of
`benchmarks.exchange_world`, and files of your own (`--log FILE --config CONFIG`). A difference to the first model is given
with its 95 % interval, by a paired bootstrap over progressive log losses.
"""

import argparse
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

import pbodl
from benchmarks import exchange_world, shop_world
from pbodl.data.convert import Batch, concat, from_data
from pbodl.data.log.log_reader import LogReader
from pbodl.data.synthetic import World
from pbodl.training.config import check_config, read_config
from pbodl.training.paired import difference, resampled

# Linear weights alone: the vectors are too narrow to matter.
LINEAR: dict[str, Any] = {"dim": 1, "hidden": (), "prior": pbodl.Prior(embedding=1e-9), "initial_spread": 0.0}
MODELS: dict[str, tuple[type, dict[str, Any]]] = {
    "PairFM": (pbodl.PairFM, {}),
    "FM-MLP": (pbodl.FMMLP, {}),
    "FM-MLP, narrow bias": (pbodl.FMMLP, {"prior": pbodl.Prior(bias=None)}),
    "FFM-MLP, shortcut": (pbodl.FFMMLP, {"shortcut": True}),
    "MatchBox": (pbodl.MatchBox, {}),
    "AdPredictor": (pbodl.AdPredictor, {}),
    # The rivals' forms with what our own models have: a wide bias, and priors that follow the stream. Linear weights alone are
    # AdPredictor's form, and FM between groups, without layers, is MatchBox's.
    "AdPredictor, priors that follow": (pbodl.SparseMLP, LINEAR),
    "MatchBox, priors that follow": (pbodl.FMMLP, {"hidden": ()}),
}
PART = 65_536


def logs(arguments: argparse.Namespace) -> Iterator[tuple[str, pbodl.Schema, Batch]]:
    for path in arguments.log:
        schema = check_config(read_config(arguments.config)).schema
        with LogReader([path], schema) as reader:
            yield path, schema, concat([chunk.batch for chunk in reader])
    for seed in arguments.seeds:
        world = World(seed=seed, rows=arguments.rows)
        yield (
            f"synthetic world, seed {seed}",
            world.schema,
            concat([from_data(world.schema, part, True) for part in world.batches()]),
        )
        shop, exchange = shop_world.SCHEMA, exchange_world.SCHEMA
        yield f"shop, seed {seed}", shop, from_data(shop, shop_world.shop_log(seed, arguments.rows), True)
        yield f"exchange, seed {seed}", exchange, from_data(exchange, exchange_world.exchange_log(seed, arguments.rows), True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_pass", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of each generated log")
    parser.add_argument("--seeds", type=int, nargs="*", default=[21], help="seeds of the generated logs")
    parser.add_argument(
        "--models", nargs="*", default=list(MODELS), choices=list(MODELS), help="models to compare, the first with all"
    )
    parser.add_argument("--log", nargs="*", default=[], help="log files of your own, each measured by itself")
    parser.add_argument("--config", help="the configuration with their [schema]")
    arguments = parser.parse_args()
    for name, schema, batch in logs(arguments):
        assert batch.clicks is not None
        n, clicks, first = len(batch) * 9 // 10, batch.clicks, None
        print(f"\n{name}: {len(batch):,} rows, CTR {clicks.mean():.4f}\n")
        print("| model | AUC | log loss | level | progressive | difference | rows/s |\n|---|--:|--:|--:|--:|---|--:|")
        for label in arguments.models:
            kind, options = MODELS[label]
            try:
                model = kind(schema, **options)
            except pbodl.InputError as error:
                print(f"| {label} | {error} | | | | | |")
                continue
            kind(schema, **options).learn(batch.rows(0, 64))  # compiles
            began = time.perf_counter()
            learned = np.concatenate([model.learn(batch.rows(a, min(a + PART, n))) for a in range(0, n, PART)])
            speed = n / (time.perf_counter() - began)
            tested, truth = model.predict(batch.rows(n, len(batch))).ctr, clicks[n:]
            first = learned if first is None else first
            drawn, shown = resampled([learned, first], clicks[:n], replicates=1000), ""
            if first is not learned:
                d = difference(drawn, 0, 1)
                shown = f"{d.log_loss:+.5f} ({d.log_loss_low:+.5f} to {d.log_loss_high:+.5f})"
            level = tested.mean() / truth.mean()
            (auc, loss), before = resampled([tested], truth, replicates=0)[0, 0], drawn[0, 0, 1]
            figures = f"{auc:.4f} | {loss:.4f} | {level:.3f} | {before:.4f} | {shown}"
            print(f"| {label} | {figures} | {speed:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
