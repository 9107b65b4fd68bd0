"""Training in minibatches with JAX and optax: epochs over a history, early stopping on its last part.

A network is a function `forward(vectors, dense) -> logits`: `vectors` (samples, slots, D) are the table's rows of a sample's
features, times their values; `dense` are its other arrays, by name. Gradients reach only the rows of a minibatch: each step gathers
these rows with their part of the optimiser's state, updates them, and puts them back. So the cost of a step depends on its samples,
not on the size of the table.

Shapes are rounded up, so that one compiled step serves every minibatch, and most later fits.
"""

import functools
import importlib.util
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl.baselines.buffer import SampleHistory
from pbodl.baselines.minibatch import MinibatchLayout, power_of_two
from pbodl.errors import InputError
from pbodl.system.extras import install_line

OPTIMIZERS = {"adagrad": 0.03, "adam": 0.001}  # with their default learning rates
# The loss of a minibatch is a sum, so that a rare feature's first step follows its gradient: α g/√(1 + Σg²).
ADAGRAD_START = 1.0
HELD_OUT = 0.1  # share of the history whose last part decides when to stop
SMALLEST_TABLE = 1024
Floats = NDArray[np.float32]
Dense = dict[str, Floats]
Forward = Callable[[Any, Any], Any]


class Recipe(NamedTuple):
    """How to train."""

    optimizer: str
    learning_rate: float
    l2: float
    batch_size: int
    max_epochs: int
    seed: int


class Fit(NamedTuple):
    """The result of training."""

    weights: Floats  # the table's rows
    dense: Dense
    epochs: int  # the best number of epochs
    log_loss: float  # of the held-out part, before it was learned from; NaN if there is none


def require_jax() -> None:
    """Refuse to train without the libraries of the extra `batch`."""
    if importlib.util.find_spec("jax") is None or importlib.util.find_spec("optax") is None:
        raise InputError(f"the batch models are trained by JAX and optax, which are not installed; run: {install_line('batch')}")


@functools.lru_cache(maxsize=32)
def compiled_step(forward: Forward, optimizer: str, learning_rate: float, l2: float) -> tuple[Any, Any]:
    """(start, step): start makes the carry (rows, their optimiser's state, dense, its state), step updates it by one minibatch."""
    import jax
    import optax

    if optimizer == "adagrad":
        rule = optax.adagrad(learning_rate, initial_accumulator_value=ADAGRAD_START)
    else:
        rule = optax.adam(learning_rate)

    def loss(vectors: Any, dense: Any, indices: Any, values: Any, clicks: Any, weights: Any) -> Any:
        used = vectors[indices] * values[..., None]
        losses = optax.sigmoid_binary_cross_entropy(forward(used, dense), clicks)
        return weights @ (losses + l2 * (used**2).sum((1, 2)))

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


class FittingRun:
    """The arrays of a training run, on JAX's side."""

    def __init__(self, forward: Forward, weights: Floats, dense: Dense, layout: MinibatchLayout, recipe: Recipe) -> None:
        self.layout, self.recipe = layout, recipe
        self.size = len(weights)
        self.allocated = power_of_two(max(self.size, SMALLEST_TABLE))
        rows = np.zeros((self.allocated, weights.shape[1]), np.float32)
        rows[: self.size] = weights
        start, self._step = compiled_step(forward, recipe.optimizer, recipe.learning_rate, recipe.l2)
        self.carry = start(rows, dense)

    def learn(self, order: NDArray[np.int64]) -> None:
        """One step per minibatch of samples, in the given order."""
        for begin in range(0, len(order), self.recipe.batch_size):
            samples = order[begin : begin + self.recipe.batch_size]
            self.carry = self._step(self.carry, *self.layout.minibatch(samples, self.allocated))

    def copied_carry(self) -> Any:
        """A copy of the carry: a step overwrites the original."""
        import jax

        return jax.tree.map(lambda array: array.copy(), self.carry)

    def arrays(self) -> tuple[Floats, Dense]:
        """Copies of the rows and of the dense arrays."""
        return np.array(self.carry[0][: self.size]), {name: np.array(array) for name, array in self.carry[2].items()}


def train(run: FittingRun, logits: Callable[[Floats, Dense, SampleHistory], NDArray[np.float64]]) -> Fit:
    """Train epochs until predictions of the held-out last part stop improving; then learn that part once too.

    Without the last pass the most recent rows would never be learned.
    """
    history, recipe = run.layout.history, run.recipe
    n = len(history.clicks)
    n_train = training_part(n)
    held_out = history.part(n_train, n)
    best, best_loss, best_epochs = None, np.inf, 0
    for epoch in range(1, recipe.max_epochs + 1):
        run.learn(np.random.default_rng([recipe.seed, epoch]).permutation(n_train))
        loss = log_loss(logits(*run.arrays(), held_out), held_out)
        if loss >= best_loss:
            run.carry = best
            break
        best, best_loss, best_epochs = run.copied_carry(), loss, epoch
    run.learn(np.arange(n_train, n))
    return Fit(*run.arrays(), best_epochs, float(best_loss))


def training_part(samples: int) -> int:
    """How many samples of a history, from the first, are for training."""
    return samples - int(HELD_OUT * samples)


def log_loss(logits: NDArray[np.float64], samples: SampleHistory) -> float:
    """The weighted mean log loss; NaN without samples."""
    losses = np.logaddexp(0.0, logits) - samples.clicks * logits
    total = float(samples.weights.sum())
    return float(samples.weights @ losses) / total if total > 0.0 else float("nan")
