"""Click logs and models for tests of parallel training."""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import pbodl
from pbodl.data.batch import Batch
from pbodl.data.convert import from_data
from pbodl.models.deep_probit import DeepProbit
from tests.click_log import PLAIN, RICH, click_log, without
from tests.oracles.worlds import Market

State = dict[str, NDArray]


def fm(**options: Any) -> pbodl.FMMLP:
    """A small FM-MLP of the plain schema."""
    return pbodl.FMMLP(PLAIN, **{"dim": 4, "hidden": (8,), **options})


def plain_log(n: int, seed: int = 0) -> Batch:
    """Rows of the plain schema."""
    columns = ("tags", "price", "age", "time", "weight")
    return from_data(PLAIN, without(click_log(n, seed), *columns), labelled=True)


def rich_log(n: int, seed: int = 0) -> Batch:
    """Rows with lists, numbers, times and weights."""
    return from_data(RICH, click_log(n, seed), labelled=True)


def market_log(n: int, seed: int = 0) -> Batch:
    """Rows of a market in which pairs matter, and features are rare and frequent."""
    columns, _ = Market(seed).draw(n)
    return from_data(PLAIN, pa.table(columns), labelled=True)


def log_loss(batch: Batch, ctr: NDArray[np.float64]) -> float:
    assert batch.clicks is not None
    return float(-np.mean(np.log(np.where(batch.clicks > 0, ctr, 1.0 - ctr))))


def differing(ref: DeepProbit, comp: DeepProbit) -> list[str]:
    """The names of the arrays in which two models differ in any bit."""
    a, b = ref.state(), comp.state()
    return [name for name in a if not np.array_equal(a[name], b[name])]


def by_key(model: DeepProbit) -> State:
    """A model's state with its rows in the order of their keys."""
    state = model.state()
    order = np.argsort(state["embedding.keys"])
    rows = [name for name in state if name.startswith(("embedding.", "linear.")) and state[name].ndim]
    return state | {name: state[name][order] for name in rows}
