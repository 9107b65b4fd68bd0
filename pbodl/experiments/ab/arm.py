"""One arm at work: it ranks candidates with its last published model, and learns the feedback when it arrives.

A click arrives after a delay, and an outcome is known when the window has passed: only then does a learner get the impression.
(Passing clicks on at once and non-clicks after the window would show a learner only clicks in the first minutes of every new ad and
every hour, and only non-clicks in the last.)

A model is updated at the multiples of its interval, with all feedback up to then. Nothing changes between two such moments, so all
requests between them are scored together.

Bayesian arms score and explore as the server does, by its own kernels (`serving.scoring`): Thompson sampling has a draw of all
weights for each request. Other models only predict. The reference agent has its own file.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl._jit import jit
from pbodl.baselines.batch_model import BatchModel
from pbodl.data.batch import Batch
from pbodl.data.hashing import field_seed, hash_integers
from pbodl.data.synthetic.world import rng
from pbodl.experiments.ab.ad_features import WIDTH, AdFeatures, Keys, batch_of
from pbodl.experiments.ab.ad_market import DAY
from pbodl.experiments.ab.ad_world import AdWorld, Candidates, Requests
from pbodl.experiments.ab.lineup import PASSES, REFERENCE, Arm
from pbodl.experiments.ab.reference_agent import KNOWN, ReferenceAgent, known_of
from pbodl.models.deep_probit import DeepProbit
from pbodl.serving.models.follower import Version
from pbodl.serving.scoring.exploration import explore_requests
from pbodl.serving.scoring.predictor import Predictor

DELAY, WINDOW = 120.0, 600.0  # seconds: mean delay of a click, and the time to wait for one
CHUNK = 2048  # requests whose candidates are held at a time
CRITERIA = ("ecpm", "ctr")


class Feedback(NamedTuple):
    """Impressions as a learner sees them."""

    keys: Keys  # [n, WIDTH]
    click: NDArray[np.float32]
    arrival: NDArray[np.float64]
    known: NDArray[np.float64]  # [n, KNOWN], for the reference agent

    def rows(self, which: NDArray[np.int64] | slice) -> "Feedback":
        return Feedback(self.keys[which], self.click[which], self.arrival[which], self.known[which])

    def batch(self) -> Batch:
        return batch_of(self.keys, self.click, self.arrival)


class ShownAds(NamedTuple):
    """Impressions as the experimenter sees them."""

    requests: Requests
    ad: NDArray[np.int32]
    click: NDArray[np.bool_]
    probability: NDArray[np.float64]
    predicted: NDArray[np.float64]
    best_ad: NDArray[np.int32]
    value: NDArray[np.float64]  # expected value by the ranking criterion
    best: NDArray[np.float64]
    new: NDArray[np.bool_]  # the shown ad's first impression was less than a day ago
    feedback: Feedback


@jit
def best_indices(indptr, values, best):
    """The index of each request's largest value, the first among equals. MODIFIES: best."""
    for i in range(len(best)):
        top = indptr[i]
        for j in range(indptr[i] + 1, indptr[i + 1]):
            if values[j] > values[top]:
                top = j
        best[i] = top


def labels(requests: Requests, clicked: NDArray[np.bool_]) -> NDArray[np.float32]:
    """The labels when the window has passed: no learner knows of a later click."""
    delay = -DELAY * np.log1p(-requests.patience)
    return (clicked & (delay <= WINDOW)).astype(np.float32)


class ImpressionLog(NamedTuple):
    """The log of the burn-in: feedback in order of arrival, and the time when each ad was first shown (infinity: never)."""

    feedback: Feedback
    first_shown: NDArray[np.float64]


