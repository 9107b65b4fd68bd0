"""The predictor: one version of a model, ready to score the candidates of a request.

What the candidates share is worked out once; then each candidate's own features, and the dense layers for all candidates at once.
The answers are those of `model.predict` on the expanded rows. Nothing here changes after it was made, so that any number of requests
may use it while the next version is prepared beside it; but what was worked out for an ad is remembered for the next request.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl.data.arrays import Batch
from pbodl.data.sampling import recalibrate
from pbodl.data.schema import nearest
from pbodl.errors import InputError
from pbodl.kernels.interaction import CONCAT, FFM
from pbodl.models.contract import Model
from pbodl.models.deep_probit import DeepProbit
from pbodl.serving.encoding import Encoded, encoder_of
from pbodl.serving.follower import Version
from pbodl.serving.remembered import RememberedSums
from pbodl.serving.request import EMPTY, Operation, Samples, Sums, merge, sum_features
from pbodl.serving.request_layers import click_moments, relu_units, top
from pbodl.serving.room import Room

F32 = np.float32


class Scores(NamedTuple):
    """Of each candidate: the CTR, recalibrated, and its standard deviation; the latent Gaussian behind both."""

    ctr: NDArray[np.float64]
    std: NDArray[np.float64]
    mean: NDArray[np.float64]
    variance: NDArray[np.float64]


class Layer(NamedTuple):
    """A dense layer: what its inputs are multiplied with, means and (variances, squared means), and what is added."""

    mean: NDArray[np.float32]  # (out, in)
    both: NDArray[np.float32]  # (out, 2 in)
    bias: NDArray[np.float32]  # (2, out): mean and variance


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
        shared_fields, own_fields = self.encoder.shared_fields, self.encoder.own_fields
        self._operation = Operation(model.shape.op, model.shape.mode, np.int64(layout.vectors), np.int64(layout.dim))
        self._class_of_field, (self._shared_classes, own_classes) = _classes(model, shared_fields, own_fields)
        self._remembered = RememberedSums(self._operation, own_classes)
        self._packed = version.table.packed()
        self._width = layout.dim * (own_classes if model.op == CONCAT else 1)
        self._layers, self._shared_layer = _layers(model, shared_fields, own_fields)
        scaled = [field.kind == "number" and field.transform == "scale" for field in model.schema.fields]
        self._scaled = np.array(scaled, bool)
        self._rooms: list[Room] = []

    @classmethod
    def of(cls, model: Model) -> "Predictor":
        """A predictor of a model as it is now."""
        return cls(Version.of(model))

    def score(self, user: Mapping[str, Any], context: Mapping[str, Any], candidates: Sequence[Mapping[str, Any]]) -> Scores:
        """Score candidates for a user in a context; each gives the values of its fields by name, and what is not given is missing."""
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
            room = self._rooms.pop() if self._rooms else Room()
            with np.errstate(over="ignore"):
                self._forward(shared, own, room, mean, variance)
            self._rooms.append(room)
            click_moments(mean, variance, ctr, std)
        kept = self.version.model.negative_rate
        if kept != 1.0:
            # The slope of the recalibration at the CTR carries its deviation over.
            std /= kept * (ctr + (1.0 - ctr) / kept) ** 2
        return Scores(recalibrate(ctr, kept), std, mean, variance)

    def _forward(
        self, shared: Encoded, own: Encoded, room: Room, mean: NDArray[np.float64], variance: NDArray[np.float64]
    ) -> None:
        """MODIFIES: mean, variance."""
        model, n, width = self.version.model, len(own.keys), self._width
        sums = self._remembered.find(own, lambda missing, at, sums: self._sum(_selected(own, missing), at, sums), room)
        common = make_sums(self._operation, self._shared_classes)
        self._sum(shared, np.zeros(1, np.int32), common)
        m_z, vr_z, linear = room.array("m_z", n, width), room.array("vr_z", n, 2, width), room.array("linear", n, 2)
        merge(common, sums, self._operation, m_z, vr_z, linear)
        first, *others = self._layers
        taken = first.mean.shape[1]  # none without hidden layers: z_0 then takes the shortcut alone
        units = len(first.mean)
        m_a = np.matmul(first.mean, m_z.T[:taken], out=room.array("m_a 0", units, n))
        v_a = np.matmul(first.both, vr_z.reshape(n, -1).T[: 2 * taken], out=room.array("v_a 0", units, n))
        bias = first.bias
        if model.op == CONCAT:
            m_shared, v_shared = common.total[0, :, 0, 0].reshape(-1), common.total[0, :, 0, 1].reshape(-1)
            linear += model.shape.shortcut * np.array([m_shared.sum(), model.shape.shortcut * v_shared.sum()], F32)
            if self._shared_layer is not None:
                both = np.concatenate([v_shared, m_shared * m_shared])
                bias = bias + np.stack([self._shared_layer.mean @ m_shared, self._shared_layer.both @ both])
        for i, layer in enumerate(others):
            m_u, vr_u = room.array(f"m_u {i}", units, n), room.array(f"vr_u {i}", 2, units, n)
            relu_units(m_a, v_a, bias, m_u, vr_u)
            m_a = np.matmul(layer.mean, m_u, out=room.array(f"m_a {i + 1}", len(layer.mean), n))
            v_a = np.matmul(layer.both, vr_u.reshape(2 * units, n), out=room.array(f"v_a {i + 1}", len(layer.mean), n))
            bias, units = layer.bias, len(layer.mean)
        top(m_a[0], v_a[0], bias, linear, model.shape.shortcut, m_z, vr_z, mean, variance)

    def _sum(self, encoded: Encoded, at: NDArray[np.int32], sums: Sums) -> None:
        """Work out the sums of samples' features. MODIFIES: sums, in the rows `at`."""
        model, keys = self.version.model, encoded.keys
        rows = self.version.table.find(keys.reshape(-1)).reshape(keys.shape)
        if encoded.filled is not None:
            rows[~encoded.filled] = EMPTY
        samples = Samples(rows, keys, self._values(encoded), encoded.fields, self._class_of_field[encoded.fields])
        sum_features(self._packed, samples, at, self._operation, model.clock, model.row_prior, model.forgetting, sums)

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


