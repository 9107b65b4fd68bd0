"""The synthetic world behind `pbodl.data.synthetic`: who exists in it, and what makes a click more likely.

Entities: places (sites and apps), device models, devices, addresses, and ads. The market has `SLOTS` places
for ads; each day `REPLACED` of them go to new creatives, some of new campaigns. An impression is a tuple of
entity numbers; its log-odds are

    η = b + s (w₁ L + w₂ u·a + w₃ c·a' + w₄ T),  L = Σ linear effects,  T = Σ_k u_k c_k a"_k

with u the device's factors, c the context's, a, a' and a" the ad's. The ads' effects drift from day to day (a
stationary AR(1)). The four parts are standardised, and b and s solved for, on a sample of the world's own
impressions: so every seed has nearly the same CTR and best possible AUC. The weights w were set so that, of
1M rows, a well-tuned linear model learns an AUC of about 0.74.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

CTR, BEST_AUC = 0.174, 0.80
WEIGHTS = (0.86, 0.335, 0.335, 0.19)  # squared: about the parts' shares of the log-odds' variance
DRIFT = 0.9  # correlation of an ad's effects between one day and the next

SITES, APPS, DOMAINS, CATEGORIES = 3000, 2000, 1500, 25
MODELS, DEVICES, ADDRESSES = 3000, 100_000, 150_000
SLOTS, CAMPAIGNS, ADVERTISERS = 1000, 200, 60
REPLACED, REPLACED_CAMPAIGNS = 150, 10  # a day; slots, of which those of whole campaigns are a part

PAIR, TRIPLE = 3, 2  # ranks of u·a and of c·a', and of T
WIDTH = 1 + PAIR + TRIPLE  # a device's or a place's effects: linear, pair factors, triple factors

Ints = NDArray[np.int32]
Floats = NDArray[np.float64]
Table = NDArray[np.float32]


class Impressions(NamedTuple):
    """Entity numbers, one per row; everything else in a row follows from them."""

    time: NDArray[np.int64]  # seconds since the first midnight
    day: NDArray[np.int64]
    hour: NDArray[np.int64]  # of the day
    place: Ints  # sites first, then apps
    banner: Ints
    model: Ints
    device: Ints  # 0 is the device without an id
    address: Ints
    connection: Ints
    slot: Ints
    direct: NDArray[np.bool_]  # bought without a channel: C20 is -1


class Market(NamedTuple):
    """Which creative and campaign hold a slot on a day, [days, SLOTS]; a new one has a new number."""

    creative: Ints
    campaign: Ints
    advertiser: Ints  # [campaigns]
    size: Ints  # [creatives]


def rng(seed: int, name: str) -> np.random.Generator:
    """A stream of its own for each table, so that a change of one leaves the others as they are."""
    return np.random.Generator(np.random.PCG64([seed, *name.encode()]))


def zipf(uniform: Floats, n: int, exponent: float) -> Ints:
    """Ranks 0 .. n-1, the density about (rank+1)^-exponent: the continuous law's quantiles, rounded down."""
    power = 1.0 - exponent
    ranks = (1.0 + uniform * ((n + 1.0) ** power - 1.0)) ** (1.0 / power)
    return np.minimum(ranks.astype(np.int32) - 1, n - 1).astype(np.int32)


def market(seed: int, days: int) -> Market:
    """Slot by slot and day by day, who is on the market."""
    draws = rng(seed, "market")
    slot_campaign = draws.permutation(SLOTS) % CAMPAIGNS
    creative = np.empty((days, SLOTS), dtype=np.int32)
    campaign = np.empty((days, SLOTS), dtype=np.int32)
    creative[0], campaign[0] = np.arange(SLOTS), slot_campaign
    creatives, campaigns = SLOTS, CAMPAIGNS
    for day in range(1, days):
        creative[day], campaign[day] = creative[day - 1], campaign[day - 1]
        renewed = np.isin(slot_campaign, draws.choice(CAMPAIGNS, REPLACED_CAMPAIGNS, replace=False))
        fresh = campaigns + np.cumsum(np.bincount(slot_campaign[renewed], minlength=CAMPAIGNS) > 0) - 1
        campaign[day, renewed] = fresh[slot_campaign[renewed]]
        others = draws.choice(np.flatnonzero(~renewed), REPLACED - renewed.sum(), replace=False)
        replaced = np.union1d(np.flatnonzero(renewed), others)
        creative[day, replaced] = creatives + np.arange(REPLACED)
        creatives, campaigns = creatives + REPLACED, campaigns + REPLACED_CAMPAIGNS
    advertiser = zipf(draws.random(campaigns), ADVERTISERS, 0.7)
    size = np.searchsorted([0.88, 0.94, 0.96, 0.97, 0.98, 0.99], draws.random(creatives)).astype(np.int32)
    return Market(creative, campaign, advertiser, size)


