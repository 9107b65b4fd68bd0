"""Training in minibatches with JAX and optax: epochs over a history, early stopping on its last part.

A network is a function `forward(vectors, dense) -> logits`: `vectors` (samples, slots, D) are the rows of the sample's features times
their values, zero where a slot is empty; `dense` are its other arrays. A slot belongs to a field, which has as many as its fullest
sample needs. Gradients reach only the rows of a minibatch: these are gathered, stepped with their part of the optimiser's state, and put
back, so that a step costs what its samples cost, and not what the table does.

All shapes are rounded up, so that one compiled step serves every minibatch, and most of the fits to come.
"""

import functools
import importlib.util
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl._jit import jit
from pbodl.baselines.buffer import History
from pbodl.errors import InputError

HELD_OUT = 0.1  # of the history: its last part decides when to stop
MISSING = "the batch models are trained by JAX and optax, which are not installed; run: pip install 'pbodl[batch]'"
SMALLEST_TABLE = 1024
Dense = dict[str, NDArray[np.float32]]
Logits = Callable[[NDArray[np.float32], Dense, History], NDArray[np.float64]]


class Recipe(NamedTuple):
    """How to train."""

    optimizer: str
    learning_rate: float
    l2: float
    batch_size: int
    max_epochs: int
    seed: int


class Fit(NamedTuple):
    """What training came to."""

    weights: NDArray[np.float32]  # [table's size, D]
    dense: Dense
    epochs: int  # the best number of them
    log_loss: float  # on the held-out part, before it was learned from; NaN if there is none


def require_jax() -> None:
    """Refuse to go on without the libraries of the extra `batch`."""
    if importlib.util.find_spec("jax") is None or importlib.util.find_spec("optax") is None:
        raise InputError(MISSING)


@jit
def field_widths(indptr, rows, field_of_row, widths):
    """The most features that a sample has of each field. MODIFIES: widths."""
    counts = np.zeros(len(widths), np.int64)
    for sample in range(len(indptr) - 1):
        counts[:] = 0
        for j in range(indptr[sample], indptr[sample + 1]):
            counts[field_of_row[rows[j]]] += 1
        for field in range(len(widths)):
            widths[field] = max(widths[field], counts[field])


@jit
def fill_minibatch(history, samples, field_of_row, first_slot, place_of_row, distinct, places, values, clicks, weights):
    """Lay samples out in slots; `places` points into `distinct`, the minibatch's rows without repetition. Returns their number.

    MODIFIES: distinct, places, values, clicks, weights (all zeroed by the caller); place_of_row (-1, and left so).
    """
    found = 0
    used = np.zeros(len(first_slot), np.int64)
    for i in range(len(samples)):
        sample = samples[i]
        used[:] = 0
        clicks[i], weights[i] = history.clicks[sample], history.weights[sample]
        for j in range(history.indptr[sample], history.indptr[sample + 1]):
            r = history.rows[j]
            if place_of_row[r] < 0:
                place_of_row[r] = found
                distinct[found] = r
                found += 1
            field = field_of_row[r]
            slot = first_slot[field] + used[field]
            used[field] += 1
            places[i, slot], values[i, slot] = place_of_row[r], history.values[j]
    for n in range(found):
        place_of_row[distinct[n]] = -1
    return found


class Layout:
    """Where the features of a history's samples stand in a minibatch."""

    def __init__(self, history: History, field_of_row: NDArray[np.uint16], n_fields: int, batch_size: int) -> None:
        self.history, self.field_of_row, self.batch_size = history, field_of_row, batch_size
        widths = np.ones(n_fields, np.int64)
        field_widths(history.indptr, history.rows, field_of_row, widths)
        widths = np.array([_power_of_two(int(width)) for width in widths])
        self.first_slot = np.cumsum(widths) - widths
        self.slot_fields = tuple(np.repeat(np.arange(n_fields), widths).tolist())
        self._place_of_row = np.full(len(field_of_row), -1, np.int32)

    def minibatch(self, samples: NDArray[np.int64], beyond: int) -> tuple[NDArray, ...]:
        """distinct rows (filled up with numbers from `beyond` on, which no row has), places, values, clicks, weights."""
        # New arrays each time: JAX may still be reading the last ones.
        shape = (self.batch_size, len(self.slot_fields))
        distinct = np.zeros(shape[0] * shape[1], np.int32)
        places, values = np.zeros(shape, np.int32), np.zeros(shape, np.float32)
        clicks, weights = np.zeros(shape[0], np.float32), np.zeros(shape[0], np.float32)
        found = fill_minibatch(
            self.history, samples, self.field_of_row, self.first_slot, self._place_of_row, distinct, places, values, clicks, weights
        )
        distinct[found:] = beyond + np.arange(len(distinct) - found)
        return distinct, places, values, clicks, weights


