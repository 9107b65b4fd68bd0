"""A generated click log of a third make: an ad exchange, in whose truth groups of fields mean nothing.

Twenty-two fields hang on three entities: where an ad is shown, who sees it, and the ad. Ids are heavy-tailed, and ads come and go.
The log-odds are effects of single values, a few strong pairs of fields with effects of their own, drawn from all pairs, and weak
products of low rank between all fields. The effects of ads drift from day to day. About 17 % of the impressions are clicked, and
the best possible AUC is 0.78 to 0.79.
"""

import numpy as np
import pyarrow as pa

import pbodl

# Field: entity, number of values, exponent of their frequencies (Zipf), standard deviation of their effects.
FIELDS: dict[str, tuple[str, int, float, float]] = {
    "publisher": ("place", 4000, 1.05, 0.40), "domain": ("place", 1500, 0.9, 0.20), "topic": ("place", 24, 0.8, 0.20),
    "slot": ("place", 60, 0.9, 0.25), "layout": ("place", 7, 1.2, 0.10), "app": ("place", 1200, 1.2, 0.25),
    "device": ("user", 120_000, 0.75, 0.20), "address": ("user", 200_000, 0.6, 0.15), "phone": ("user", 3000, 0.9, 0.25),
    "maker": ("user", 40, 1.0, 0.10), "system": ("user", 9, 1.0, 0.10), "carrier": ("user", 50, 1.0, 0.15),
    "region": ("user", 300, 0.8, 0.10),
    "creative": ("ad", 2600, 0.7, 0.35), "campaign": ("ad", 500, 0.7, 0.30), "advertiser": ("ad", 120, 0.8, 0.20),
    "format": ("ad", 8, 1.0, 0.15), "size": ("ad", 9, 1.2, 0.10), "channel": ("ad", 160, 0.9, 0.15), "offer": ("ad", 30, 0.7, 0.10),
    "hour": ("time", 24, 0.0, 0.08), "weekday": ("time", 7, 0.0, 0.06),
}  # fmt: skip
GROUPS = {"place": "context", "user": "user", "ad": "ad", "time": "context"}
SCHEMA = pbodl.Schema(
    label="click", time="time", fields=[pbodl.Field(name, group=GROUPS[entity]) for name, (entity, *_) in FIELDS.items()]
)
ENTITIES = {"place": 6000, "user": 150_000, "ad": 2600}
STRONG, STRONG_RANK, WEAK_RANK = 9, 2, 4
MAIN, PAIRS, WEAK = 0.80, 0.45, 0.30  # standard deviations of the parts of the log-odds, before they are scaled
CTR, SCALE = 0.17, 1.18
DRIFT = 0.25  # of an ad's effects within a day, over their own standard deviation
START, DAY = 1_413_849_600, 86_400  # 21 October 2014, a Tuesday


def exchange_log(seed: int, rows: int, days: int = 10) -> pa.Table:
    """So many impressions in time order, with their true click probability in `p_true`."""
    rng = np.random.default_rng(seed)
    time = np.sort(rng.random(rows)) * days
    day = time.astype(int)
    shown = {name: zipf(rng, rows, n, 0.95 if name == "place" else 0.7) for name, n in ENTITIES.items() if name != "ad"}
    shown["ad"] = _ads(rng, time, days)
    values = {name: _values(rng, name, shown, time) for name in FIELDS}

    main, factors, order = np.zeros(rows), {}, list(FIELDS)
    for name, (entity, n, _, deviation) in FIELDS.items():
        effect = rng.normal(0, deviation, n)[values[name]]
        if entity == "ad":
            walk = np.cumsum(rng.normal(0, DRIFT * deviation, (days, n)), axis=0)
            effect = effect + walk[day, values[name]]
        main += effect
        factors[name] = rng.normal(0, 1, (n, WEAK_RANK)) * rng.gamma(0.5, 1.0)
    strong = np.zeros(rows)
    pairs = [(f, g) for i, f in enumerate(order) for g in order[i + 1 :] if min(FIELDS[f][1], FIELDS[g][1]) > 5]
    for at in rng.choice(len(pairs), STRONG, replace=False):
        f, g = pairs[at]
        left, right = (rng.normal(0, 1, (FIELDS[name][1], STRONG_RANK))[values[name]] for name in (f, g))
        strong += rng.gamma(2.0, 0.5) * (left * right).sum(axis=1)
    total, squares = np.zeros((rows, WEAK_RANK)), np.zeros((rows, WEAK_RANK))
    for name in FIELDS:
        vector = factors[name][values[name]]
        total += vector
        squares += vector**2
    weak = (total**2 - squares).sum(axis=1)
    score = sum(weight * (part - part.mean()) / part.std() for weight, part in ((MAIN, main), (PAIRS, strong), (WEAK, weak)))
    p = with_level(SCALE * np.asarray(score), CTR)
    columns = {name: values[name] for name in FIELDS}
    return pa.table(
        {"click": (rng.random(rows) < p).astype(np.int8), "time": START + (time * DAY).astype(np.int64), **columns, "p_true": p}
    )


def zipf(rng: np.random.Generator, rows: int, n: int, exponent: float) -> np.ndarray:
    """So many draws of 0 to n - 1, the frequency of each about (value + 1) to the power of minus the exponent."""
    share = (np.arange(n) + 1.0) ** -exponent
    return np.searchsorted(np.cumsum(share / share.sum()), rng.random(rows)).clip(0, n - 1)


def _ads(rng: np.random.Generator, time: np.ndarray, days: int) -> np.ndarray:
    """The ad of each impression: one of those that run at its hour, by popularity."""
    ads, hours = ENTITIES["ad"], np.arange(days * 24)
    born, life, popularity = rng.uniform(-8, days, ads), rng.exponential(4, ads) + 0.5, rng.pareto(1.3, ads) + 0.1
    edges, shown = np.searchsorted(time, np.append(hours, days * 24) / 24), np.empty(len(time), np.int64)
    for hour, start, stop in zip(hours, edges[:-1], edges[1:], strict=True):
        running = np.flatnonzero((born <= hour / 24) & (born + life >= hour / 24))
        shown[start:stop] = rng.choice(running, stop - start, p=popularity[running] / popularity[running].sum())
    return shown


def _values(rng: np.random.Generator, name: str, shown: dict[str, np.ndarray], time: np.ndarray) -> np.ndarray:
    """A field's value in each row: that of the row's entity, and in one row of ten another one, where the field allows it."""
    entity, n, exponent, _ = FIELDS[name]
    if name == "hour":
        return (time * 24).astype(int) % 24
    if name == "weekday":
        return time.astype(int) % 7
    if name == "creative":
        return shown["ad"]
    of_entity = zipf(rng, ENTITIES[entity], n, exponent)[shown[entity]]
    other = entity != "ad" and rng.random(len(time)) < 0.1
    return np.where(other, zipf(rng, len(time), n, exponent), of_entity)


def with_level(score: np.ndarray, ctr: float) -> np.ndarray:
    """Probabilities whose mean is the CTR, by bisection for the intercept."""
    low, high = -20.0, 10.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if (1 / (1 + np.exp(-score - middle))).mean() < ctr else (low, middle)
    return 1 / (1 + np.exp(-score - low))
