"""A generated click log of another make than `pbodl.data.synthetic`: a shop, to measure on what no default was fitted to.

Its truth is no sum of products. Users have a hidden cluster, items a strong quality of their own; numbers act by thresholds and
monotone curves; a few combinations of category, device and age have an effect of their own; hours and weekdays have seasons; a few
users make most of the traffic; items come and go. About 6 % of the impressions are clicked.
"""

import itertools

import numpy as np
import pyarrow as pa

import pbodl

USERS, ITEMS, EVERGREEN = 30_000, 3_000, 50
CLUSTERS, CATEGORIES, BRANDS, CITIES, DEVICES, AGES = 12, 30, 200, 500, 4, 5
CTR, SCALE = 0.06, 0.75
START = 1_413_849_600  # 21 October 2014, a Tuesday
DAY, HOURS = 86_400, 24

FIELDS = {
    "user": "user", "age": "user", "income": "user", "visits": "user", "city": "user", "segment": "user",
    "item": "ad", "category": "ad", "brand": "ad", "price": "ad",
    "position": "context", "device": "context", "hour": "context", "weekday": "context",
}  # fmt: skip
NUMBERS = ("age", "income", "visits", "price")
SCHEMA = pbodl.Schema(
    label="click",
    time="time",
    fields=[pbodl.Field(name, group=group, kind="number" if name in NUMBERS else "category") for name, group in FIELDS.items()],
)


def shop_log(seed: int, rows: int, days: int = 10) -> pa.Table:
    """So many impressions in time order, with their true click probability in `p_true`."""
    rng = np.random.default_rng(seed)
    time = np.sort(rng.random(rows)) * days
    hour, weekday = ((time % 1) * HOURS).astype(int), time.astype(int) % 7
    activity = rng.pareto(1.2, USERS) + 0.05
    user = rng.choice(USERS, rows, p=activity / activity.sum())
    cluster, city = rng.integers(0, CLUSTERS, USERS), np.minimum(rng.zipf(1.4, USERS), CITIES)
    age, income = np.clip(rng.normal(38, 14, USERS), 14, 90).round(), np.exp(rng.normal(10, 0.7, USERS)).round(-2)
    visits = np.floor(rng.pareto(1.0, USERS) * 3)
    category, brand = rng.integers(0, CATEGORIES, ITEMS), np.minimum(rng.zipf(1.5, ITEMS), BRANDS)
    price = np.exp(rng.normal(3, 1, ITEMS)).round(2)
    item = _shown(rng, time, days)
    position, device = rng.integers(1, 11, rows), rng.choice(DEVICES, rows, p=[0.5, 0.3, 0.15, 0.05])
    rare = (rng.random((CATEGORIES, DEVICES, AGES)) < 0.06) * rng.normal(0, 1.5, (CATEGORIES, DEVICES, AGES))

    score = 0.9 * rng.normal(0, 1, ITEMS)[item] + rng.normal(0, 0.7, (CLUSTERS, CATEGORIES))[cluster[user], category[item]]
    score += 0.5 * np.where(age[user] > 50, -1, 1) * np.where(category[item] % 3 == 0, 1, -0.5)
    score -= 0.25 * np.log(price[item] / 20) * (1 + 0.8 * (income[user] < 20_000))
    score += 0.35 * np.tanh(np.log1p(visits[user]) - 1.5) - 0.18 * (position - 1) ** 0.8
    score += (
        rng.normal(0, 0.4, BRANDS + 1)[brand[item]] + rng.normal(0, 0.25, USERS)[user] + rng.normal(0, 0.3, CITIES + 1)[city[user]]
    )
    score += 0.3 * np.sin(2 * np.pi * hour / HOURS + cluster[user]) + rng.normal(0, 0.2, 7)[weekday]
    score += rng.normal(0, 0.2, DEVICES)[device] + rare[category[item], device, np.minimum(age[user] // 18, AGES - 1).astype(int)]
    p = _with_level(SCALE * score)
    # A noisy hint at the cluster: most users of a cluster share a segment, and some have another.
    segment = cluster * 7 + np.where(rng.random(USERS) < 0.3, rng.integers(0, 40, USERS), 0)
    return pa.table({
        "click": (rng.random(rows) < p).astype(np.int8), "time": START + (time * DAY).astype(np.int64), "user": user,
        "age": age[user], "income": income[user], "visits": visits[user], "city": city[user], "segment": segment[user],
        "item": item, "category": category[item], "brand": brand[item], "price": price[item], "position": position,
        "device": device, "hour": hour, "weekday": weekday, "p_true": p,
    })  # fmt: skip


def _shown(rng: np.random.Generator, time: np.ndarray, days: int) -> np.ndarray:
    """The item of each impression: one of those on sale in that hour, by popularity."""
    born, life, popularity = rng.uniform(-10, days, ITEMS), rng.exponential(5, ITEMS) + 0.5, rng.pareto(1.5, ITEMS) + 0.1
    edges = np.searchsorted(time, np.arange(days * HOURS + 1) / HOURS)
    item = np.empty(len(time), np.int64)
    for hour, (start, stop) in enumerate(itertools.pairwise(edges)):
        now = hour / HOURS
        on_sale = np.flatnonzero(((born <= now) & (born + life >= now)) | (np.arange(ITEMS) < EVERGREEN))
        share = popularity[on_sale] / popularity[on_sale].sum()
        item[start:stop] = rng.choice(on_sale, stop - start, p=share)
    return item


def _with_level(score: np.ndarray) -> np.ndarray:
    """Probabilities whose mean is the CTR, by bisection for the intercept."""
    low, high = -20.0, 10.0
    for _ in range(60):
        middle = (low + high) / 2
        too_low = (1 / (1 + np.exp(-score - middle))).mean() < CTR
        low, high = (middle, high) if too_low else (low, middle)
    return 1 / (1 + np.exp(-score - low))
