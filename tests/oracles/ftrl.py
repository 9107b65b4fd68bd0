"""FTRL-Proximal as the paper prints it: Algorithm 1, coordinate by coordinate, in dicts of Python's floats."""

import math
from collections import defaultdict
from typing import Any


class NaiveFTRL:
    def __init__(self, alpha: float, beta: float, l1: float, l2: float) -> None:
        self.alpha, self.beta, self.l1, self.l2 = alpha, beta, l1, l2
        self.z: dict[Any, float] = defaultdict(float)
        self.n: dict[Any, float] = defaultdict(float)

    def weight(self, i: Any) -> float:
        if abs(self.z[i]) <= self.l1:
            return 0.0
        sign = 1.0 if self.z[i] > 0 else -1.0
        return -(((self.beta + math.sqrt(self.n[i])) / self.alpha + self.l2) ** -1) * (self.z[i] - sign * self.l1)

    def predict(self, x: dict[Any, float]) -> float:
        return 1.0 / (1.0 + math.exp(-sum(self.weight(i) * value for i, value in {**x, "bias": 1.0}.items())))

    def learn(self, x: dict[Any, float], click: int, weight: float = 1.0) -> float:
        """The probability before learning."""
        p = self.predict(x)
        weights = {i: self.weight(i) for i in {**x, "bias": 1.0}}
        for i, value in {**x, "bias": 1.0}.items():
            g = weight * (p - click) * value
            sigma = (math.sqrt(self.n[i] + g**2) - math.sqrt(self.n[i])) / self.alpha
            self.z[i] += g - sigma * weights[i]
            self.n[i] += g**2
        return p
