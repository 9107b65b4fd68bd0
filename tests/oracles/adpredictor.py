"""AdPredictor (Graepel et al. 2010) as a dict of Gaussians, with β = 1 and a bias that is always there."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from scipy import stats


class NaiveAdPredictor:
    def __init__(self, prior: float, bias_prior: float) -> None:
        self.prior = prior
        self.weights: dict[Any, tuple[float, float]] = {"bias": (0.0, bias_prior)}

    def moments(self, features: Iterable[Any]) -> tuple[float, float]:
        active = [self.weights.get(feature, (0.0, self.prior)) for feature in ["bias", *features]]
        return sum(mean for mean, _ in active), sum(variance for _, variance in active)

    def predict(self, features: Iterable[Any]) -> float:
        mean, variance = self.moments(features)
        return float(stats.norm.cdf(mean / np.sqrt(1 + variance)))

    def learn(self, features: Iterable[Any], click: int) -> None:
        features = list(features)
        sign = 1 if click else -1
        mean, variance = self.moments(features)
        total = 1 + variance
        t = sign * mean / np.sqrt(total)
        v = np.exp(stats.norm.logpdf(t) - stats.norm.logcdf(t))
        w = v * (v + t)
        for feature in ["bias", *features]:
            m, s2 = self.weights.get(feature, (0.0, self.prior))
            self.weights[feature] = (m + sign * s2 / np.sqrt(total) * v, s2 * (1 - s2 / total * w))