class Geography(NamedTuple):
    """What a place, a model and a device determine."""

    domain: Ints  # [places]; numbers run over sites' and apps' domains apart
    category: Ints  # [places]
    banner: Ints  # [places], its usual one
    odd: Ints  # [places], 1 for the few with a C1 of their own
    device_type: Ints  # [models]
    device_model: Ints  # [devices]
    device_address: Ints  # [devices]


def geography(seed: int) -> Geography:
    """Domains of popular places are mostly their own; small places share them."""
    draws = rng(seed, "geography")
    places = SITES + APPS
    own = np.concatenate([np.arange(SITES), np.arange(APPS)])
    limit = np.where(np.arange(places) < SITES, DOMAINS, DOMAINS // 10)
    shared = (zipf(draws.random(places), 1000, 0.6) * limit // 1000).astype(np.int32)
    domain = np.where((own < limit) & (draws.random(places) < 0.7), own, shared).astype(np.int32)
    category = zipf(draws.random(places), CATEGORIES, 0.9)
    banner = np.searchsorted([0.72, 0.985, 0.99, 0.994, 0.997], draws.random(places)).astype(np.int32)
    device_type = np.searchsorted([0.93, 0.97, 0.99], draws.random(MODELS)).astype(np.int32)
    device_model = zipf(draws.random(DEVICES), MODELS, 0.9)
    address = draws.integers(0, ADDRESSES, DEVICES, dtype=np.int32)
    odd = (draws.random(places) < 0.02).astype(np.int32)
    return Geography(domain, category, banner, odd, device_type, device_model, address)


def _normal(seed: int, name: str, n: int, linear: float, factors: float, width: int = WIDTH) -> Table:
    table = rng(seed, name).standard_normal((n, width), dtype=np.float32)
    table[:, 0] *= linear
    table[:, 1:] *= factors
    return table


class Effects:
    """The truth: log-odds of impressions, and the tables they are made of."""

    def __init__(self, seed: int, days: int, geo: Geography, ads: Market) -> None:
        in_app = np.arange(SITES + APPS) >= SITES
        self.place = (
            _normal(seed, "place", SITES + APPS, 0.35, 0.25)
            + _normal(seed, "domain", 2 * DOMAINS, 0.35, 0.3)[geo.domain + DOMAINS * in_app]
            + _normal(seed, "category", 2 * CATEGORIES, 0.45, 0.6)[geo.category + CATEGORIES * in_app]
        )
        self.hour = _normal(seed, "hour", 24, 0.15, 0.2)
        self.banner = _normal(seed, "banner", 6, 0.3, 0.4)
        self.model = _normal(seed, "model", MODELS, 0.35, 0.3)
        self.model += _normal(seed, "type", 4, 0.3, 0.3)[geo.device_type]
        self.device = _normal(seed, "device", DEVICES, 0.3, 0.2)
        self.device[0] = 0.0
        self.address = _normal(seed, "address", ADDRESSES, 0.15, 0.0, 1)[:, 0]
        self.connection = _normal(seed, "connection", 4, 0.3, 0.6)
        self.ad = _drifting(seed, days, ads)
        self._scales, self._intercept = np.ones(4), 0.0

    def parts(self, rows: Impressions) -> Floats:
        """L, u·a, c·a' and T as they come, [4, n]."""
        user, context, ad = self._sides(rows)
        linear = user[:, 0] + context[:, 0] + ad[:, 0] + self.address[rows.address]
        of_user = np.einsum("nk,nk->n", user[:, 1 : 1 + PAIR], ad[:, 1 : 1 + PAIR])
        of_context = np.einsum("nk,nk->n", context[:, 1 : 1 + PAIR], ad[:, 1 + PAIR : 1 + 2 * PAIR])
        triple = np.einsum("nk,nk,nk->n", user[:, 1 + PAIR :], context[:, 1 + PAIR :], ad[:, 1 + 2 * PAIR :])
        return np.stack([linear, of_user, of_context, triple]).astype(np.float64)

    def _sides(self, rows: Impressions) -> tuple[Table, Table, Table]:
        user = self.model[rows.model] + self.device[rows.device] + self.connection[rows.connection]
        context = self.place[rows.place] + self.hour[rows.hour] + self.banner[rows.banner]
        return user, context, self.ad[rows.day, rows.slot]

    def log_odds(self, rows: Impressions) -> Floats:
        """η of each impression."""
        return self._intercept + _weighted(self._scales, self.parts(rows))

    def calibrate(self, sample: Impressions) -> None:
        """Set b and s so that the sample has the CTR and the best possible AUC of every world."""
        # Factors of mean zero make products that no linear model can explain: so seeds differ little in that.
        for table, side in zip((self.model, self.place, self.ad), self._sides(sample), strict=True):
            table[..., 1:] -= side[:, 1:].mean(axis=0)
        parts = self.parts(sample)
        scales = np.asarray(WEIGHTS) / parts.std(axis=1)
        centre = float((scales * parts.mean(axis=1)).sum())
        shape = np.sort(_weighted(scales, parts) - centre)
        low, high, intercept = 0.1, 5.0, 0.0
        for _ in range(20):
            scale = (low + high) / 2
            intercept = _intercept(scale * shape, intercept)
            too_flat = _best_auc(intercept + scale * shape) < BEST_AUC
            low, high = (scale, high) if too_flat else (low, scale)
        self._scales = scale * scales
        self._intercept = intercept - scale * centre


def _drifting(seed: int, days: int, ads: Market) -> Table:
    """[days, SLOTS, effects]: of advertiser and size, which stay; of campaign and creative, which drift."""
    width = 1 + 2 * PAIR + TRIPLE
    creatives, campaigns = ads.size.size, ads.advertiser.size
    lasting = _normal(seed, "advertiser", ADVERTISERS, 0.4, 0.6, width)[ads.advertiser]
    size = _normal(seed, "size", 7, 0.3, 0.3, width)[ads.size]
    kept, renewed = np.float32(DRIFT), np.float32(np.sqrt(1 - DRIFT**2))
    creative = _normal(seed, "creative", creatives, 0.25, 0.2, width)
    campaign = _normal(seed, "campaign", campaigns, 0.45, 0.5, width)
    table = np.empty((days, SLOTS, width), dtype=np.float32)
    for day in range(days):
        table[day] = (lasting + campaign)[ads.campaign[day]] + (size + creative)[ads.creative[day]]
        creative = kept * creative + renewed * _normal(seed, f"creative {day}", creatives, 0.25, 0.2, width)
        campaign = kept * campaign + renewed * _normal(seed, f"campaign {day}", campaigns, 0.45, 0.5, width)
    return table


def _weighted(scales: Floats, parts: Floats) -> Floats:
    # Not `@`: its library may sum in another order on another machine.
    return (scales[:, np.newaxis] * parts).sum(axis=0)


def probability(log_odds: Floats) -> Floats:
    return 1.0 / (1.0 + np.exp(-log_odds))


def _intercept(shape: Floats, start: float) -> float:
    """b with mean probability(b + shape) = CTR, by Newton's method with its steps held below 1."""
    b = start
    for _ in range(8):
        p = probability(b + shape)
        b += float(np.clip((CTR - p.mean()) / (p * (1 - p)).mean(), -1, 1))
    return b


def _best_auc(ascending: Floats) -> float:
    """The AUC expected of the true probabilities themselves, over clicks drawn from them."""
    p = probability(ascending)
    below = np.cumsum(1 - p) - (1 - p) / 2
    return float((p * below).sum() / (p.sum() * (1 - p).sum()))
