"""Propensities of Thompson sampling: other draws of all weights, from fresh randomness, are ranked like the one that decided, and
counted where they agree. The draw that decided does not count: it always agrees.

With h of M draws the propensity is (h + ½)/(M + 1): the mean of the Beta distribution that remains after M draws from Jeffreys'
prior. So it is never 0, which nothing that was shown can have. Its standard error is √(p (1 - p)/(M + 2)).

Where draws are linearised, they are put together from draws of their parts (`scoring.factor_draws`), which takes a fraction of the
time. These are more draws than were wanted, and not independent; the error is stated as that of as many independent draws as were
wanted, and is less.
"""

import time
from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from pbodl.data.hashing import wrapping
from pbodl.serving.ranking.policies import Floats, RankPolicy, exact_placements, ordered
from pbodl.serving.scoring.exploration import thompson
from pbodl.serving.scoring.factor_draws import TIMES, Parts, draw_parts, noise_for, rank_in_draws
from pbodl.serving.scoring.pair_factors import Factors
from pbodl.serving.scoring.predictor import Predictor, Scores
from pbodl.serving.scoring.request_encoding import Encoded

AT_ONCE = 50  # whole draws between two looks at the clock


class PlacementCount(ABC):
    """Counts in how many draws each of the listed candidates gets each slot; in steps, so that other requests are answered in
    between.

    wanted  the number of independent draws that the count shall be worth
    draws   that are counted
    """

    wanted: int
    draws: int

    def __init__(self, listed: NDArray[np.int64], candidates: int, slots: int) -> None:
        self.listed, self.done = listed, 0
        self.hits = np.zeros((len(listed), min(slots, candidates)), np.int64)

    def step(self, seconds: float = np.inf) -> bool:
        """Count for so long; returns whether all draws are counted."""
        until = time.perf_counter() + seconds
        while self.done < self.draws:
            self.done = self.go_on()
            if time.perf_counter() > until:
                break
        return self.done >= self.draws

    @abstractmethod
    def go_on(self) -> int:
        """Count a few draws; returns how many are counted now."""

    def propensity(self) -> tuple[Floats, Floats]:
        """Of the listed candidates, each in the slot of its own place in the list, and the standard errors."""
        chance = (self.hits.diagonal() + 0.5) / (self.draws + 1)
        return chance, np.sqrt(chance * (1.0 - chance) / (self.wanted + 2))


class CountOfDraws(PlacementCount):
    """Draws all weights again and again."""

    def __init__(
        self, predictor: Predictor, shared: Encoded, own: Encoded, scores: Scores, bids: Floats | None, slots: int,
        policy: RankPolicy, draws: int, luck: np.random.Generator, listed: NDArray[np.int64],
    ) -> None:  # fmt: skip
        super().__init__(listed, len(scores.ctr), slots)
        self.wanted = self.draws = draws
        self._scores, self._bids, self._policy, self._model = scores, bids, policy, predictor.version.model
        self._draw, self._seeds = predictor.drawing(shared, own), luck.integers(0, 2**64, draws, dtype=np.uint64)
        self._line = np.full(len(scores.ctr), -1)
        self._line[listed] = np.arange(len(listed))

    def go_on(self) -> int:
        model, slots = self._model, np.arange(self.hits.shape[1])
        ctr = thompson(
            self._scores, self._draw(self._seeds[self.done]), self._policy.spread, model.negative_rate, model.doubt
        )  # fmt: skip
        lines = self._line[ordered(ctr, self._bids, len(slots))]
        self.hits[lines[lines >= 0], slots[lines >= 0]] += 1
        return self.done + 1


class CountOfParts(PlacementCount):
    """Puts draws together from draws of their parts."""

    def __init__(
        self, predictor: Predictor, factors: Factors, scores: Scores, bids: Floats | None, slots: int, policy: RankPolicy,
        draws: int, luck: np.random.Generator, listed: NDArray[np.int64],
    ) -> None:  # fmt: skip
        super().__init__(listed, len(scores.ctr), slots)
        self.wanted, self.draws, model = draws, TIMES * draws, predictor.version.model
        root = 1.0 / np.sqrt(1.0 + max(1.0 - policy.spread**2, 0.0) * scores.variance)
        self._base, self._scale = scores.mean * root, policy.spread * model.doubt**0.5 * root
        self._bids, self._kept = np.empty(0) if bids is None else bids, float(model.negative_rate)
        self._noise, self._seed = noise_for(len(self._base)), luck.integers(0, 2**64, dtype=np.uint64)
        self._factors = factors
        self._parts: Parts | None = None

    def go_on(self) -> int:
        with wrapping():
            if self._parts is None:
                self._parts = draw_parts(self._factors, self.wanted, len(self._noise), self._seed)
                return 0
            end = min(self.done + AT_ONCE, self.draws)
            rank_in_draws(
                self._parts, self._noise, self._base, self._scale, self._bids, self._kept, self.listed, self.done, end, self.hits
            )  # fmt: skip
        return end


def counted_in_draws(
    predictor: Predictor, shared: Encoded, own: Encoded, scores: Scores, bids: Floats | None, slots: int, policy: RankPolicy,
    draws: int, luck: np.random.Generator, listed: NDArray[np.int64],
) -> PlacementCount:  # fmt: skip
    """A count for these candidates of a request, as precise as so many independent draws."""
    factors = predictor.factors(shared, own)
    if factors is None:
        return CountOfDraws(predictor, shared, own, scores, bids, slots, policy, draws, luck, listed)
    return CountOfParts(predictor, factors, scores, bids, slots, policy, draws, luck, listed)


def placements(
    predictor: Predictor, shared: Encoded, own: Encoded, bids: Floats | None, slots: int, policy: RankPolicy, draws: int,
    luck: np.random.Generator,
) -> tuple[Floats, Scores]:  # fmt: skip
    """The probability of every candidate in every slot, and the scores; counted in draws where there is no formula."""
    scores = predictor.score_encoded(shared, own)
    if not policy.is_drawn or not len(scores.ctr):
        return exact_placements(scores, bids, slots, policy, predictor.version.model.negative_rate), scores
    every = np.arange(len(scores.ctr))
    count = counted_in_draws(predictor, shared, own, scores, bids, slots, policy, draws, luck, every)
    count.step()
    return count.hits / count.draws, scores
