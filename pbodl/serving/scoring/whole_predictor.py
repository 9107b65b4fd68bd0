"""The predictor of models without kernels of their own for candidates: AdPredictor, FTRL, MatchBox and the batch models.

It writes out a row for every candidate and asks `model.predict`. That is slower than `Predictor`, and every worker holds the model
itself. A model without uncertainty answers with a standard deviation of 0.
"""

from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pbodl.baselines.adpredictor import AdPredictor
from pbodl.data.batch import Batch
from pbodl.models.contract import DRAWN, Model
from pbodl.serving.models.follower import Version
from pbodl.serving.scoring.pair_factors import Factors
from pbodl.serving.scoring.predictor import Predictor, Scores
from pbodl.serving.scoring.request_encoding import Encoded, encoder_of

CERTAIN = 1e-12  # a CTR nearer to 0 or 1 has no finite latent mean
_latent = np.vectorize(NormalDist().inv_cdf, otypes=[np.float64])


class WholePredictor(Predictor):
    """Scores requests with any model; any number of threads may use it.

    >>> import pbodl
    >>> schema = pbodl.Schema(label="click", fields=[pbodl.Field("user", group="user"), pbodl.Field("ad", group="ad")])
    >>> model = pbodl.FTRLProximal(schema)
    >>> _ = model.learn([{"user": n % 2, "ad": n % 3, "click": int(n % 3 == 0)} for n in range(300)])
    >>> scores = WholePredictor.of(model).score({"user": 1}, {}, [{"ad": 0}, {"ad": 1}])
    >>> bool(scores.ctr[0] > 0.5 > scores.ctr[1]), scores.std.tolist()
    (True, [0.0, 0.0])
    """

    def __init__(self, version: Version) -> None:
        self.version = version
        self.schema = version.model.schema
        self.encoder = encoder_of(self.schema)

    def score_encoded(self, shared: Encoded, own: Encoded) -> Scores:
        """As `score`, for encoded features."""
        model: Model = self.version.model
        if not len(own.keys):
            return Scores(*np.empty((4, 0)))
        predicted = model.predict(expanded_batch(shared, own))
        mean = predicted.mean
        if model.link == "logit":  # exploration expects the latent mean of a probit
            odds = np.clip(predicted.ctr / (1.0 - predicted.ctr) / model.negative_rate, CERTAIN, 1.0 / CERTAIN)
            mean = _latent(odds / (1.0 + odds))
        return Scores(predicted.ctr, predicted.std, mean, predicted.variance)

    def draw_encoded(self, shared: Encoded, own: Encoded, draw: np.uint64) -> tuple[Scores, NDArray[np.float64]]:
        """As `score_encoded`, and z of every candidate under one draw; it is the mean if the model has no uncertainty."""
        scores, model = self.score_encoded(shared, own), self.version.model
        if not len(own.keys) or model.kind not in DRAWN:
            return scores, scores.mean
        return scores, model._draw(expanded_batch(shared, own), np.array([draw], np.uint64))[0]

    def factors(self, shared: Encoded, own: Encoded) -> Factors | None:
        """As `Predictor.factors`, for a sum of weights: what a feature adds to the variance is the square of its factor."""
        model = self.version.model
        if not isinstance(model, AdPredictor) or not len(own.keys):
            return None
        n, slots = own.keys.shape
        keys, values = (
            np.concatenate([one.reshape(-1), two.reshape(-1)])
            for one, two in ((shared.keys, own.keys), (shared.values, own.values))
        )
        fields = np.concatenate([shared.fields, np.tile(own.fields, n)]).astype(np.int32)
        filled = np.concatenate([_filled(shared, 1).reshape(-1), _filled(own, n).reshape(-1)])
        # A row of nothing, and one for every feature.
        ends = np.concatenate([[0, 0], np.cumsum(filled)])
        about = np.zeros(len(ends) - 1), np.ones(len(ends) - 1, np.float32)
        batch, signs = Batch(keys[filled], values[filled], fields[filled], ends, None, *about), np.zeros(len(keys))
        variance, signs[filled] = model.predict(batch).variance, np.sign(model.scale.peek(batch))
        factors = signs * np.sqrt(np.maximum(variance[1:] - variance[0], 0.0))
        common = shared.keys.size
        _, same = np.unique(keys[:common], return_inverse=True)
        level = np.sqrt(variance[:1] + (np.bincount(same, factors[:common]) ** 2).sum())
        nothing, of_own = np.empty((n, 0), np.float32), factors[common:].astype(np.float32).reshape(n, slots, 1)
        return Factors(level.astype(np.float32), nothing, nothing, of_own, own.keys, own.fields)

    def drawing(self, shared: Encoded, own: Encoded) -> Callable[[np.uint64], NDArray[np.float64]]:
        """As `Predictor.drawing`."""
        model = self.version.model
        if not len(own.keys) or model.kind not in DRAWN:
            mean = self.score_encoded(shared, own).mean
            return lambda seed: mean
        batch = expanded_batch(shared, own)
        return lambda seed: model._draw(batch, np.array([seed], np.uint64))[0]

    def recalibrated(self, scores: Scores) -> Scores:
        """As `Predictor.recalibrated`; the mean of a model without uncertainty is Φ⁻¹ of its CTR."""
        if self.version.model.link == "logit":
            return scores._replace(mean=_latent(np.clip(scores.ctr, CERTAIN, 1.0 - CERTAIN)))
        return super().recalibrated(scores)

    def recall(self, before: Predictor) -> None:
        """Nothing is cached here."""


def expanded_batch(shared: Encoded, own: Encoded) -> Batch:
    """A row for every candidate: the shared features and its own, in the order of the fields."""
    n = len(own.keys)
    parts = [(np.broadcast_to(one, (n, one.shape[1])), two) for one, two in ((shared.keys, own.keys), (shared.values, own.values))]
    fields = np.concatenate([shared.fields, own.fields])
    order = np.argsort(fields, kind="stable")
    keys, values = (np.concatenate(part, axis=1)[:, order] for part in parts)
    filled: NDArray[Any] = np.concatenate([_filled(shared, n), _filled(own, n)], axis=1)[:, order]
    indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(filled.sum(axis=1))])
    all_fields = np.broadcast_to(fields[order].astype(np.int32), filled.shape)
    return Batch(keys[filled], values[filled], all_fields[filled], indptr, None, np.zeros(n), np.ones(n, np.float32))


def _filled(encoded: Encoded, n: int) -> NDArray[np.bool_]:
    filled = np.ones(encoded.keys.shape, bool) if encoded.filled is None else encoded.filled
    return np.broadcast_to(filled, (n, filled.shape[1]))


def predictor_of(version: Version) -> Predictor:
    """The predictor for a version of any model."""
    return WholePredictor(version) if version.whole else Predictor(version)
