"""The ads of the online experiment: their time on the market, targeting, price and quality.

A slot holds one ad at a time. Each day a share `REPLACED` of the slots gets a new ad, at moments spread over the day. A new ad is
mostly a new creative of a running campaign, sometimes of a new campaign. So campaign, advertiser, industry and material predict
something about it before its first impression; its own quality and taste show only in its clicks.

Letters: an ad's effects are one linear number, which drifts, and factors: PAIR interact with the user's, PAIR with the context's,
and TRIPLE with the products of both.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl.data.synthetic.world import rng, zipf

DAY, HOUR = 86400.0, 3600.0
REPLACED = 0.15  # share of the slots per day
SAME_CAMPAIGN, SAME_ADVERTISER = 0.7, 0.2  # shares of the new ads; the others come from any advertiser
INDUSTRIES, MATERIALS = 12, 8
AGES, GENDERS, REGIONS = 8, 2, 30
PAIR, TRIPLE = 4, 2
FACTORS = 2 * PAIR + TRIPLE

BID_SPREAD = {"campaign": 0.2, "ad": 0.15}  # standard deviations of the logarithm

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]


class MarketKind(NamedTuple):
    """What the log-odds depend on, and how large the market is."""

    spreads: tuple[float, ...]  # standard deviations of the parts of the log-odds
    # Shares of the variance of an ad's quality, and of its factors, by source.
    quality: dict[str, float]
    taste: dict[str, float]
    drift: dict[str, tuple[float, float]]  # share, and hours after which e⁻¹ of a deviation remains
    targeted: bool  # whether campaigns choose ages, genders and regions
    paced: float  # share of its matching requests that an ad takes part in: budgets must last the day
    ads: int  # on the market at a time, by default
    logged: int  # requests per day of the burn-in, at most: all models start from the same small log, whatever the traffic is


MARKETS = {
    "standard": MarketKind(
        (0.35, 0.40, 0.90, 0.30, 0.15, 0.15),
        {"industry": 0.05, "advertiser": 0.10, "campaign": 0.15, "material": 0.10, "ad": 0.50},
        {"industry": 0.35, "advertiser": 0.20, "campaign": 0.20, "ad": 0.25},
        {"ad": (0.07, 48.0), "industry": (0.03, 12.0)},
        True,
        1.0,
        60,
        5_000,
    ),
    # An ad's own quality is most of what is unknown, and nothing tells it in advance. All ads compete in every request: nothing but
    # exploration makes an arm show an ad that started badly.
    "quality": MarketKind((0.30, 0.30, 0.90, 0.30, 0.15, 0.15), {"ad": 1.0}, {"ad": 1.0}, {}, False, 1.0, 40, 400),
}


class Ads(NamedTuple):
    """All ads of the world by number, [ads]; targeting has a bit per age, gender and region."""

    campaign: Ints
    advertiser: Ints
    industry: Ints
    material: Ints
    start: NDArray[np.float64]  # entry into the market; minus infinity for the initial ads
    bid: Floats
    ages: Ints
    genders: Ints
    regions: Ints
    quality: Floats  # [ads, hours], not yet to scale
    lasting: Floats  # [ads]: quality without its drift
    factors: Floats  # [ads, FACTORS]


class Slots(NamedTuple):
    """The ads that hold each slot, [slots, successive ads], and the ends of their times."""

    ad: Ints
    until: NDArray[np.float64]


class Lineage(NamedTuple):
    """The slot, start and campaign of each ad, and the advertiser of each campaign."""

    slot: Ints
    start: NDArray[np.float64]
    campaign: Ints
    advertiser: Ints  # [campaigns]


def make_market(seed: int, days: int, slots: int, kind: MarketKind) -> tuple[Ads, Slots]:
    """The ads and slots of a world of `days` days."""
    lineage = _lineage(seed, days, slots)
    ads = _ads(seed, days, lineage, kind)
    order = np.lexsort((lineage.start, lineage.slot))
    held = np.bincount(lineage.slot, minlength=slots)
    turn = np.arange(len(order)) - np.repeat(np.cumsum(held) - held, held)
    ad = np.zeros((slots, int(held.max())), np.int32)
    until = np.full(ad.shape, np.inf)
    ad[lineage.slot[order], turn] = order
    later = turn > 0
    until[lineage.slot[order][later], turn[later] - 1] = lineage.start[order][later]
    return ads, Slots(ad, until)


def _lineage(seed: int, days: int, slots: int) -> Lineage:
    draws = rng(seed, "ab market")
    advertisers = max(2, slots // 8)
    advertiser = list(zipf(draws.random(max(2, slots // 3)), advertisers, 0.7))
    campaign = list(draws.permutation(slots) % len(advertiser))
    slot, start = list(range(slots)), [-np.inf] * slots
    holder = np.arange(slots)
    for day in range(days):
        renewed = draws.choice(slots, max(1, round(REPLACED * slots)), replace=False)
        for which, moment in zip(renewed, np.sort(draws.random(len(renewed))), strict=True):
            own = campaign[holder[which]]
            kind = draws.random()
            if kind >= SAME_CAMPAIGN:
                same = kind < SAME_CAMPAIGN + SAME_ADVERTISER
                advertiser.append(advertiser[own] if same else int(draws.integers(advertisers)))
                own = len(advertiser) - 1
            holder[which] = len(slot)
            slot.append(int(which))
            start.append((day + float(moment)) * DAY)
            campaign.append(own)
    return Lineage(np.array(slot, np.int32), np.array(start), np.array(campaign, np.int32), np.array(advertiser, np.int32))


def _ads(seed: int, days: int, lineage: Lineage, kind: MarketKind) -> Ads:
    n, campaigns = len(lineage.slot), len(lineage.advertiser)
    draws = rng(seed, "ab ads")
    advertisers = int(lineage.advertiser.max()) + 1
    advertiser = lineage.advertiser[lineage.campaign]
    industry = zipf(draws.random(advertisers), INDUSTRIES, 0.5)[advertiser]
    material = draws.integers(0, MATERIALS, n, dtype=np.int32)
    levels: dict[str, tuple[NDArray, int]] = {
        "industry": (industry, INDUSTRIES), "advertiser": (advertiser, advertisers), "campaign": (lineage.campaign, campaigns),
        "material": (material, MATERIALS), "ad": (np.arange(n), n),
    }  # fmt: skip
    lasting = np.zeros(n)
    for level, share in kind.quality.items():
        of, size = levels[level]
        lasting += np.sqrt(share) * draws.standard_normal(size)[of]
    quality = np.repeat(lasting[:, np.newaxis], 24 * days + 1, axis=1)
    for level, (share, hours) in kind.drift.items():
        of, size = levels[level]
        quality += np.sqrt(share) * _drift(draws, size, quality.shape[1], hours)[of]
    factors = np.zeros((n, FACTORS))
    for level, share in kind.taste.items():
        of, size = levels[level]
        factors += np.sqrt(share) * draws.standard_normal((size, FACTORS))[of]
    bid = np.zeros(n)
    for level, spread in BID_SPREAD.items():
        of, size = levels[level]
        bid += spread * draws.standard_normal(size)[of]
    masks = _targeting(draws, lineage.campaign, campaigns, kind.targeted)
    return Ads(
        lineage.campaign, advertiser, industry, material, lineage.start, np.exp(bid).astype(np.float32), *masks,
        quality.astype(np.float32), lasting.astype(np.float32), factors.astype(np.float32),
    )  # fmt: skip


def _drift(draws: np.random.Generator, size: int, hours: int, memory: float) -> NDArray[np.float64]:
    """Hourly stationary AR(1) processes of variance 1: [size, hours]."""
    kept = np.exp(-1.0 / memory)
    noise = draws.standard_normal((hours, size))
    values = np.empty((hours, size))
    values[0] = noise[0]
    for hour in range(1, hours):
        values[hour] = kept * values[hour - 1] + np.sqrt(1.0 - kept**2) * noise[hour]
    return values.T


def _targeting(draws: np.random.Generator, campaign: Ints, campaigns: int, targeted: bool) -> tuple[Ints, Ints, Ints]:
    """Bits of ages (a range), genders and regions, by campaign. Slightly over half of all ads fit a user, or all of them."""
    if not targeted:
        return tuple(np.full(len(campaign), (1 << n) - 1, np.int32) for n in (AGES, GENDERS, REGIONS))  # type: ignore[return-value]
    low = np.maximum(0, draws.integers(-3, AGES - 4, campaigns))
    high = np.minimum(AGES, low + draws.integers(5, AGES + 1, campaigns))
    ages = (1 << high) - (1 << low)
    genders = np.where(draws.random(campaigns) < 0.8, 0b11, 1 << draws.integers(0, GENDERS, campaigns))
    some = (draws.random((campaigns, REGIONS)) < 0.6) @ (1 << np.arange(REGIONS))
    regions = np.where(draws.random(campaigns) < 0.6, (1 << REGIONS) - 1, some)
    return tuple(mask.astype(np.int32)[campaign] for mask in (ages, genders, regions))  # type: ignore[return-value]
