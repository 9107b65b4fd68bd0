"""A message: what some rows of data added to the weights, in natural parameters (PBODL eq. 27), and its format on the wire.

Messages are sums of plain arrays: `merge` adds them, `split` divides one among the shards that hold its keys. (source, sequence)
identifies a message, so that a second delivery is recognised.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl.data.table.feature_table import Table
from pbodl.errors import InputError
from pbodl.kernels.message_algebra import add_rows
from pbodl.models.sharded_state import shard_of
from pbodl.parallel.weights import Weights
from pbodl.system.tensors import Bytes, pack, unpack

HALF_LARGEST = 60000.0  # a little below the largest float16
DELTAS = ("precision_delta", "precision_mean_delta", "dense_precision_delta", "dense_precision_mean_delta")
SUMS = ("total", "scale", "rejected")  # of shard 0
ROWS = ("keys", "fields", "counts", "precision_delta", "precision_mean_delta")
POSTERIOR_ROWS = ("mean", "variance", "last_seen")
NOTHING = np.zeros(0, np.float32)
SCALARS = {"sequence": "i8", "rows": "i8", "counted": "i8", "version": "i8", "clock": "f8", "variance": "f8"}


class Message(NamedTuple):
    """Natural-parameter deltas of k rows of weights (the embedding's, then the linear one) and of the n dense weights."""

    source: str
    sequence: int  # 1, 2, 3, ... of this source
    rows: int  # samples it was made from, for the ledger
    counted: int  # those among them that count as rows learned (`Batch.counted`)
    clock: float  # of the last sample
    variance: float  # the samples' mean predictive variance, of z_L
    keys: NDArray[np.uint64]  # [k], in the order of their first sample
    fields: NDArray[np.uint16]  # [k]
    counts: NDArray[np.int32]  # [k]: of the counted samples, those that touched the row
    precision_delta: NDArray[np.float32]  # [k, width]
    precision_mean_delta: NDArray[np.float32]
    dense_precision_delta: NDArray[np.float32]  # [n], or [0] for a shard without the dense weights
    dense_precision_mean_delta: NDArray[np.float32]
    total: NDArray[np.float64]  # added to the sums of hidden units (`kernels.arguments.Dense`)
    scale: NDArray[np.float64]  # [fields, 3]: count, sum, sum of squares of the scaled numbers
    rejected: NDArray[np.int64]  # [6]: as the worker's guards counted (`kernels.arguments.Outputs`)
    version: int = -1  # of the shard that a lone worker pulled from
    posterior: Weights | None = None  # the final weights of a lone worker: see `Shard.push`
    prior: NDArray[np.float32] | None = (
        None  # [fields, groups + 1]: the prior to adopt (`Weights.prior`); such a message has no rows
    )

    @property
    def precision(self) -> float:
        """The sum of all precision that it adds, for the ledger."""
        return float(self.precision_delta.sum(dtype=np.float64) + self.dense_precision_delta.sum(dtype=np.float64))


def merge(messages: Sequence[Message], source: str, sequence: int) -> Message:
    """The product of messages as one message with its own source and sequence."""
    index = Table({})
    at = [index.insert(message.keys) for message in messages]
    k, width = index.size, messages[0].precision_delta.shape[1]
    deltas = [np.zeros((k, width)), np.zeros((k, width))]
    fields, counts = np.zeros(k, np.uint16), np.zeros(k, np.int32)
    for rows_of, message in zip(at, messages, strict=True):
        fields[rows_of] = message.fields
        counts[rows_of] += message.counts
        add_rows(rows_of, message.precision_delta, deltas[0])
        add_rows(rows_of, message.precision_mean_delta, deltas[1])
    rows, counted = (sum(getattr(message, name) for message in messages) for name in ("rows", "counted"))
    return Message(
        source, sequence, rows, counted, max(message.clock for message in messages),
        float(np.mean([message.variance for message in messages])), index.keys.copy(), fields, counts,
        deltas[0].astype(np.float32), deltas[1].astype(np.float32), _sum(messages, "dense_precision_delta"),
        _sum(messages, "dense_precision_mean_delta"), _sum(messages, "total"), _sum(messages, "scale"), _sum(messages, "rejected"),
    )  # fmt: skip


def prior_message(source: str, sequence: int, prior: NDArray[np.float32], width: int) -> Message:
    """The message that tells shards, whose rows have `width` weights, to adopt a prior."""
    none, rows = np.zeros(0, np.float32), np.zeros((0, width), np.float32)
    return Message(
        source, sequence, 0, 0, -np.inf, np.nan, np.zeros(0, np.uint64), np.zeros(0, np.uint16), np.zeros(0, np.int32), rows, rows,
        none, none, np.zeros((0, 0)), np.zeros((len(prior), 3)), np.zeros(6, np.int64), prior=prior,
    )  # fmt: skip


def split(message: Message, shards: int) -> list[Message]:
    """One message for every shard, with the rows of that shard; the shared part and the counters go to shard 0."""
    if shards == 1:
        return [message]
    home = shard_of(message.keys, shards)
    parts = []
    for shard in range(shards):
        at = np.flatnonzero(home == shard)
        part = message._replace(**{name: getattr(message, name)[at] for name in ROWS})
        if message.posterior is not None:
            posterior = message.posterior
            part = part._replace(posterior=posterior._replace(**{name: getattr(posterior, name)[at] for name in POSTERIOR_ROWS}))
        if shard:
            part = part._replace(**{name: np.zeros_like(getattr(message, name)) for name in SUMS})
            part = part._replace(dense_precision_delta=NOTHING, dense_precision_mean_delta=NOTHING)
            if part.posterior is not None:
                part = part._replace(posterior=part.posterior._replace(dense_mean=NOTHING, dense_variance=NOTHING))
        parts.append(part)
    return parts


def encode(message: Message, half: bool = False) -> bytes:
    """The message as bytes (safetensors); `half` sends its deltas in 16 bits, each array scaled to use float16's range."""
    posterior = message.posterior
    scalars = np.array([tuple(getattr(message, name) for name in SCALARS)], list(SCALARS.items()))
    arrays: dict[str, NDArray] = {"source": np.frombuffer(message.source.encode(), np.uint8), "scalars": scalars.view(np.uint8)}
    for name in ("keys", "fields", "counts", *DELTAS, *SUMS):
        arrays[name] = getattr(message, name)
    if message.prior is not None:
        arrays["prior"] = message.prior
    if posterior:
        arrays |= {f"posterior.{name}": array for name, array in posterior._asdict().items()}
    elif half:
        for name in DELTAS:
            unit = max(float(np.abs(arrays[name]).max(initial=0.0)), 1e-30) / HALF_LARGEST
            arrays[name], arrays[f"{name}.unit"] = (arrays[name] / unit).astype(np.float16), np.array([unit])
    return pack(arrays)


def decode(content: Bytes) -> Message:
    """The message that `encode` turned into these bytes."""
    try:
        arrays: dict[str, Any] = unpack(content)
        scalars = dict(zip(SCALARS, arrays.pop("scalars").view(list(SCALARS.items()))[0].item(), strict=True))
        source = arrays.pop("source").tobytes().decode()
        for unit in [name for name in arrays if name.endswith(".unit")]:
            name = unit.removesuffix(".unit")
            arrays[name] = arrays[name].astype(np.float32) * np.float32(arrays.pop(unit)[0])
        ended = {name: arrays.pop(name) for name in list(arrays) if name.startswith("posterior.")}
        posterior = Weights(**{name.removeprefix("posterior."): array for name, array in ended.items()}) if ended else None
        return Message(source=source, **scalars, **arrays, posterior=posterior)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"these {len(content)} bytes are not a message ({type(error).__name__}: {error})") from error


def _sum(messages: Sequence[Message], name: str) -> NDArray:
    total = np.sum([getattr(message, name) for message in messages], axis=0, dtype=np.float64)
    return total.astype(getattr(messages[0], name).dtype)
