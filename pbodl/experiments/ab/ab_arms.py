"""The online experiment: a hash of the user's number assigns users to arms; each arm learns from its own traffic, or from all.

An arm that learns only from its own traffic is simulated alone, because it does not affect the others. With `share`, the arms of a
test run in step. The luck of clicks and delays belongs to the request, so it is the same for every arm.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl.data.hashing import field_seed, hash_integers
from pbodl.errors import InputError
from pbodl.experiments.ab.ad_features import AdFeatures
from pbodl.experiments.ab.ad_market import DAY, MARKETS
from pbodl.experiments.ab.ad_world import AdWorld, Requests
from pbodl.experiments.ab.arm import CHUNK, CRITERIA, ArmAtWork, ShownAds, burn_in
from pbodl.experiments.ab.arm_figures import COLUMNS, Sums, contributions
from pbodl.experiments.ab.lineup import ABTest

IMPRESSIONS = 400  # per ad, arm and day, on average


class Setting(NamedTuple):
    """The size and the rules of the experiment."""

    days: int = 7
    requests_per_day: int | None = None  # total across all arms of a test; None: IMPRESSIONS of every ad by every arm
    ads: int | None = None  # on the market at a time; None: as many as the market's kind says
    burn_in: int = 3  # days
    criterion: str = "ecpm"
    share: bool = False
    market: str = "standard"

    def settled(self, arms: int) -> "Setting":
        """With the number of ads and of requests, where it depends on the market and the arms."""
        ads = self.ads or MARKETS[self.market].ads
        return self._replace(ads=ads, requests_per_day=self.requests_per_day or IMPRESSIONS * ads * arms)

    def check(self) -> None:
        if self.market not in MARKETS:
            raise InputError(f"there is no market {self.market!r}; allowed: {', '.join(MARKETS)}")
        for name, value, least in (("days", self.days, 1), ("burn-in", self.burn_in, 1)):
            if value < least:
                raise InputError(f"{name} is {value}; it must be at least {least}")
        if self.criterion not in CRITERIA:
            raise InputError(f"the arms cannot rank by {self.criterion!r}; allowed: {', '.join(CRITERIA)}")


class ArmOutcome(NamedTuple):
    """The outcome of one arm in one world."""

    users: Sums  # [users of the arm, len(COLUMNS)]
    days: Sums  # [days, len(COLUMNS)]
    facts: dict[str, Any]


def arm_of(users: NDArray, test: str, arms: int) -> NDArray[np.int64]:
    """The arm that a user always belongs to: a hash of the user and the test's name."""
    return (hash_integers(np.asarray(users, np.int64), field_seed(f"ab test {test}")) % np.uint64(arms)).astype(np.int64)


def run_arms(test: ABTest, chosen: Sequence[int], seed: int, setting: Setting) -> list[ArmOutcome]:
    """Simulate some arms of a test, or, with `setting.share`, all of them."""
    setting = setting.settled(len(test.arms))
    assert setting.requests_per_day and setting.ads
    world = AdWorld(seed, setting.burn_in + setting.days, setting.requests_per_day, setting.ads, setting.market)
    features = AdFeatures(world)
    log = burn_in(world, features, setting.burn_in)
    owner = arm_of(np.arange(len(world.users.age)), test.name, len(test.arms))
    began = time.perf_counter()
    arms = {number: ArmAtWork(test.arms[number], world, features, log, setting.criterion) for number in chosen}
    tallies = {number: Tally(world, owner == number, setting) for number in chosen}
    for day in range(setting.burn_in, setting.burn_in + setting.days):
        requests = world.requests(day)
        for number, shown in _together(arms, requests, owner) if setting.share else _apart(arms, requests, owner):
            tallies[number].add(shown)
    seconds = time.perf_counter() - began
    return [tallies[number].outcome({"seconds": seconds, "counters": arms[number].counters()}) for number in chosen]


def _apart(arms: dict[int, ArmAtWork], requests: Requests, owner: NDArray[np.int64]) -> Iterator[tuple[int, ShownAds]]:
    """Each arm answers its users' requests of the day and learns from them."""
    for number, arm in arms.items():
        own = requests.part(owner[requests.user] == number)
        for start in range(0, len(own), CHUNK):
            for shown in arm.serve(own.part(slice(start, start + CHUNK))):
                arm.receive(shown.feedback)
                yield number, shown


def _together(arms: dict[int, ArmAtWork], requests: Requests, owner: NDArray[np.int64]) -> Iterator[tuple[int, ShownAds]]:
    """In slices of the shortest interval, each arm answers its users' requests; then all arms receive the feedback of all."""
    every = min(arm.arm.every for arm in arms.values())
    edges = np.flatnonzero(np.diff(np.floor(requests.time / every), prepend=-1.0, append=np.inf))
    for start, stop in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        part = requests.part(slice(start, stop))
        answered = [(number, shown) for number, arm in arms.items() for shown in arm.serve(part.part(owner[part.user] == number))]
        for _, shown in sorted(answered, key=lambda answer: answer[1].requests.time[0]):
            for arm in arms.values():
                arm.receive(shown.feedback)
        yield from answered


class Tally:
    """An arm's sums by user and by day."""

    def __init__(self, world: AdWorld, own: NDArray[np.bool_], setting: Setting) -> None:
        self.world, self.burn_in = world, setting.burn_in
        self.row = np.cumsum(own) - 1
        self.users = np.zeros((int(own.sum()), len(COLUMNS)))
        self.days = np.zeros((setting.days, len(COLUMNS)))

    def add(self, shown: ShownAds) -> None:
        added = contributions(shown, self.world)
        np.add.at(self.users, self.row[shown.requests.user], added)
        np.add.at(self.days, (shown.requests.time / DAY).astype(np.int64) - self.burn_in, added)

    def outcome(self, facts: dict[str, Any]) -> ArmOutcome:
        return ArmOutcome(self.users, self.days, facts)