def burn_in(world: AdWorld, features: AdFeatures, days: int) -> ImpressionLog:
    """The first days, on which every request gets a random candidate; the feedback up to their end."""
    parts: list[Feedback] = []
    first = np.full(len(world.ads.bid), np.inf)
    for day in range(days):
        requests = world.requests(day).part(slice(None, None, max(1, world.requests_per_day // world.kind.logged)))
        for start in range(0, len(requests), CHUNK):
            part, candidates = with_candidates(world, requests.part(slice(start, start + CHUNK)))
            counts = np.diff(candidates.indptr)
            index = candidates.indptr[:-1] + (part.pick * counts).astype(np.int64)
            ads = candidates.ad[index]
            clicked = part.luck < candidates.probability[index]
            keys = features.with_ads(features.of_requests(part), ads)
            known = known_of(world, part, np.arange(len(ads) + 1), ads)
            parts.append(Feedback(keys, labels(part, clicked), part.time + WINDOW, known))
            np.minimum.at(first, ads, part.time)
    columns = Feedback(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    return ImpressionLog(columns.rows(np.flatnonzero(columns.arrival <= days * DAY)), first)


def with_candidates(world: AdWorld, requests: Requests) -> tuple[Requests, Candidates]:
    """The requests that some ad fits, and the fitting ads."""
    candidates = world.candidates(requests)
    counts = np.diff(candidates.indptr)
    if counts.all():
        return requests, candidates
    kept = counts > 0
    return requests.part(kept), candidates._replace(indptr=np.concatenate([[0], np.cumsum(counts[kept])]))


class ArmAtWork:
    """An arm with its model, after the burn-in."""

    def __init__(self, arm: Arm, world: AdWorld, features: AdFeatures, log: ImpressionLog, criterion: str) -> None:
        self.arm, self.world, self.features, self.criterion = arm, world, features, criterion
        self._draws = rng(world.seed, f"ab policy {arm.name}")
        self.model: Any = None if arm.kind == REFERENCE else arm.build(world.seed)
        self.reference = ReferenceAgent(world, arm.policy, self._draws) if self.model is None else None
        self._predictor: Predictor | None = None
        self.first_shown = log.first_shown.copy()
        self.updated = -np.inf
        self._inbox = Feedback(
            np.empty((1024, WIDTH), np.uint64), np.empty(1024, np.float32), np.empty(1024), np.empty((1024, KNOWN))
        )  # fmt: skip
        self._received = self._learned = 0
        if self.model is None:
            self._learn(log.feedback)
            return
        past, passes = log.feedback.batch(), PASSES.get(arm.kind, 1)
        for _ in range(passes):
            self.model.learn(past._replace(weights=past.weights / np.float32(passes)))

    def counters(self) -> dict[str, int]:
        return {} if self.model is None else self.model.metrics()

    def receive(self, feedback: Feedback) -> None:
        """Take impressions in order of time; the model learns them once their outcome has arrived."""
        stop = self._received + len(feedback.click)
        if stop > len(self._inbox.click):
            size = 2 * stop
            self._inbox = Feedback(*(np.resize(column, (size, *column.shape[1:])) for column in self._inbox))
        added = slice(self._received, stop)
        inbox = self._inbox
        inbox.keys[added], inbox.click[added], inbox.arrival[added], inbox.known[added] = feedback
        self._received = stop

    def catch_up(self, now: float) -> None:
        """Publish the model with all feedback that arrived up to `now`."""
        if now <= self.updated:
            return
        self.updated = now
        stop = int(np.searchsorted(self._inbox.arrival[: self._received], now, side="right"))
        if stop > self._learned:
            self._learn(self._inbox.rows(slice(self._learned, stop)))
            self._learned = stop
        if isinstance(self.model, BatchModel):
            self.model.fit()
        if self.reference is not None:
            self.reference.publish(now + self.arm.every)

    def serve(self, requests: Requests) -> Iterator[ShownAds]:
        """Answer requests in order of time, each with the last model published before it.

        The caller passes each yielded result to `receive`, of this arm or of all, before it asks for the next.
        """
        requests, candidates = with_candidates(self.world, requests)
        keys = self.features.of_requests(requests)
        ticks = np.floor(requests.time / self.arm.every)
        edges = np.flatnonzero(np.diff(ticks, prepend=-1.0, append=np.inf))  # none if there is no request
        for start, stop in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            self.catch_up(float(ticks[start]) * self.arm.every)
            first, last = candidates.indptr[start], candidates.indptr[stop]
            part = Candidates(
                candidates.indptr[start : stop + 1] - first, candidates.ad[first:last], candidates.probability[first:last]
            )
            yield self._answer(requests.part(slice(start, stop)), keys[start:stop], part)

    def _learn(self, feedback: Feedback) -> None:
        self._predictor = None
        if self.reference is not None:
            self.reference.learn(feedback.known, feedback.click)
        else:
            self.model.learn(feedback.batch())

    def _rank(self, requests: Requests, rows: Keys, candidates: Candidates) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The CTRs to rank by, and the predicted ones."""
        if self.reference is not None:
            return self.reference.rank(known_of(self.world, requests, candidates.indptr, candidates.ad), candidates.indptr)
        if not isinstance(self.model, DeepProbit):
            predicted = self.model.predict(batch_of(rows)).ctr
            return predicted, predicted
        if self._predictor is None:
            self._predictor = Predictor(Version.lent(self.model))  # `_learn` drops it
        return served(self._predictor, rows, candidates.indptr, self.arm, self._seeds(requests))

    def _seeds(self, requests: Requests) -> NDArray[np.uint64]:
        """The seeds of the requests' draws: each has its own, or a user keeps one for a while."""
        if not self.arm.keep:
            return self._draws.integers(0, 2**53, len(requests)).astype(np.uint64)
        slot = (requests.time / self.arm.keep).astype(np.int64)
        return hash_integers(requests.user.astype(np.int64) + len(self.world.users.age) * slot, field_seed(self.arm.name))

    def _answer(self, requests: Requests, keys: Keys, candidates: Candidates) -> ShownAds:
        indptr, ads = candidates.indptr, candidates.ad
        rows = self.features.with_ads(np.repeat(keys, np.diff(indptr), axis=0), ads)
        ctr, predicted = self._rank(requests, rows, candidates)
        worth = self.world.ads.bid[ads].astype(np.float64) if self.criterion == "ecpm" else np.ones(len(ads))
        values = worth * candidates.probability
        shown, best = np.empty(len(requests), np.int64), np.empty(len(requests), np.int64)
        best_indices(indptr, worth * ctr, shown)
        best_indices(indptr, values, best)
        chosen = ads[shown]
        p = candidates.probability[shown]
        clicked = requests.luck < p
        np.minimum.at(self.first_shown, chosen, requests.time)
        known = known_of(self.world, requests, np.arange(len(chosen) + 1), chosen)
        feedback = Feedback(rows[shown], labels(requests, clicked), requests.time + WINDOW, known)
        new = requests.time - self.first_shown[chosen] < DAY
        return ShownAds(requests, chosen, clicked, p, predicted[shown], ads[best], values[shown], values[best], new, feedback)


def served(
    predictor: Predictor, rows: Keys, indptr: NDArray[np.int64], arm: Arm, seeds: NDArray[np.uint64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The CTRs that the server answers for each request by the arm's policy, and the predicted ones."""
    own_fields, shared_fields = predictor.encoder.own_fields, predictor.encoder.shared_fields
    own, shared = np.ascontiguousarray(rows[:, own_fields]), np.ascontiguousarray(rows[indptr[:-1]][:, shared_fields])
    rule = "none" if arm.policy == "greedy" else arm.policy
    scores, ctr = explore_requests(predictor, shared, own, indptr, rule, seeds, arm.spread)
    return ctr, scores.ctr
