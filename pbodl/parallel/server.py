"""The parameter server (PBODL Alg. 2): one shard of the weights, which workers pull, and into which it multiplies their messages.

A shard holds the rows of the keys that hash to it; shard 0 also the dense weights, and what is counted once. Its arrays are those of an
ordinary model, so that a server of one shard *is* a model: it predicts, saves and evicts as one.

Exactly once: the ledger has the last sequence number of every source, and lies in the same state as the weights. A message that was
applied before is dropped and counted; one that comes before its predecessor is refused, since the predecessor would be lost.

Decay is the shard's (PBODL eq. 28): if every worker decayed its copy, the messages would take precision away once per worker.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from pbodl.errors import InputError
from pbodl.kernels.embedding import Features, forget_rows, initialise_rows
from pbodl.kernels.message import product
from pbodl.kernels.network import forget_dense
from pbodl.models.contract import State
from pbodl.models.deep_probit import DeepProbit
from pbodl.models.eviction import make_room, sweep
from pbodl.parallel.layout import from_vector, moments_of, side_by_side, sums_of, to_vector
from pbodl.parallel.message import Message, Posterior

SMOOTHING = 0.1  # weight of the newest message in the running predictive variance
NOTHING = np.zeros(0, np.float32)
STATE = ("server.ledger", "server.counters", "server.figures")


class Pulled(NamedTuple):
    """What a worker gets: copies, as they stand; `last_seen` and `clock` say how far they have yet to decay."""

    places: NDArray[np.int64]  # which of the keys asked for have rows; the others are their prior
    mean: NDArray[np.float32]  # [rows, width]: the embedding's, then the linear weight
    variance: NDArray[np.float32]
    last_seen: NDArray[np.float64]
    count: NDArray[np.uint32]
    dense_mean: NDArray[np.float32]  # [n]; [0] from another shard than 0
    dense_variance: NDArray[np.float32]
    dense_last_seen: float
    scale: NDArray[np.float64]
    rows_learned: int
    clock: float
    predictive_variance: float  # running mean over the messages; 0 before the first
    version: int  # messages applied so far


class Entry(msgspec.Struct):
    """The ledger's line for one source."""

    sequence: int = 0  # of the last message applied
    rows: int = 0
    precision: float = 0.0  # added in all
    repeats: int = 0  # messages dropped, having been applied before


