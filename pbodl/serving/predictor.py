"""The predictor: one version of a model, ready to score the candidates of a request.

What the candidates share is worked out once; each candidate's own features when a version first meets the ad; the dense layers for
many candidates at once. The answers are those of `model.predict` on the expanded rows, whatever is remembered. Nothing that is seen
from outside changes after it was made, so that any number of requests may use it while the next version is prepared beside it.
"""

from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl.data.arrays import Batch
from pbodl.data.hashing import wrapping
from pbodl.data.sampling import recalibrate
from pbodl.data.schema import nearest
from pbodl.errors import InputError
from pbodl.kernels.interaction import CONCAT, FFM, FM, GROUP_FM
from pbodl.kernels.layers import pack_layers
from pbodl.models.contract import Model
from pbodl.models.deep_probit import DeepProbit
from pbodl.serving.click_moments import click_moments
from pbodl.serving.encoding import Encoded, encoder_of
from pbodl.serving.follower import Version
from pbodl.serving.remembered import CAPACITY, Remembered
from pbodl.serving.request import EMPTY, Operation, Samples, Sums, score_candidates, sum_features, zero_sums

F32 = np.float32


class Scores(NamedTuple):
    """Of each candidate: the CTR, recalibrated, and its standard deviation; the latent Gaussian behind both."""

    ctr: NDArray[np.float64]
    std: NDArray[np.float64]
    mean: NDArray[np.float64]
    variance: NDArray[np.float64]


