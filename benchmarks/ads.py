"""Traffic of an ad server, for the benchmarks of serving: 12 fields that a request's candidates share, and 10 fields per ad."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from pbodl import Field, Schema

ADS = 10_000
USER = {"user_id": 50_000, "age": 12, "gender": 3, "city": 800, "device": 300, "os": 9}
CONTEXT = {"site": 2_000, "page": 15_000, "position": 6, "hour": 24, "language": 30, "connection": 5}
AD = {
    "ad_id": ADS, "creative": 15_000, "campaign": 2_000, "advertiser": 500, "category": 40,
    "size": 12, "format": 6, "bid": 50, "age_of_ad": 30, "landing_page": 5_000,
}  # fmt: skip

SCHEMA = Schema(
    label="click",
    fields=[
        *(Field(name, group="user") for name in USER),
        *(Field(name, group="context") for name in CONTEXT),
        *(Field(name, group="ad") for name in AD),
    ],
)


class Traffic:
    """Draws impressions and requests; the same seed draws the same."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        world = np.random.default_rng(0)  # ads and clicks are the same for every seed
        self._ads = [{name: f"{name}-{world.integers(size)}" for name, size in AD.items()} for _ in range(ADS)]
        for place, ad in enumerate(self._ads):
            ad["ad_id"] = f"ad_id-{place}"
        self._appeal = world.normal(-1.6, 0.5, ADS)

    def ad(self) -> dict[str, str]:
        return self._ads[self._popular()]

    def request(self, candidates: int) -> dict[str, Any]:
        """A request with this many different ads."""
        ads = self._rng.choice(ADS, candidates, replace=False)
        return {"user": self._some(USER), "context": self._some(CONTEXT), "candidates": [self._ads[ad] for ad in ads]}

    def rows(self, n: int) -> list[dict[str, Any]]:
        """Impressions with their clicks."""
        return list(self._impressions(n))

    def _impressions(self, n: int) -> Iterator[dict[str, Any]]:
        for _ in range(n):
            ad = self._popular()
            click = int(self._rng.normal() < self._appeal[ad])
            yield {**self._some(USER), **self._some(CONTEXT), **self._ads[ad], "click": click}

    def _some(self, sizes: dict[str, int]) -> dict[str, str]:
        # Squared, so that some values are common and most are rare.
        draws = self._rng.random(len(sizes)) ** 2
        return {name: f"{name}-{int(draw * size)}" for (name, size), draw in zip(sizes.items(), draws, strict=True)}

    def _popular(self) -> int:
        return int(self._rng.random() ** 2 * ADS)