def make_sums(operation: Operation, classes: int) -> Sums:
    """Room for the sums of one sample."""
    vectors, dim = int(operation.vectors), int(operation.dim)
    return Sums(np.empty((1, classes, vectors, 2, dim), F32), np.empty((1, classes, 3, dim), F32), np.empty((1, 2), F32))


def _refuse_unknown(what: str, given: Iterable[str], known: Iterable[str]) -> None:
    known = sorted(known)
    for name in given:
        if name not in known:
            raise InputError(f"unknown field {name!r}{nearest(name, known)}; the fields of {what} are: {', '.join(known)}")


def _selected(encoded: Encoded, rows: NDArray[np.int64]) -> Encoded:
    if len(rows) == len(encoded.keys):
        return encoded
    filled = None if encoded.filled is None else encoded.filled[rows]
    return Encoded(encoded.keys[rows], encoded.values[rows], encoded.fields, filled)


def _classes(
    model: DeepProbit, shared_fields: NDArray[np.int32], own_fields: NDArray[np.int32]
) -> tuple[NDArray[np.int32], tuple[int, int]]:
    """The class of every field, and how many classes the shared and the own ones have."""
    classes = np.zeros(len(model.schema.fields), np.int32)
    if model.op == FFM:
        return model.schema.group_codes, (len(model.schema.groups),) * 2
    if model.op == CONCAT:
        classes[shared_fields], classes[own_fields] = np.arange(len(shared_fields)), np.arange(len(own_fields))
        return classes, (len(shared_fields), len(own_fields))
    return classes, (1, 1)


def _layers(
    model: DeepProbit, shared_fields: NDArray[np.int32], own_fields: NDArray[np.int32]
) -> tuple[list[Layer], Layer | None]:
    """The dense layers; for concat, what of the first belongs to the shared fields' places is a layer apart."""
    sizes, dim = model.shape.sizes.tolist(), model.spec.dim
    layers = []
    for i, (n_in, n_out) in enumerate(zip(sizes[:-1], sizes[1:], strict=True)):
        mean, variance = model.dense.mean[i, :n_out, : n_in + 1], model.dense.variance[i, :n_out, : n_in + 1]
        layers.append(_layer(mean, variance, np.arange(n_in)))
    if model.op != CONCAT or not model.spec.hidden:
        return layers, None
    mean, variance = model.dense.mean[0, : sizes[1], : sizes[0] + 1], model.dense.variance[0, : sizes[1], : sizes[0] + 1]
    own, shared = ((fields[:, None] * dim + np.arange(dim)).reshape(-1) for fields in (own_fields, shared_fields))
    return [_layer(mean, variance, own), *layers[1:]], _layer(mean, variance, shared)


def _layer(mean: NDArray[np.float32], variance: NDArray[np.float32], inputs: NDArray[np.int64]) -> Layer:
    """A layer for some of the inputs; the fan-in's scale is that of all."""
    scale = F32(mean.shape[1] ** -0.5)
    m, v = mean[:, inputs] * scale, variance[:, inputs] * scale**2
    bias = np.stack([mean[:, -1] * scale, variance[:, -1] * scale**2])
    return Layer(np.ascontiguousarray(m), np.concatenate([m * m + v, v], axis=1), bias)
