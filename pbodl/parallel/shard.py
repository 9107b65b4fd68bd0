"""The parameter server (PBODL Alg. 2): one shard of the weights, which workers pull and update by messages.

A shard holds the rows of the keys that hash to it. Shard 0 also holds the dense weights and the counters. Its arrays are those of
an ordinary model, so a server of one shard *is* a model: it predicts, saves and evicts like one.

Exactly once: the ledger has the last sequence number of every source, and is saved with the weights. A message that was applied
before is dropped and counted. A message that arrives before its predecessor is refused, since the predecessor would be lost.

The shard decays the weights (PBODL eq. 28): if every worker decayed its copy, the messages would remove precision once per worker.
The prior follows the stream (`models.adaptation`) by the evidence of all shards together, since none has all rows of a field. The
coordinator adds up the evidence and sends the new prior as a message, which is applied once like all others. Workers pull the
prior.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from pbodl.data.hashing import wrapping
from pbodl.errors import InputError
from pbodl.kernels.guards import CAUTIOUS
from pbodl.kernels.layers.embedding import initialise_rows
from pbodl.kernels.message_algebra import product
from pbodl.models.adaptation import evidence, exchange, move_centres, row_prior
from pbodl.models.contract import State
from pbodl.models.deep_probit import DeepProbit
from pbodl.models.eviction import make_room, sweep
from pbodl.parallel.message import Message
from pbodl.parallel.weights import Weights, forget, from_vector, moments_of, put, sums_of, take, to_vector

SMOOTHING = 0.1  # weight of the newest message in the running predictive variance
STATE = ("server.ledger", "server.counters", "server.figures")


class Pulled(NamedTuple):
    """What a worker gets: copies of the current weights; `last_seen` and `clock` say how far they have yet to decay."""

    places: NDArray[np.int64]  # which of the keys asked for have rows; the others are their prior
    weights: Weights  # of those; only shard 0 sends the shared part
    counts: NDArray[np.uint32]  # how many samples each of those rows was learned from
    rows_learned: int
    clock: float
    predictive_variance: float  # of z_L, a running mean over the messages; 0 before the first
    version: int  # messages applied so far


class ShardEntry(msgspec.Struct):
    """The ledger's line for one source."""

    sequence: int = 0  # of the last message applied
    rows: int = 0
    precision: float = 0.0  # total added
    repeats: int = 0  # messages dropped because they were applied before; a restart forgets those since the last snapshot
    owner: int = 0  # the epoch of the process that may send messages of this source; 0 where nobody has claimed it


class Fenced(InputError):
    """Another process has claimed this source since; what this one sends does not count."""