class Predictor:
    """Scores requests by one version of a model; any number of threads may ask.

    >>> import pbodl
    >>> schema = pbodl.Schema(label="click", fields=[pbodl.Field("user", group="user"), pbodl.Field("ad", group="ad")])
    >>> model = pbodl.FMMLP(schema, dim=4, hidden=(8,))
    >>> _ = model.learn([{"user": u, "ad": a, "click": int(u == a)} for _ in range(30) for u in range(3) for a in range(3)])
    >>> scores = Predictor.of(model).score({"user": 1}, {}, [{"ad": 1}, {"ad": 2}, {"ad": "never seen"}])
    >>> bool(scores.ctr[0] > 0.5 > scores.ctr[1]), bool(scores.std[2] > scores.std[1])
    (True, True)
    """

    def __init__(self, version: Version) -> None:
        model, layout = version.model, version.table.layout
        self.version = version
        self.schema = model.schema
        self.encoder = encoder_of(model.schema)
        self._class_of_field, self._classes = _classes(model)
        own, shared = self._class_of_field[self.encoder.own_fields], self._class_of_field[self.encoder.shared_fields]
        about = (np.int64(layout.vectors), np.int64(layout.dim), np.int64(_own_class(model, own, shared)))
        self._operation = Operation(model.shape.op, model.shape.mode, *about)
        self._packed = version.table.packed()
        self._layers = pack_layers(model.dense, model.shape.sizes)
        scaled = [field.kind == "number" and field.transform == "scale" for field in model.schema.fields]
        self._scaled = np.array(scaled, bool)
        self._remembered = Remembered(CAPACITY, len(self.encoder.own), self._classes, self._operation)
        self._lock = Lock()

    @classmethod
    def of(cls, model: Model) -> "Predictor":
        """A predictor of a model as it is now."""
        return cls(Version.of(model))

    def score(self, user: Mapping[str, Any], context: Mapping[str, Any], candidates: Sequence[Mapping[str, Any]]) -> Scores:
        """Score candidates for a user in a context; each gives its fields' values by name, and what is not given is missing."""
        names = [field.name for field in self.encoder.own]
        shared = {**user, **context}
        _refuse_unknown("the user and the context", shared, self.encoder.shared_names)
        _refuse_unknown("a candidate", set().union(*candidates), names)
        own = self.encoder.encode_own([tuple(map(candidate.get, names)) for candidate in candidates])
        return self.score_encoded(self.encoder.encode_shared(shared), own)

    def score_encoded(self, shared: Encoded, own: Encoded) -> Scores:
        """As `score`, for features that the encoder made."""
        n = len(own.keys)
        mean, variance, ctr, std = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
        if n:
            # The memory is for one thread at a time; whoever finds it taken, or has ads of another form, goes without.
            if own.plain and n <= CAPACITY and self._lock.acquire(blocking=False):
                try:
                    self._score(shared, own, self._remembered, mean, variance)
                finally:
                    self._lock.release()
            else:
                self._score(shared, own, None, mean, variance)
            click_moments(mean, variance, ctr, std)
        kept = self.version.model.negative_rate
        if kept != 1.0:
            # The slope of the recalibration at the CTR carries its deviation over.
            std /= kept * (ctr + (1.0 - ctr) / kept) ** 2
        return Scores(recalibrate(ctr, kept), std, mean, variance)

    def _score(
        self, shared: Encoded, own: Encoded, remembered: Remembered | None, mean: NDArray[np.float64], variance: NDArray[np.float64]
    ) -> None:
        """MODIFIES: mean, variance; what is remembered."""
        operation, classes, model = self._operation, self._classes, self.version.model
        about = (operation, model.clock, model.row_prior, model.forgetting)
        common = zero_sums(1, classes, operation)
        with wrapping():
            sum_features(self._packed, self._samples(shared), *about, np.zeros(1, np.int32), common)
            if remembered is None:
                fresh = places = np.arange(len(own.keys), dtype=np.int32)
                sums = zero_sums(len(own.keys), classes, operation)
            else:
                places, fresh = remembered.places(own.keys)
                sums = remembered.sums
            if len(fresh):
                part = own if remembered is None else Encoded(own.keys[fresh], own.values[fresh], own.fields, None)
                sum_features(self._packed, self._samples(part), *about, places[fresh], sums)
        together = Sums(*(part[0] for part in common))
        score_candidates(together, sums, places, operation, self._layers, model.shape, mean, variance)

    def _samples(self, encoded: Encoded) -> Samples:
        """The features, looked up."""
        keys = encoded.keys
        rows = self.version.table.find(keys.reshape(-1)).reshape(keys.shape)
        if encoded.filled is not None:
            rows[~encoded.filled] = EMPTY
        return Samples(rows, keys, self._values(encoded), encoded.fields, self._class_of_field[encoded.fields])

    def _values(self, encoded: Encoded) -> NDArray[np.float32]:
        """The values, standardised where a field asks for it."""
        n, slots = encoded.keys.shape
        if not self._scaled[encoded.fields].any():
            return encoded.values
        nothing = np.zeros(0, F32)
        batch = Batch(
            encoded.keys.reshape(-1), encoded.values.reshape(-1), np.tile(encoded.fields, n), np.arange(n + 1) * slots,
            None, nothing.astype(np.float64), nothing,
        )  # fmt: skip
        return self.version.model.scale.peek(batch).reshape(n, slots)


def _refuse_unknown(what: str, given: Iterable[str], known: Iterable[str]) -> None:
    known = sorted(known)
    for name in given:
        if name not in known:
            raise InputError(f"unknown field {name!r}{nearest(name, known)}; the fields of {what} are: {', '.join(known)}")


def _classes(model: DeepProbit) -> tuple[NDArray[np.int32], int]:
    """The class of every field, and how many classes there are."""
    fields = len(model.schema.fields)
    if model.shape.op in (FFM, GROUP_FM):
        return model.schema.group_codes, len(model.schema.groups)
    if model.op == CONCAT:
        return np.arange(fields, dtype=np.int32), fields
    return np.zeros(fields, np.int32), 1


def _own_class(model: DeepProbit, own: NDArray[np.int32], shared: NDArray[np.int32]) -> int:
    """Where FM's own sums are; -1 where it is not used, or own features share a group with others, or are of several groups."""
    if model.shape.op == FM:
        return 0
    alone = model.shape.op == GROUP_FM and len(set(own.tolist())) == 1 and own[0] not in shared
    return int(own[0]) if alone else -1
