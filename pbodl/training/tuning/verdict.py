"""The report of a tuning: the best setting beside the given one, on rows that no trial saw, with the noise of their difference.

The least of many figures flatters itself: some settings win by luck. So both settings go on learning behind the rows by which they
were compared, and are judged there, each row predicted before it is learned.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl.data.batch import Batch
from pbodl.data.schema import Schema
from pbodl.training.config import Config
from pbodl.training.display import number
from pbodl.training.paired import Difference, difference, plain_difference, resampled
from pbodl.training.run import learn_rows, new_model
from pbodl.training.tuning.cross_trials import for_schema


class Verdict(NamedTuple):
    """Figures on the rows of the report; the difference is the best setting minus the given one."""

    rows: int
    given: dict[str, float | None]
    best: dict[str, float | None]
    difference: Difference

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        found = plain_difference(self.difference)
        return {"rows": self.rows, "given": self.given, "best": self.best, "difference": found}

    def text(self) -> str:
        """What it says, in a few lines."""
        found = self.difference
        lines = [
            f"on the {self.rows:,} rows after those, which no trial saw:",
            f"  as given  log loss {number(self.given['log_loss'], 5)}, AUC {number(self.given['auc'])}",
            f"  best      log loss {number(self.best['log_loss'], 5)}, AUC {number(self.best['auc'])}",
            f"  log loss, best minus given: {found.log_loss:+.5f} (95 %: {found.log_loss_low:+.5f} to {found.log_loss_high:+.5f})",
        ]
        if found.log_loss_high < 0.0:
            lines.append("the best setting is better there, beyond chance")
        elif found.log_loss_low > 0.0:
            lines.append("the best setting is worse there, beyond chance: keep the given one, or tune on more rows")
        else:
            lines.append("the difference may be chance: keep the given setting, or tune on more rows")
        return "\n".join(lines)


class Learned(NamedTuple):
    """What a setting predicted for rows before it learned them."""

    clicks: NDArray[np.float32]
    predicted: NDArray[np.float64]
    weights: NDArray[np.float64]  # rows of the stream that each stands for


def progressive(config: Config, batches: Sequence[Batch], count: Callable[[int], None] = lambda rows: None) -> list[Learned]:
    """What a new model predicts for each batch before it learns it."""
    model = new_model(config, batches[0])
    position, learned = 0, []
    for batch in batches:
        kept, predicted, weights = learn_rows(model, batch, position)
        position += len(batch)
        clicks = np.zeros(0, np.float32) if kept.clicks is None else kept.clicks
        learned.append(Learned(clicks, predicted, weights))
        count(len(batch))
    return learned


class Side(NamedTuple):
    """A setting, and the rows as it wants them, up to crosses that it has beyond the schema that they were made for."""

    config: Config
    made_for: Schema
    seen: Sequence[Batch]
    unseen: Sequence[Batch]


def judge(given: Side, best: Side, count: Callable[[int], None] = lambda rows: None) -> Verdict | None:
    """Compare two settings on unseen rows, after both learned those seen; None if there is nothing to compare."""
    rows = sum(len(batch) for batch in given.unseen)
    if given.config is best.config or not rows:
        return None
    with ThreadPoolExecutor(2) as pool:
        runs = list(pool.map(lambda side: _unseen(side, count), (given, best)))
    first, second = (Learned(*(np.concatenate(column) for column in zip(*run, strict=True))) for run in runs)
    if not len(first.clicks):
        return None
    figures = resampled([first.predicted, second.predicted], first.clicks, replicates=1000, weights=first.weights)
    return Verdict(rows, _figures(figures[0, 0]), _figures(figures[0, 1]), difference(figures, 1, 0))


def _unseen(side: Side, count: Callable[[int], None]) -> list[Learned]:
    """What a setting predicts for the unseen batches."""
    batches = [for_schema(batch, side.made_for, side.config.schema) for batch in (*side.seen, *side.unseen)]
    return progressive(side.config, batches, count)[len(side.seen) :]


def _figures(found: NDArray[np.float64]) -> dict[str, float | None]:
    return {name: float(value) if np.isfinite(value) else None for name, value in zip(("auc", "log_loss"), found, strict=True)}
