"""The features of requests and ads: keys, gathered from tables that are hashed once."""

import numpy as np
from numpy.typing import NDArray

from pbodl.data.batch import Batch
from pbodl.data.hashing import field_seed, hash_integers
from pbodl.data.schema import Field, Schema
from pbodl.experiments.ab.ad_market import HOUR
from pbodl.experiments.ab.ad_world import CONNECTIONS, HOURS, POSITIONS, SITES, AdWorld, Requests

USER_FIELDS = ("age", "gender", "interest", "region", "device")
AD_FIELDS = ("ad", "campaign", "advertiser", "industry", "material")
CONTEXT_FIELDS = {"site": SITES, "position": POSITIONS, "connection": CONNECTIONS, "hour": HOURS}
WIDTH = len(USER_FIELDS) + len(AD_FIELDS) + len(CONTEXT_FIELDS)

SCHEMA = Schema(
    label="click",
    time="time",
    fields=[Field(name, group="user") for name in USER_FIELDS]
    + [Field(name, group="ad") for name in AD_FIELDS]
    + [Field(name, group="context") for name in CONTEXT_FIELDS],
)
Keys = NDArray[np.uint64]


class AdFeatures:
    """The keys of a world's users, ads and contexts."""

    def __init__(self, world: AdWorld) -> None:
        ads = world.ads
        self.user = _hashed({name: getattr(world.users, name) for name in USER_FIELDS})
        self.ad = _hashed({"ad": np.arange(len(ads.bid)), **{name: getattr(ads, name) for name in AD_FIELDS[1:]}})
        self._context = {name: _hashed({name: np.arange(size)})[:, 0] for name, size in CONTEXT_FIELDS.items()}

    def of_requests(self, requests: Requests) -> Keys:
        """Keys [requests, WIDTH], with the columns of the ads still empty."""
        keys = np.zeros((len(requests), WIDTH), np.uint64)
        keys[:, : len(USER_FIELDS)] = self.user[requests.user]
        hour = (requests.time / HOUR).astype(np.int64) % HOURS
        values: tuple[NDArray, ...] = (requests.site, requests.position, requests.connection, hour)
        for column, (table, value) in enumerate(zip(self._context.values(), values, strict=True), WIDTH - len(values)):
            keys[:, column] = table[value]
        return keys

    def with_ads(self, keys: Keys, ads: NDArray[np.int32]) -> Keys:
        """The same rows with these ads filled in. MODIFIES: keys."""
        keys[:, len(USER_FIELDS) : len(USER_FIELDS) + len(AD_FIELDS)] = self.ad[ads]
        return keys


def batch_of(keys: Keys, clicks: NDArray[np.float32] | None = None, times: NDArray[np.float64] | None = None) -> Batch:
    """The rows as a batch."""
    n = len(keys)
    return Batch(
        keys.reshape(-1), np.ones(n * WIDTH, np.float32), np.tile(np.arange(WIDTH, dtype=np.int32), n),
        np.arange(n + 1, dtype=np.int64) * WIDTH, clicks, np.zeros(n) if times is None else times, np.ones(n, np.float32),
    )  # fmt: skip


def _hashed(columns: dict[str, NDArray]) -> Keys:
    return np.stack([hash_integers(values.astype(np.int64), field_seed(name)) for name, values in columns.items()], axis=1)
