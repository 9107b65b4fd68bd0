"""The predictor: one version of a model, ready to score the candidates of a request.

It sums the features that the candidates share once per request, an ad's own features when the version first meets the ad, and runs
the dense layers for many candidates at once. Its answers are those of `model.predict` on the expanded rows, cached or not. To its
callers a predictor is immutable, so any number of requests may use it while the next version is prepared.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl.data.batch import Batch
from pbodl.data.features.former_names import renamed_row
from pbodl.data.features.nested import flattened
from pbodl.data.hashing import wrapping
from pbodl.data.sampling import recalibrate
from pbodl.data.schema import nearest
from pbodl.errors import InputError
from pbodl.kernels.arguments import USUAL
from pbodl.kernels.layers.interaction import CONCAT, FFM, GROUP_FM, PAIRS, PAPER, SUM
from pbodl.kernels.sample_blocks import pack_layers
from pbodl.models.contract import Model, Prediction
from pbodl.models.deep_probit import DeepProbit
from pbodl.models.recalibration import recalibrated_latent
from pbodl.serving.models.follower import Version
from pbodl.serving.scoring.candidate_kernels import (
    EMPTY,
    Operation,
    Packed,
    Samples,
    Sums,
    room_for,
    score_candidates,
    sum_features,
)
from pbodl.serving.scoring.drawn_candidates import draw_candidates, linear_deviations
from pbodl.serving.scoring.many_requests import score_layers, score_pairs
from pbodl.serving.scoring.packed_rows import check_served
from pbodl.serving.scoring.pair_candidates import prepare_draw, score_pair_candidates, use_deviations
from pbodl.serving.scoring.pair_factors import Factors, pair_factors
from pbodl.serving.scoring.remembered_ads import CAPACITY, Remembered
from pbodl.serving.scoring.request_encoding import Encoded, encoder_of

F32 = np.float32
NOT_KNOWN = np.empty((0, 0), F32)


class Scores(NamedTuple):
    """The recalibrated CTR of each candidate, its standard deviation, and the latent Gaussian behind both."""

    ctr: NDArray[np.float64]
    std: NDArray[np.float64]
    mean: NDArray[np.float64]
    variance: NDArray[np.float64]


class Predictor:
    """Scores requests with one version of a model; any number of threads may use it.

    >>> import pbodl
    >>> schema = pbodl.Schema(label="click", fields=[pbodl.Field("user", group="user"), pbodl.Field("ad", group="ad")])
    >>> model = pbodl.FMMLP(schema, dim=4, hidden=(8,))
    >>> _ = model.learn([{"user": u, "ad": a, "click": int(u == a)} for _ in range(30) for u in range(3) for a in range(3)])
    >>> scores = Predictor.of(model).score({"user": 1}, {}, [{"ad": 1}, {"ad": 2}, {"ad": "never seen"}])
    >>> bool(scores.ctr[0] > 0.5 > scores.ctr[1]), bool(scores.std[2] > scores.std[1])
    (True, True)
    """

    def __init__(self, version: Version) -> None:
        check_served(version.model)
        model, layout = version.model, version.table.layout
        self.version = version
        self.schema = model.schema
        self.encoder = encoder_of(model.schema)
        self._class_of_field, classes = _classes(model)
        about = (np.int64(layout.vectors), np.int64(layout.dim), np.int64(classes))
        self._operation = self._own_operation = Operation(model.shape.op, model.shape.mode, *about)
        self._own_class_of_field = self._class_of_field
        if self._own_are_a_group():
            # The other groups only need the sum of these features.
            self._own_operation = self._operation._replace(op=np.int64(SUM), classes=np.int64(1))
            self._own_class_of_field = np.zeros_like(self._class_of_field)
        elif model.op == PAIRS:
            own_fields, classes_of_own = self.encoder.own_fields, np.zeros_like(self._class_of_field)
            classes_of_own[own_fields] = np.arange(len(own_fields))
            self._own_operation = self._operation._replace(classes=np.int64(len(own_fields)))
            self._own_class_of_field = classes_of_own
        self._layers = pack_layers(model.dense, model.shape.sizes)
        scaled = [field.is_scaled or field.kind in ("vector", "multi") for field in model.schema.fields]
        self._scaled, self._some_scaled = np.array(scaled, bool), any(scaled)
        self._remembered = Remembered(CAPACITY, len(self.encoder.own_fields), self._own_operation)
        self._lock = Lock()

    @property
    def _packed(self) -> Packed:
        return self.version.table.packed()  # where the table grows, its arrays change

    @classmethod
    def of(cls, model: Model) -> "Predictor":
        """A predictor for a model as it is now."""
        return cls(Version.of(model))

    def score(self, user: Mapping[str, Any], context: Mapping[str, Any], candidates: Sequence[Mapping[str, Any]]) -> Scores:
        """Score candidates for a user in a context. Each maps field names to values; a field that is not given is missing."""
        names = self.encoder.own_columns
        objects = self.encoder.objects
        shared = renamed_row(self.schema, flattened({**user, **context}, objects))
        candidates = [renamed_row(self.schema, flattened(candidate, objects)) for candidate in candidates]
        _refuse_unknown("the user and the context", shared, self.encoder.shared_names)
        _refuse_unknown("a candidate", set().union(*candidates), names)
        own = self.encoder.encode_own([tuple(map(candidate.get, names)) for candidate in candidates])
        return self.score_encoded(self.encoder.encode_shared(shared), own)

    def score_encoded(self, shared: Encoded, own: Encoded) -> Scores:
        """As `score`, for encoded features."""
        return self._scored(shared, own, None)[0]

    def draw_encoded(self, shared: Encoded, own: Encoded, draw: np.uint64) -> tuple[Scores, NDArray[np.float64]]:
        """As `score_encoded`, and z of every candidate under one draw of all weights, whose seed is given (`kernels.draws`)."""
        return self._scored(shared, own, draw)

    def factors(self, shared: Encoded, own: Encoded) -> Factors | None:
        """How the weights move the candidates, where draws are linearised; otherwise None."""
        model, own = self.version.model, self.encoder.crossed(shared, own)
        if model.op != PAIRS or not len(own.keys):
            return None
        common = self._samples(shared, self._class_of_field)
        with self._own_sums(own, drawing=True) as (samples, linear, sums, places), wrapping():
            return pair_factors(
                self._packed, common, samples, linear, self._operation, model.clock, model.network, model.dense,
                self.encoder.own_fields, sums, places,
            )  # fmt: skip

    def drawing(self, shared: Encoded, own: Encoded) -> Callable[[np.uint64], NDArray[np.float64]]:
        """For many draws of one request: a function that gives z of every candidate under the draw of a seed."""
        model = self.version.model
        if model.op == PAIRS or not len(own.keys):
            return lambda seed: self.draw_encoded(shared, own, seed)[1]
        own = self.encoder.crossed(shared, own)
        common, samples = self._samples(shared, self._class_of_field), self._samples(own, self._class_of_field)

        def draw(seed: np.uint64) -> NDArray[np.float64]:
            drawn = np.empty(len(own.keys))
            with wrapping():
                draw_candidates(
                    self._packed, common, samples, self._operation, model.clock, model.network, model.dense, seed, drawn
                )  # fmt: skip
            return drawn

        return draw

    def _scored(self, shared: Encoded, own: Encoded, draw: np.uint64 | None) -> tuple[Scores, NDArray[np.float64]]:
        n, own = len(own.keys), self.encoder.crossed(shared, own)
        scores, drawn = np.empty((4, n)), np.empty(0 if draw is None else n)
        if n:
            with self._own_sums(own, drawing=draw is not None) as (samples, linear, sums, places):
                self._score(shared, samples, linear, sums, places, scores, draw, drawn)
        return self._recalibrated(scores), drawn

    @contextmanager
    def _own_sums(self, own: Encoded, drawing: bool) -> Iterator[tuple[Samples, NDArray[np.float32], Sums, NDArray[np.int32]]]:
        """The candidates' own features, the deviations of their linear weights, their sums, and where these are; `drawing` says
        whether the features are needed, and not the sums alone."""
        # One thread at a time uses the cache; others, and requests with other kinds of features, do without it.
        if own.plain and len(own.keys) <= CAPACITY and self._lock.acquire(blocking=False):
            try:
                places, fresh = self._remembered.places(own.keys)
                if len(fresh):
                    part = Encoded(own.keys[fresh], own.values[fresh], own.fields, None)
                    self._remember(part, places[fresh])
                at = places if drawing else places[:0]
                rows, linear = self._remembered.rows.take(at, 0), self._remembered.linear.take(at, 0)
                samples = Samples(rows, own.keys, own.values, own.fields, self._own_class_of_field[own.fields])
                yield samples, linear, self._remembered.sums, places
            finally:
                self._lock.release()
        else:
            sums, places = room_for(len(own.keys), self._own_operation), np.arange(len(own.keys), dtype=np.int32)
            yield self._sum_own(own, places, sums), NOT_KNOWN, sums, places

    def _recalibrated(self, scores: NDArray[np.float64]) -> Scores:
        ctr, std, mean, variance = scores
        kept = self.version.model.negative_rate
        if kept != 1.0:
            # Multiply the deviation by the slope of the recalibration at the CTR.
            std /= kept * (ctr + (1.0 - ctr) / kept) ** 2
            ctr = recalibrate(ctr, kept)
        return Scores(ctr, std, mean, variance)

    def score_requests(
        self, shared: NDArray[np.uint64], own: NDArray[np.uint64], indptr: NDArray[np.int64], draws: NDArray[np.uint64]
    ) -> tuple[Scores, NDArray[np.float64]]:
        """As `score_encoded`, or `draw_encoded` if there are seeds of draws, for many requests of categories, given by their keys.

        Candidates of request i: indptr[i] to indptr[i + 1], at most CAPACITY in all; crosses are not served this way.
        """
        model, encoded = self.version.model, self.encoder.from_keys(own)
        dense, network, n = model.dense, model.network, len(own)
        scores, drawn = np.empty((4, n)), np.empty(n if len(draws) else 0)
        fields = self.encoder.shared_fields
        common = self._samples(Encoded(shared, np.ones(shared.shape, F32), fields, None), self._class_of_field)
        with self._lock, wrapping():
            places, fresh = self._remembered.places(own)
            if len(fresh):
                self._remember(Encoded(own[fresh], encoded.values[fresh], encoded.fields, None), places[fresh])
            at, sums = places if len(draws) else places[:0], self._remembered.sums
            rows, linear = self._remembered.rows.take(at, 0), self._remembered.linear.take(at, 0)
            if model.op == PAIRS:
                samples = Samples(rows, own, encoded.values, encoded.fields, self._own_class_of_field[encoded.fields])
                score_pairs(
                    self._packed, common, samples, linear, self._operation, model.clock, network, sums, self.encoder.own_fields,
                    places, indptr, dense, draws, scores, drawn,
                )  # fmt: skip
            else:
                samples = Samples(rows, own, encoded.values, encoded.fields, self._class_of_field[encoded.fields])
                score_layers(
                    self._packed, common, samples, self._operation, self._own_operation, model.clock, network, sums, places, indptr,
                    self._layers, dense, draws, scores, drawn,
                )  # fmt: skip
        return self._recalibrated(scores), drawn

    def recalibrated(self, scores: Scores) -> Scores:
        """The scores with the latent Gaussian of the recalibrated CTR; exploration needs that of the sampled stream."""
        mean, deviation = recalibrated_latent(self.version.model, Prediction(scores.ctr, scores.mean, scores.variance))
        return scores._replace(mean=mean, variance=deviation**2)

    def recall(self, before: "Predictor") -> None:
        """Cache the ads that another predictor was asked for, before the first request arrives here."""
        if before.schema == self.schema and len(self.encoder.own):
            keys = before.lately()[:CAPACITY]
            with self._lock:
                self._remember(self.encoder.from_keys(keys), self._remembered.told(keys))

    def lately(self) -> NDArray[np.uint64]:
        """The keys of the ads that requests asked for lately, (ads, fields)."""
        return self._remembered.lately()

    def _own_are_a_group(self) -> bool:
        """Whether all features of the candidates form one group of their own, so that `meet_groups` can score them."""
        own, shared = (self._class_of_field[fields].tolist() for fields in (self.encoder.own_fields, self.encoder.shared_fields))
        usual = self._operation.op == GROUP_FM and self._operation.mode != PAPER and self._operation.dim == USUAL
        return usual and len(set(own)) == 1 and own[0] not in shared

    def _remember(self, own: Encoded, places: NDArray[np.int32]) -> None:
        """Put ads into the cache, at these indices."""
        model, samples = self.version.model, self._sum_own(own, places, self._remembered.sums)
        linear = np.empty(own.keys.shape, F32)
        with wrapping():
            linear_deviations(self._packed, samples, self._operation, model.clock, model.row_prior, model.forgetting, linear)
        self._remembered.rows[places], self._remembered.linear[places] = samples.rows, linear

    def _sum_own(self, own: Encoded, places: NDArray[np.int32], sums: Sums) -> Samples:
        """The candidates' own features. MODIFIES: sums, at these indices."""
        model = self.version.model
        samples = self._samples(own, self._own_class_of_field)
        with wrapping():
            sum_features(self._packed, samples, self._own_operation, model.clock, model.row_prior, model.forgetting, places, sums)
        if model.op == PAIRS:
            use_deviations(places, sums.total)
        return samples

    def _score(
        self, shared: Encoded, own: Samples, linear: NDArray[np.float32], sums: Sums, places: NDArray[np.int32],
        scores: NDArray[np.float64], draw: np.uint64 | None, drawn: NDArray[np.float64],
    ) -> None:  # fmt: skip
        """MODIFIES: scores; drawn, if a draw is requested."""
        model, packed, operation, own_fields = self.version.model, self._packed, self._operation, self.encoder.own_fields
        dense, network = model.dense, model.network
        common, seed = self._samples(shared, self._class_of_field), np.uint64(0) if draw is None else draw
        with wrapping():
            if model.op == PAIRS:
                prepared = prepare_draw(
                    packed, common, own, linear, operation, model.clock, network, dense, own_fields, seed, drawn
                )
                score_pair_candidates(
                    packed, common, operation, model.clock, network, sums, own_fields, places, dense.mean[0, 0],
                    dense.variance[0, 0], scores, prepared,
                )  # fmt: skip
                return
            score_candidates(
                packed, common, operation, self._own_operation, model.clock, model.row_prior, model.forgetting, sums, places,
                self._layers, model.shape, scores,
            )  # fmt: skip
            if draw is not None:
                own = own._replace(classes=self._class_of_field[own.fields])
                draw_candidates(packed, common, own, operation, model.clock, network, dense, seed, drawn)

    def _samples(self, encoded: Encoded, class_of_field: NDArray[np.int32]) -> Samples:
        """The features, with their rows in the table."""
        keys = encoded.keys
        rows = self.version.table.find(keys.reshape(-1)).reshape(keys.shape)
        if encoded.filled is not None:
            rows[~encoded.filled] = EMPTY
        return Samples(rows, keys, self._values(encoded), encoded.fields, class_of_field[encoded.fields])

    def _values(self, encoded: Encoded) -> NDArray[np.float32]:
        """The values, standardised where a field requests it."""
        n, slots = encoded.keys.shape
        if not self._some_scaled or not self._scaled[encoded.fields].any():
            return encoded.values
        nothing = np.zeros(0, F32)
        values = encoded.values if encoded.filled is None else np.where(encoded.filled, encoded.values, F32(0.0))
        batch = Batch(
            encoded.keys.reshape(-1), values.reshape(-1), np.tile(encoded.fields, n), np.arange(n + 1) * slots,
            None, nothing.astype(np.float64), nothing,
        )  # fmt: skip
        return self.version.model.scale.peek(batch).reshape(n, slots)


def _refuse_unknown(what: str, given: Iterable[str], known: Iterable[str]) -> None:
    known = sorted(known)
    for name in given:
        if name not in known:
            raise InputError(f"unknown field {name!r}{nearest(name, known)}; the fields of {what} are: {', '.join(known)}")


def _classes(model: DeepProbit) -> tuple[NDArray[np.int32], int]:
    """The class of every field, and the number of classes."""
    fields = len(model.schema.fields)
    if model.shape.op in (FFM, GROUP_FM):
        return model.schema.group_codes, len(model.schema.groups)
    if model.op in (CONCAT, PAIRS):
        return np.arange(fields, dtype=np.int32), fields
    return np.zeros(fields, np.int32), 1