@functools.lru_cache(maxsize=32)
def compiled_step(forward: Callable[[Any, Any], Any], optimizer: str, learning_rate: float, l2: float) -> tuple[Any, Any]:
    """(start, step): the optimisers' first state, and one step of both, for the table's rows and for the dense arrays."""
    import jax
    import optax

    make = {"adagrad": optax.adagrad, "adam": optax.adam}[optimizer]
    rule = make(learning_rate)

    def loss(vectors: Any, dense: Any, places: Any, values: Any, clicks: Any, weights: Any) -> Any:
        used = vectors[places] * values[..., None]
        losses = optax.sigmoid_binary_cross_entropy(forward(used, dense), clicks)
        penalty = l2 * (weights @ (used**2).sum((1, 2)))
        return weights @ losses + penalty

    def start(rows: Any, dense: Any) -> Any:
        return rows, rule.init(rows), dense, rule.init(dense)

    def step(carry: Any, distinct: Any, *minibatch: Any) -> Any:
        rows, rows_state, dense, dense_state = carry

        def take(array: Any) -> Any:
            return array.at[distinct].get(mode="fill", fill_value=0) if array.ndim else array

        def put(array: Any, part: Any) -> Any:
            return array.at[distinct].set(part, mode="drop", unique_indices=True) if array.ndim else part

        part, part_state = take(rows), jax.tree.map(take, rows_state)
        slopes, dense_slopes = jax.grad(loss, (0, 1))(part, dense, *minibatch)
        change, part_state = rule.update(slopes, part_state, part)
        dense_change, dense_state = rule.update(dense_slopes, dense_state, dense)
        rows, rows_state = put(rows, part + change), jax.tree.map(put, rows_state, part_state)
        return rows, rows_state, optax.apply_updates(dense, dense_change), dense_state

    return jax.jit(start), jax.jit(step, donate_argnums=0)


def train(
    forward: Callable[[tuple[int, ...]], Callable[[Any, Any], Any]],
    logits: Logits,
    weights: NDArray[np.float32],
    dense: Dense,
    layout: Layout,
    recipe: Recipe,
) -> Fit:
    """Train from the given start: epochs until the held-out last part of the history gets no better, then once over that part.

    The last pass is for freshness: what is left out would be the most recent of what is known.
    """
    import jax

    history = layout.history
    n = len(history.clicks)
    n_train = n - int(HELD_OUT * n)
    held_out = history.part(n_train, n)
    size = len(weights)
    beyond = _power_of_two(max(size, SMALLEST_TABLE))
    rows = np.zeros((beyond, weights.shape[1]), np.float32)
    rows[:size] = weights
    start, step = compiled_step(forward(layout.slot_fields), recipe.optimizer, recipe.learning_rate, recipe.l2)
    carry = start(rows, dense)

    def arrays() -> tuple[NDArray[np.float32], Dense]:
        return np.array(carry[0][:size]), {name: np.array(array) for name, array in carry[2].items()}

    def run(order: NDArray[np.int64]) -> None:
        nonlocal carry
        for begin in range(0, len(order), recipe.batch_size):
            carry = step(carry, *layout.minibatch(order[begin : begin + recipe.batch_size], beyond))

    best, best_loss, best_epochs = carry, np.inf, 0
    for epoch in range(1, recipe.max_epochs + 1):
        run(np.random.default_rng([recipe.seed, epoch]).permutation(n_train))
        loss = log_loss(logits(*arrays(), held_out), held_out) if n > n_train else np.nan
        if loss >= best_loss:
            carry = best
            break
        best, best_loss, best_epochs = jax.tree.map(lambda array: array.copy(), carry), loss, epoch
    run(np.arange(n_train, n))
    return Fit(*arrays(), best_epochs, float(best_loss))


def log_loss(logits: NDArray[np.float64], samples: History) -> float:
    """The weighted mean log loss."""
    losses = np.logaddexp(0.0, logits) - samples.clicks * logits
    return float(samples.weights @ losses / max(float(samples.weights.sum()), 1e-12))


def _power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()
