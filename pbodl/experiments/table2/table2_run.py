"""Table 2 of the paper, on a log of one's own: its models side by side, hour by hour, and frozen on the last day.

The paper's Table 2 is about the authors' traffic: ten days to train, one to test, in one pass. This is its protocol for any log.
Every model predicts each row before it learns it, so every hour has honest figures. They show what a single test day cannot: how
long a model takes to be good, and whether it stays so. Models are compared by the hours that they share.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl.errors import InputError
from pbodl.experiments.outcomes import write_json
from pbodl.experiments.table1.entries import LEFT_OPEN, PAPER, Table1Entry
from pbodl.experiments.table1.table1_run import Table1Settings, run_entries
from pbodl.experiments.table2.table2_report import write_table2
from pbodl.models.clock import parse_duration
from pbodl.training.config import Config

TABLE_2 = (
    Table1Entry("AdPredictor", "adpredictor", {}, None, (0.7359, 0.1210)),
    Table1Entry("FTRL", "ftrl", {}, None, (0.7365, 0.1212)),
    Table1Entry("MatchBox", "matchbox", {}, None, (0.7476, 0.1198)),
    Table1Entry("Sparse-MLP (paper)", "sparse-mlp", PAPER, LEFT_OPEN, (0.7510, 0.1192)),
    Table1Entry("FM-MLP (paper)", "fm-mlp", PAPER, LEFT_OPEN, (0.7519, 0.1191)),
    Table1Entry("FFM-MLP (paper)", "ffm-mlp", PAPER, LEFT_OPEN, (0.7529, 0.1190)),
    Table1Entry("FM-MLP", "fm-mlp", {}, None, None),
    Table1Entry("PairFM", "pair-fm", {}, None, None),
)
REFERENCE = "MatchBox"  # the best of the paper's rivals
RESAMPLES = 2000


class Table2Settings(NamedTuple):
    """The options of the experiment."""

    test_days: int = 1
    every: str = "1h"
    tune_rows: int = 200_000
    trials: int = 1


class PeriodDifference(NamedTuple):
    """By how much a model's log loss differs from another's over shared periods, with an interval of 95 %."""

    mean: float
    low: float
    high: float
    better: float  # share of the periods in which it is lower


def table2(
    config: Config, paths: Sequence[str], out: Path, settings: Table2Settings, entries: Sequence[Table1Entry] = TABLE_2
) -> dict[str, Any]:
    """Run what is not done yet and write table2.md, table2.json and report.html; returns the content of table2.json."""
    if parse_duration(settings.every, "--every").in_rows:
        raise InputError(f"--every is {settings.every!r}; it must be a span of time, such as 1h")
    shared = Table1Settings(settings.test_days, 1, settings.tune_rows, settings.trials)
    table = run_entries(config, paths, out, shared, entries, settings.every)
    table["provenance"]["every"] = settings.every
    _compare_periods(table["models"])
    write_json(out / "table2.json", table)
    write_table2(out, table)
    return table


def _compare_periods(models: Sequence[dict[str, Any]]) -> None:
    """Add how each model compares with the reference, and in how many periods it is the best of all."""
    losses, weights = period_losses([model["runs"][0]["progressive"]["days"] for model in models])
    names = [model["name"] for model in models]
    best = np.argmin(losses, axis=0)
    for number, model in enumerate(models):
        model["best_periods"], model["periods"] = int((best == number).sum()), losses.shape[1]
        if REFERENCE in names and model["name"] != REFERENCE:
            found = period_difference(losses[number], losses[names.index(REFERENCE)], weights)
            model["against_periods"] = found._asdict()


def period_losses(models: Sequence[Sequence[Mapping[str, Any]]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The log loss of each model (models, periods) in the periods that all of them have, and the rows of each period."""
    lines = [{line["start"]: line for line in own if line["log_loss"] is not None} for own in models]
    shared = sorted(set.intersection(*(set(own) for own in lines)))
    losses = np.array([[own[start]["log_loss"] for start in shared] for own in lines])
    return losses, np.array([lines[0][start]["rows"] for start in shared], float)


def period_difference(
    one: NDArray[np.float64], other: NDArray[np.float64], rows: NDArray[np.float64], seed: int = 0
) -> PeriodDifference:
    """The difference of log losses, weighted by rows; the interval is that of resampled periods."""
    difference = one - other
    draws = np.random.default_rng(seed).integers(len(rows), size=(RESAMPLES, len(rows)))
    means = (difference * rows)[draws].sum(axis=1) / rows[draws].sum(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    mean = float((difference * rows).sum() / rows.sum())
    return PeriodDifference(mean, float(low), float(high), float((difference < 0).mean()))
