"""A small click log with every kind of column, for tests of models; a row's click depends on its user, ad and tags."""

from typing import Any

import numpy as np

from pbodl.data.schema import Field, Schema

START = 1_414_000_000.0
STEP = 60.0  # seconds between rows

PLAIN = Schema(
    label="click",
    fields=[Field("user", group="user"), Field("ad", group="ad"), Field("site", group="context")],
)
RICH = Schema(
    label="click",
    time="time",
    weight="weight",
    fields=[
        Field("user", group="user"),
        Field("tags", group="user", kind="multi"),
        Field("ad", group="ad"),
        Field("price", group="ad", kind="number"),
        Field("age", group="user", kind="number", transform="scale"),
        Field("site", group="context"),
        Field("hour", group="context", derive="hour_of_day"),
    ],
)


def click_log(n: int, seed: int = 0) -> list[dict[str, Any]]:
    """n rows in time order, with all of RICH's columns."""
    rng = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    for i in range(n):
        user, ad = int(rng.integers(25)), int(rng.integers(15))
        tags = [f"tag{tag}" for tag in rng.integers(0, 6, rng.integers(0, 4))]
        click_rate = 0.1 + 0.5 * (user % 3 == ad % 3) + 0.2 * ("tag0" in tags)
        rows.append(
            {
                "user": user,
                "tags": tags,
                "ad": f"ad{ad}",
                "price": None if rng.random() < 0.1 else round(float(rng.normal(0.0, 20.0)), 3),
                "age": None if rng.random() < 0.1 else float(rng.normal(40.0, 12.0)),
                "site": None if rng.random() < 0.1 else f"site{rng.integers(8)}",
                "time": START + STEP * i,
                "weight": float(rng.choice([0.5, 1.0, 2.0])),
                "click": int(rng.random() < click_rate),
            }
        )
    return rows


def without(rows: list[dict[str, Any]], *columns: str) -> list[dict[str, Any]]:
    """The rows without some of their columns."""
    return [{name: value for name, value in row.items() if name not in columns} for row in rows]