class Shard:
    """One shard of the parameter server, over the arrays of `model`, which must hold no rows of other shards."""

    def __init__(self, model: DeepProbit, number: int = 0) -> None:
        self.model, self.number = model, number
        self.ledger: dict[str, Entry] = {}
        self.version = 0
        self.guarded = 0  # weights that the product's guard touched
        self.predictive_variance = 0.0

    def pull(self, keys: NDArray[np.uint64]) -> Pulled:
        """The weights of these keys, and the dense ones; changes nothing, and makes no rows for unseen keys."""
        model, table = self.model, self.model.table
        found = table.find(keys)
        places = np.flatnonzero(found >= 0)
        at = found[places]
        mean, variance = side_by_side(model, at)
        dense = [NOTHING, NOTHING]
        if self.number == 0:
            dense = [to_vector(padded, model.shape.sizes) for padded in (model.dense.mean, model.dense.variance)]
        return Pulled(
            places, mean, variance, table.last_seen[at], table.count[at], dense[0], dense[1], float(model.dense.last_seen[0]),
            model.scale.moments.copy(), model.rows_learned, model.clock, self.predictive_variance, self.version,
        )  # fmt: skip

    def push(self, message: Message) -> bool:
        """Apply a message, once: False says that it had been applied before, and was dropped.

        In exact arithmetic prior times message *is* the worker's posterior, but rounding would change its last bits. So a lone
        worker sends the posterior along, and if nobody else has pushed since it pulled, that is what is stored: one worker
        then trains the very model, bit for bit, that no cluster at all would have.
        """
        entry = self.ledger.get(message.source, Entry())
        if message.sequence <= entry.sequence:
            entry.repeats += 1
            return False
        if message.sequence != entry.sequence + 1:
            raise InputError(
                f"message {message.sequence} of {message.source!r} came after {entry.sequence}; push those between them first"
            )
        self._check(message)
        model, before = self.model, self.model.clock
        if not model.rows_learned:
            before = model.dense.last_seen[0] = message.clock
        model.clock = max(before, message.clock)
        if message.posterior is not None and message.posterior.version == self.version:
            self._assign(message, message.posterior)
        else:
            self._multiply(message)
        sweep(model.table, before, np.array([model.clock]))
        while model.spec.capacity is not None and model.table.size > model.spec.capacity:
            make_room(model, model.clock)
        model.rows_learned += message.rows
        model.rejected += message.rejected
        weight = SMOOTHING if self.version else 1.0
        self.predictive_variance += weight * (message.variance - self.predictive_variance)
        self.version += 1
        entry.sequence, entry.rows = message.sequence, entry.rows + message.rows
        entry.precision += message.precision
        self.ledger[message.source] = entry
        return True

    def _check(self, message: Message) -> None:
        width = sum(self.model.table.column(name).shape[1] for name in ("mean", "linear_mean")[: 1 + self.model.spec.linear])
        if message.precision_delta.shape != (len(message.keys), width):
            raise InputError(
                f"message {message.sequence} of {message.source!r} has deltas of shape {message.precision_delta.shape} for "
                f"{len(message.keys)} keys; this model has {width} weights a row: the worker must have the same configuration"
            )

    def _multiply(self, message: Message) -> None:
        """Prior times message (PBODL eq. 26), after the decay up to its clock."""
        model, table, prior = self.model, self.model.table, self.model.row_prior
        # A message that takes another back has nothing to take from a row that is gone.
        at = self._rows_of(message) if message.rows >= 0 else table.find(message.keys)
        self._decay(at[at >= 0])
        rows = model.rows()
        deltas = message.precision_delta, message.precision_mean_delta
        self.guarded += product(rows.mean, rows.variance, at, prior.variance[message.fields], 0, *deltas)
        if model.spec.linear:
            linear = rows.linear_mean, rows.linear_variance, at, prior.linear_variance[message.fields], rows.mean.shape[1]
            self.guarded += product(*linear, *deltas)
        here = at >= 0
        count = table.count[at[here]].astype(np.int64) + message.counts[here]
        table.count[at[here]] = np.maximum(count, 0)
        if len(message.dense_precision_delta):
            self._multiply_dense(message)
        if message.scale.any():
            model.scale.moments = moments_of(sums_of(model.scale.moments) + message.scale)

    def _multiply_dense(self, message: Message) -> None:
        model, sizes = self.model, self.model.shape.sizes
        forget_dense(model.dense, model.shape, model.clock, model.forgetting)
        mean, variance = to_vector(model.dense.mean, sizes)[None], to_vector(model.dense.variance, sizes)[None]
        deltas = message.dense_precision_delta[None], message.dense_precision_mean_delta[None]
        self.guarded += product(mean, variance, np.zeros(1, np.int32), np.array([model.dense.prior_variance]), 0, *deltas)
        from_vector(mean[0], sizes, model.dense.mean)
        from_vector(variance[0], sizes, model.dense.variance)

    def _assign(self, message: Message, posterior: Posterior) -> None:
        model, table = self.model, self.model.table
        at = self._rows_of(message)
        dim = table.column("mean").shape[1]
        table.column("mean")[at], table.column("variance")[at] = posterior.mean[:, :dim], posterior.variance[:, :dim]
        if model.spec.linear:
            table.column("linear_mean")[at] = posterior.mean[:, dim:]
            table.column("linear_variance")[at] = posterior.variance[:, dim:]
        table.last_seen[at] = posterior.last_seen
        table.count[at] += message.counts.astype(np.uint32)
        from_vector(posterior.dense_mean, model.shape.sizes, model.dense.mean)
        from_vector(posterior.dense_variance, model.shape.sizes, model.dense.variance)
        model.dense.last_seen[:] = posterior.dense_last_seen
        model.scale.moments = posterior.scale.copy()

    def _rows_of(self, message: Message) -> NDArray[np.int32]:
        """The table's rows of the message's keys; unseen ones start at their prior."""
        table = self.model.table
        old_size = table.size
        at = table.insert(message.keys)
        new = at >= old_size
        table.field[at[new]] = message.fields[new]
        table.last_seen[at[new]] = message.clock
        with np.errstate(over="ignore"):
            initialise_rows(self.model.rows(), table.keys[old_size:], table.field[old_size:], old_size, self.model.row_prior)
        return at

    def _decay(self, at: NDArray[np.int32]) -> None:
        model, table = self.model, self.model.table
        if model.forgetting.half_life > 0.0:
            ends, fields = np.array([0, len(at)]), table.field[at].astype(np.int32)
            features = Features(ends, at, table.keys[at], np.ones(len(at), np.float32), fields)
            forget_rows(model.rows(), features, 0, model.clock, model.row_prior, model.forgetting)
        table.last_seen[at] = model.clock

    def state(self) -> State:
        """The model's state with the ledger inside: the weights and what they were made of, of one moment."""
        ledger = np.frombuffer(msgspec.json.encode(self.ledger), np.uint8)
        counters, figures = np.array([self.version, self.guarded]), np.array([self.predictive_variance])
        return self.model.state() | dict(zip(STATE, (ledger, counters, figures), strict=True))

    def load_state(self, state: Mapping[str, NDArray]) -> None:
        """Become the shard whose `state()` this is."""
        for name in STATE:
            if name not in state:
                raise InputError(f"the state has no {name!r}; it is that of a model, not of a server's shard")
        try:
            ledger = msgspec.json.decode(np.asarray(state["server.ledger"]).tobytes(), type=dict[str, Entry])
        except msgspec.DecodeError as error:
            raise InputError(f"the state's ledger is damaged: {error}") from error
        self.model.load_state({name: array for name, array in state.items() if name not in STATE})
        self.ledger = ledger
        self.version, self.guarded = (int(n) for n in state["server.counters"])
        self.predictive_variance = float(state["server.figures"][0])
