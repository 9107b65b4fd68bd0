"""The world of the online experiment: users with hidden tastes, ads with hidden quality, contexts over the day, and the truth.

The log-odds that user u clicks ad a in context c at time t are

    η = b + s₁ u₀ + s₂ c₀ + s₃ a₀(t) + s₄ Σ_k u_k a_k + s₅ Σ_k c_k a'_k + s₆ Σ_k u"_k c"_k a"_k

A user's effects come from age, gender, interest, region and device, which a model sees, and from the person, which it does not;
a context's effects come from site, position, connection and hour. The six parts are standardised on a sample of its requests
and candidates, and s are the spreads of the market's kind; b is chosen so that a random ad has the CTR `CTR`. So every seed is
equally hard.

The truth is known for all candidates of a request, and with it the best possible ranking.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl._jit import jit
from pbodl.data.hashing import wrapping
from pbodl.data.synthetic.world import probability, rng, zipf
from pbodl.errors import InputError
from pbodl.experiments.ab.ad_market import AGES, DAY, GENDERS, HOUR, MARKETS, PAIR, REGIONS, TRIPLE, make_market
from pbodl.mixing import mix

CTR = 0.04  # of a random ad among those that fit the user
INTERESTS, DEVICES = 24, 6
SITES, POSITIONS, CONNECTIONS, HOURS = 20, 4, 3, 24
WIDTH = 1 + PAIR + TRIPLE  # a user's or a context's effects: linear, pair factors, triple factors
PEAK = 0.83  # share of the day: the evening
SAMPLE = 2000  # requests for standardising the parts

# Shares of the variance of a user's effects, and of a context's.
USER = {"age": 0.20, "gender": 0.15, "interest": 0.30, "region": 0.10, "device": 0.05, "person": 0.20}
CONTEXT = {"site": 0.4, "position": 0.25, "connection": 0.1, "hour": 0.25}

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]


class Users(NamedTuple):
    """[users]; the activity of each is drawn once."""

    age: Ints
    gender: Ints
    interest: Ints
    region: Ints
    device: Ints
    effects: Floats  # [users, WIDTH]
    activity: NDArray[np.float64]  # cumulative share of the requests


class Requests(NamedTuple):
    """Requests in order of time, with the luck that decides their outcomes for every arm."""

    time: NDArray[np.float64]  # seconds since the first midnight
    user: Ints
    site: Ints
    position: Ints
    connection: Ints
    luck: NDArray[np.float64]  # a click if it is below the probability
    patience: NDArray[np.float64]  # the quantile of the click's delay
    pick: NDArray[np.float64]  # selects the candidate where one is drawn at random
    pacing: NDArray[np.uint64]  # decides which ads skip the request

    def __len__(self) -> int:
        return len(self.time)

    def part(self, chosen: NDArray | slice) -> "Requests":
        columns: list[Any] = [column[chosen] for column in self]
        return Requests(*columns)


class Candidates(NamedTuple):
    """The ads that fit each request, concatenated: request i has the entries indptr[i] to indptr[i + 1]."""

    indptr: NDArray[np.int64]
    ad: Ints
    probability: NDArray[np.float64]


class Truth(NamedTuple):
    """The arrays of the world that the kernel needs."""

    user: Floats  # [users, WIDTH]
    site: Floats
    position: Floats
    connection: Floats
    hour: Floats
    quality: Floats  # [ads, hours]
    lasting: Floats  # [ads]: quality without its drift
    factors: Floats  # [ads, FACTORS]
    scales: NDArray[np.float64]
    intercept: np.float64
    takes_part: np.uint64  # an ad's hash up to which it takes part in a request


@jit
def parts_of(truth, user, context, ad, hour, parts):
    """The six parts of one pair's log-odds, unscaled. MODIFIES: parts."""
    u, a = truth.user[user], truth.factors[ad]
    parts[0], parts[1], parts[2] = u[0], context[0], truth.quality[ad, hour]
    parts[3] = parts[4] = parts[5] = 0.0
    for k in range(PAIR):
        parts[3] += u[1 + k] * a[k]
        parts[4] += context[1 + k] * a[PAIR + k]
    for k in range(TRIPLE):
        parts[5] += u[1 + PAIR + k] * context[1 + PAIR + k] * a[2 * PAIR + k]


@jit
def context_of(truth, site, position, connection, hour, context):
    """MODIFIES: context."""
    for k in range(WIDTH):
        context[k] = truth.site[site, k] + truth.position[position, k] + truth.connection[connection, k] + truth.hour[hour, k]


@jit
def find_candidates(requests, users, ads, slots, truth, parts, indptr, found, odds):
    """All ads that fit, and their log-odds; fills `parts` too, if it has rows. MODIFIES: parts, indptr, found, odds."""
    context, own = np.empty(WIDTH, np.float32), np.empty(6)
    at = np.zeros(slots.ad.shape[0], np.int64)
    n = 0
    for i in range(len(requests.time)):
        time, user = requests.time[i], requests.user[i]
        hour = np.int64(time / HOUR)
        context_of(truth, requests.site[i], requests.position[i], requests.connection[i], hour % HOURS, context)
        age, gender, region = users.age[user], users.gender[user], users.region[user]
        for slot in range(len(at)):
            while slots.until[slot, at[slot]] <= time:
                at[slot] += 1
            ad = slots.ad[slot, at[slot]]
            if (ads.ages[ad] >> age) & (ads.genders[ad] >> gender) & (ads.regions[ad] >> region) & 1 == 0:
                continue
            if mix(requests.pacing[i] + np.uint64(slot)) > truth.takes_part:
                continue
            parts_of(truth, user, context, ad, hour, own)
            total = truth.intercept
            for part in range(6):
                total += truth.scales[part] * own[part]
            found[n], odds[n] = ad, total
            if len(parts) > 0:
                parts[n] = own
            n += 1
        indptr[i + 1] = n


