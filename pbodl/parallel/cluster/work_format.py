"""The bytes that travel between processes besides messages: minibatches and weights to the workers, results back.

All are named arrays (`system.tensors`).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl.data.batch import Batch
from pbodl.parallel.shard import Pulled
from pbodl.parallel.weights import Weights
from pbodl.system.tensors import Bytes, pack, unpack

PULLED_NUMBERS = ("rows_learned", "clock", "predictive_variance", "version")


class Work(NamedTuple):
    """A minibatch for a worker: number `sequence` of its source, one of `workers` minibatches learned at the same time."""

    sequence: int
    workers: int
    batch: Batch


class Done(NamedTuple):
    """A worker's answer after all shards have acknowledged its message."""

    ctr: NDArray[np.float64]  # predicted for each row before learning it; NaN if the prediction died with an earlier process
    variance: float  # predictive, in shard 0 when the worker pulled the weights
    staleness: int  # messages of other sources that shard 0 applied between pull and push


def encode_work(work: Work) -> bytes:
    """Values are left out if all are 1, as in most logs, and stages if all labels are final."""
    batch = work.batch
    assert batch.clicks is not None
    arrays = {"numbers": np.array([work.sequence, work.workers]), "keys": batch.keys, "fields": batch.fields.astype(np.uint16)}
    arrays |= {"indptr": batch.indptr, "clicks": batch.clicks, "times": batch.times, "weights": batch.weights}
    if not (batch.values == 1.0).all():
        arrays["values"] = batch.values
    if batch.came_before is not None:
        arrays["came_before"], arrays["came_by"] = batch.stages()
    return pack(arrays)


def decode_work(content: Bytes) -> Work:
    arrays = unpack(content)
    sequence, workers = arrays.pop("numbers").tolist()
    values = arrays.pop("values", None)
    if values is None:
        values = np.ones(len(arrays["keys"]), np.float32)
    fields = arrays.pop("fields").astype(np.int32)
    return Work(sequence, workers, Batch(values=values, fields=fields, **arrays))


def encode_pulled(pulled: Pulled, sequence: int) -> bytes:
    """A shard's answer to a pull; `sequence` is the last message that it applied from the asking source."""
    arrays = {"places": pulled.places, "counts": pulled.counts, **{f"weights.{k}": v for k, v in pulled.weights._asdict().items()}}
    arrays["numbers"] = np.array([sequence, *(getattr(pulled, name) for name in PULLED_NUMBERS)], np.float64)
    return pack(arrays)


def decode_pulled(content: Bytes) -> tuple[Pulled, int]:
    arrays = unpack(content)
    sequence, rows_learned, clock, variance, version = arrays.pop("numbers").tolist()
    places, counts = arrays.pop("places"), arrays.pop("counts")
    weights = Weights(**{name.removeprefix("weights."): array for name, array in arrays.items()})
    return Pulled(places, weights, counts, int(rows_learned), clock, variance, int(version)), int(sequence)


def encode_done(done: Done) -> bytes:
    return pack({"ctr": done.ctr, "numbers": np.array([done.variance, done.staleness], np.float64)})


def decode_done(content: Bytes) -> Done:
    arrays = unpack(content)
    variance, staleness = arrays["numbers"].tolist()
    return Done(arrays["ctr"], variance, int(staleness))