class Shard:
    """One shard of the parameter server, over the arrays of `model`, which must hold no rows of other shards."""

    def __init__(self, model: DeepProbit, number: int = 0) -> None:
        self.model, self.number = model, number
        self.ledger: dict[str, ShardEntry] = {}
        self.version = 0
        self.guarded = 0  # weights that the product's guard changed
        self.predictive_variance = 0.0

    def pull(self, keys: NDArray[np.uint64]) -> Pulled:
        """The weights of these keys, and the shared part; changes nothing, and makes no rows for unseen keys."""
        model = self.model
        rows = model.table.find(keys)
        places = np.flatnonzero(rows >= 0)
        at = rows[places]
        weights = take(model, at, shared=self.number == 0)
        return Pulled(
            places, weights, model.table.count[at], model.rows_learned, model.clock, self.predictive_variance, self.version
        )

    def push(self, message: Message) -> bool:
        """Apply a message once; returns False if it was applied before and is therefore dropped.

        In exact arithmetic prior times message *is* the worker's posterior, but rounding would change its last bits. So a lone
        worker also sends the posterior, and the shard stores it if no other message came since the pull: a cluster of one worker
        then trains the same model, bit for bit, as no cluster at all.
        """
        entry = self.ledger.get(message.source, ShardEntry())
        if self.has(message):
            entry.repeats += 1
            return False
        self.check(message)
        model, before = self.model, self.model.clock
        if not model.rows_learned:
            before = model.dense.last_seen[0] = message.clock
        model.clock = max(before, message.clock)
        if message.prior is not None:
            exchange(model, row_prior(model.spec, message.prior[:, :-1], message.prior[:, -1]))
            move_centres(model)
        elif message.posterior is not None and message.version == self.version:
            at = self._rows_of(message)
            put(message.posterior, model, at)
            model.table.count[at] += message.counts.astype(np.uint32)
        else:
            self._multiply(message)
        self._bound(before)
        self._note(message, entry)
        return True

    def evidence(self) -> NDArray[np.float64]:
        """The evidence of this shard's rows about the prior; that of all shards adds up."""
        return evidence(self.model, 0 if self.number else self.model.rows_learned)

    def claim(self, source: str, epoch: int) -> ShardEntry:
        """From now on, only the process with this epoch may send messages of this source; returns where the source stands."""
        entry = self.ledger.setdefault(source, ShardEntry())
        self.check_owner(source, epoch)
        entry.owner = epoch
        return entry

    def check_owner(self, source: str, epoch: int) -> None:
        """Refuse a process that was taken for dead, and has a successor."""
        owner = self.ledger.get(source, ShardEntry()).owner
        if epoch < owner:
            raise Fenced(f"{source!r} belongs to epoch {owner} now; epoch {epoch} was taken for dead")

    def has(self, message: Message) -> bool:
        """Whether the message was applied before."""
        return message.sequence <= self.ledger.get(message.source, ShardEntry()).sequence

    def check(self, message: Message) -> None:
        """Refuse a new message that does not follow the last of its source, or that is of another model."""
        name, last = f"message {message.sequence} of {message.source!r}", self.ledger.get(message.source, ShardEntry()).sequence
        if message.sequence != last + 1:
            raise InputError(f"{name} came when {last} was the last one applied; push those between them first")
        width = self.model.table.column("mean").shape[1] + int(self.model.spec.linear)
        if message.precision_delta.shape != (len(message.keys), width):
            raise InputError(
                f"{name} has deltas of shape {message.precision_delta.shape} for {len(message.keys)} keys, and this model has "
                f"{width} weights a row; give the worker the configuration of the server"
            )

    def _multiply(self, message: Message) -> None:
        """Prior times message (PBODL eq. 26), after the decay up to now."""
        model, table, prior = self.model, self.model.table, self.model.row_prior
        at = self._rows_of(message)
        forget(model, at, model.clock)
        rows = model.rows()
        deltas = message.precision_delta, message.precision_mean_delta
        self.guarded += product(rows.mean, rows.variance, at, prior.variance[message.fields], CAUTIOUS, 0, *deltas)
        if model.spec.linear:
            linear, dim = (rows.linear_mean, rows.linear_variance), rows.mean.shape[1]
            self.guarded += product(*linear, at, prior.linear_variance[message.fields, None], CAUTIOUS, dim, *deltas)
        table.count[at] += message.counts.astype(np.uint32)
        if len(message.dense_precision_delta):
            self._multiply_dense(message)
            model.dense.total[:] += message.total
        if message.scale.any():
            model.scale.moments = moments_of(sums_of(model.scale.moments) + message.scale)

    def _multiply_dense(self, message: Message) -> None:
        dense, sizes = self.model.dense, self.model.shape.sizes
        mean, variance = to_vector(dense.mean, sizes)[None], to_vector(dense.variance, sizes)[None]
        deltas = message.dense_precision_delta[None], message.dense_precision_mean_delta[None]
        prior = to_vector(dense.prior_variance, sizes)[None]
        self.guarded += product(mean, variance, np.zeros(1, np.int32), prior, CAUTIOUS, 0, *deltas)
        from_vector(mean[0], sizes, dense.mean)
        from_vector(variance[0], sizes, dense.variance)

    def _rows_of(self, message: Message) -> NDArray[np.int32]:
        """The table's rows of the message's keys; unseen keys start at their prior."""
        table = self.model.table
        old_size = table.size
        at = table.insert(message.keys)
        new = at >= old_size
        table.field[at[new]] = message.fields[new]
        table.last_seen[at[new]] = message.clock
        with wrapping():
            initialise_rows(self.model.rows(), table.keys[old_size:], table.field[old_size:], old_size, self.model.row_prior)
        return at

    def _bound(self, before: float) -> None:
        """Drop rows past their time to live, and rows above the capacity."""
        model, capacity = self.model, self.model.table.capacity
        sweep(model.table, before, np.array([model.clock]))
        while capacity is not None and model.table.size > capacity:
            make_room(model, model.clock)

    def _note(self, message: Message, entry: ShardEntry) -> None:
        self.model.rows_learned += message.counted
        self.model.rejected[: len(message.rejected)] += message.rejected  # older journals count rejected updates alone
        if np.isfinite(message.variance):
            weight = SMOOTHING if self.predictive_variance else 1.0
            self.predictive_variance += weight * (message.variance - self.predictive_variance)
        self.version += 1
        entry.sequence, entry.rows = message.sequence, entry.rows + message.rows
        entry.precision += message.precision
        self.ledger[message.source] = entry

    def state(self) -> State:
        """The model's state with the ledger: the weights and the messages they contain, at one moment."""
        ledger = np.frombuffer(msgspec.json.encode(self.ledger), np.uint8)
        counters, figures = np.array([self.version, self.guarded]), np.array([self.predictive_variance])
        return self.model.state() | dict(zip(STATE, (ledger, counters, figures), strict=True))

    def load_state(self, state: Mapping[str, NDArray]) -> None:
        """Restore a shard from its `state()`."""
        for name in STATE:
            if name not in state:
                raise InputError(f"the state has no {name!r}: it is that of a model, not of a server's shard")
        try:
            ledger = msgspec.json.decode(np.asarray(state["server.ledger"]).tobytes(), type=dict[str, ShardEntry])
        except msgspec.MsgspecError as error:
            raise InputError(f"the state's ledger is damaged: {error}") from error
        self.model.load_state({name: array for name, array in state.items() if name not in STATE})
        self.ledger = ledger
        self.version, self.guarded = (int(n) for n in state["server.counters"])
        self.predictive_variance = float(state["server.figures"][0])