class AdWorld:
    """The world of a seed, with `slots` ads on the market at a time, and twice as many requests per day as users."""

    def __init__(self, seed: int, days: int, requests_per_day: int, slots: int, market: str = "standard") -> None:
        for name, value, least in (("days", days, 1), ("requests_per_day", requests_per_day, 100), ("slots", slots, 10)):
            if value < least:
                raise InputError(f"{name} is {value}; it must be at least {least}")
        self.seed, self.days, self.requests_per_day, self.kind = seed, days, requests_per_day, MARKETS[market]
        self.users = _users(seed, max(50, requests_per_day // 2))
        self.ads, self.slots = make_market(seed, days, slots, self.kind)
        draws = rng(seed, "ab contexts")
        sizes = {"site": SITES, "position": POSITIONS, "connection": CONNECTIONS, "hour": HOURS}
        tables = {name: _effects(draws, size, CONTEXT[name]) for name, size in sizes.items()}
        part = np.uint64(min(int(self.kind.paced * 2**64), 2**64 - 1))
        own = {"quality": self.ads.quality, "lasting": self.ads.lasting, "factors": self.ads.factors}
        self.truth = Truth(self.users.effects, **tables, **own, scales=np.ones(6), intercept=np.float64(0.0), takes_part=part)
        self._standardise()

    def requests(self, day: int) -> Requests:
        """A day's requests; more of them in the evening than before dawn."""
        draws = rng(self.seed, f"ab requests {day}")
        n = self.requests_per_day
        grid = np.linspace(0.0, 1.0, 1441)
        # The integral of 1 + ½ cos 2π(x - peak), which is 1 over a day.
        share = grid + (np.sin(2 * np.pi * (grid - PEAK)) + np.sin(2 * np.pi * PEAK)) / (4 * np.pi)
        time = (day + np.sort(np.interp(draws.random(n), share, grid))) * DAY
        user = np.searchsorted(self.users.activity, draws.random(n)).astype(np.int32)
        site = zipf(draws.random(n), SITES, 0.8)
        position = draws.integers(0, POSITIONS, n, dtype=np.int32)
        connection = np.searchsorted([0.6, 0.9], draws.random(n)).astype(np.int32)
        luck, patience, pick = draws.random((3, n))
        pacing = draws.integers(0, 2**64, n, dtype=np.uint64)
        time = np.minimum(time, (day + 1) * DAY - 1e-3)
        return Requests(time, user, site, position, connection, luck, patience, pick, pacing)

    def candidates(self, requests: Requests) -> Candidates:
        """The ads that fit each request, with their true probabilities."""
        indptr, found, odds, _ = self._find(requests, 0)
        return Candidates(indptr, found, probability(odds.astype(np.float64)))

    def _find(self, requests: Requests, parts_per_pair: int) -> tuple[NDArray[np.int64], Ints, Floats, NDArray[np.float64]]:
        most = len(requests) * len(self.slots.ad)
        indptr = np.zeros(len(requests) + 1, np.int64)
        found, odds = np.empty(most, np.int32), np.empty(most, np.float32)
        parts = np.empty((most * parts_per_pair, 6))
        with wrapping():
            find_candidates(requests, self.users, self.ads, self.slots, self.truth, parts, indptr, found, odds)
        n = indptr[-1]
        return indptr, found[:n], odds[:n], parts[:n]

    def _standardise(self) -> None:
        sample = self.requests(0).part(slice(None, None, max(1, self.requests_per_day // SAMPLE)))
        *_, parts = self._find(sample, 1)
        scales = np.asarray(self.kind.spreads) / parts.std(axis=0)
        odds = parts @ scales
        b = 0.0
        for _ in range(30):
            p = probability(b + odds)
            b += float(np.clip((CTR - p.mean()) / (p * (1 - p)).mean(), -1.0, 1.0))
        self.truth = self.truth._replace(scales=scales, intercept=np.float64(b))


def _effects(draws: np.random.Generator, size: int, share: float) -> Floats:
    return (np.sqrt(share) * draws.standard_normal((size, WIDTH))).astype(np.float32)


def _users(seed: int, n: int) -> Users:
    draws = rng(seed, "ab users")
    columns = {
        "age": draws.integers(0, AGES, n, dtype=np.int32), "gender": draws.integers(0, GENDERS, n, dtype=np.int32),
        "interest": zipf(draws.random(n), INTERESTS, 0.5), "region": zipf(draws.random(n), REGIONS, 0.5),
        "device": zipf(draws.random(n), DEVICES, 0.5),
    }  # fmt: skip
    effects = _effects(draws, n, USER["person"])
    for name, values in columns.items():
        effects += _effects(draws, int(values.max()) + 1, USER[name])[values]
    activity = np.cumsum(draws.gamma(0.7, size=n))
    return Users(**columns, effects=effects, activity=activity / activity[-1])
