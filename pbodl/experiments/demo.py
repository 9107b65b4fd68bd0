"""The first look: an FM-MLP and a linear model learn from the same generated stream, and their figures develop side by side."""

from collections.abc import Callable

from rich.table import Table

from pbodl.data.convert import from_data
from pbodl.data.synthetic import World
from pbodl.models.clock import Duration
from pbodl.models.contract import Model
from pbodl.models.deep_probit import FMMLP, SparseMLP
from pbodl.training.display import number
from pbodl.training.tracker import Tracker

SLICES = 10
NAMES = ("FM-MLP", "linear ADF")


def side_by_side(rows: int, seed: int, progress: Callable[[int, str], None]) -> Table:
    """Train both on a world of `rows` impressions; the table says how progressive AUC and log loss developed."""
    world = World(seed=seed, rows=rows)
    models: tuple[Model, ...] = (FMMLP(world.schema), SparseMLP(world.schema, dim=1, hidden=(), linear=False, initial_spread=0.0))
    slice_rows = -(-rows // SLICES)
    trackers = [Tracker(world.schema, Duration(float(slice_rows), True)) for _ in models]
    done = 0
    for records in world.batches(8192):
        batch = from_data(world.schema, records, labelled=True)
        for model, tracker in zip(models, trackers, strict=True):
            tracker.add(batch, model.learn(batch), batch.weights.astype(float))
        done += len(batch)
        figures = [tracker.overall() for tracker in trackers]
        progress(done, "   ".join(f"{name}: AUC {f.auc:.4f}" for name, f in zip(NAMES, figures, strict=True)))
    return _table([tracker.summary()["days"] for tracker in trackers])


def _table(lines: list[list[dict]]) -> Table:
    table = Table(title="Progressive figures (every row is predicted, then learned)", title_justify="left")
    table.add_column("rows", justify="right")
    for name in NAMES:
        table.add_column(f"{name}: AUC", justify="right")
        table.add_column("log loss", justify="right")
    for both in zip(*lines, strict=True):
        figures = [number(line[key]) for line in both for key in ("auc", "log_loss")]
        table.add_row(f"{both[0]['start'] + both[0]['rows']:,.0f}", *figures)
    return table
