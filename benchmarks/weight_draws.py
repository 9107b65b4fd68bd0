"""Are draws of the weights the judge of a variance? `python -m benchmarks.weight_draws --seeds 401`.

Every operation learns a world with known truth, without hidden layers, with one and with two, with and without a shortcut. For some
of the next rows, weights are drawn one by one from their Gaussians: the variance of z_L over the draws, and the mean CTR. Beside
both stands the variance that the model reports, and what the truth asks for: the squared error.
"""

import argparse
import itertools
from typing import Any

import numpy as np

import pbodl
from benchmarks.coverage import PART, logs
from pbodl.experiments.uncertainty.honesty import latent

KINDS: dict[str, type] = {"concat": pbodl.DeepProbit, "sum": pbodl.SparseMLP, "FM": pbodl.FMMLP, "FFM": pbodl.FFMMLP}
HIDDEN: tuple[tuple[int, ...], ...] = ((), (64,), (64, 32))


def judged(model: Any, rows: Any, truth: np.ndarray, draws: int) -> tuple[float, float, float]:
    """Medians over the rows of reported over drawn variance and of CTR over drawn CTR; squared error over reported variance."""
    predicted, drawn = model.predict(rows), model.sample(rows, draws, seed=1)
    reported = predicted.variance / latent(drawn).var(axis=0)
    error = np.mean((predicted.mean - truth) ** 2) / np.mean(predicted.variance)
    return float(np.median(reported)), float(np.median(predicted.ctr / drawn.mean(axis=0))), float(error)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.weight_draws", description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="*", default=[401])
    parser.add_argument("--rows", type=int, default=150_000, help="rows learned")
    parser.add_argument("--next", type=int, default=300, help="rows judged")
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--ops", nargs="*", default=list(KINDS))
    given = parser.parse_args()
    print(
        "| log | operation | hidden | shortcut | reported over drawn variance | CTR over drawn CTR | squared error over reported |"
    )
    print("|---|---|---|---|--:|--:|--:|")
    for seed in given.seeds:
        for name, schema, batch, truth, _ in logs(seed, given.rows + given.next):
            for op, hidden, shortcut in itertools.product(given.ops, HIDDEN, (False, True)):
                if shortcut and not hidden:
                    continue
                model = KINDS[op](schema, hidden=hidden, shortcut=shortcut)
                for start in range(0, given.rows, PART):
                    model.learn(batch.rows(start, min(start + PART, given.rows)))
                end = given.rows + given.next
                figures = judged(model, batch.rows(given.rows, end), truth[given.rows : end], given.draws)
                form = f"{hidden or 'none'} | {'yes' if shortcut else 'no'}"
                print(f"| {name} | {op} | {form} | {' | '.join(f'{figure:.2f}' for figure in figures)} |", flush=True)


if __name__ == "__main__":
    main()
