"""Streams whose clicks come late, made of worlds with known CTRs: what `online_is_offline` compares a live model on.

Worlds are of two makes: that of `pbodl.data.synthetic`, and `fast_world`, in which something changes every ten minutes.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pbodl.data.batch import Batch
from pbodl.data.convert import from_data
from pbodl.data.schema import Field, Schema
from pbodl.data.synthetic import World
from pbodl.streaming.events import CLICK, IMPRESSION, Events

Floats = NDArray[np.float64]
HOUR = 3600.0
PIECE = 2000  # events read at a time


class Impressions(NamedTuple):
    """Labelled rows in the order of their times, with their true CTRs; the last `held_out` are not part of the stream."""

    schema: Schema
    rows: Batch
    truth: Floats
    held_out: int

    @property
    def stream(self) -> int:
        return len(self.rows) - self.held_out


def synthetic_world(seed: int, rows: int, ctr: float = 0.174, days: int = 3) -> Impressions:
    """The world of `pbodl data synth`; the last day is held out. Another `ctr` thins out the clicks."""
    world = World(seed=seed, days=days, rows=rows)
    table = pa.Table.from_batches(list(world.batches()))
    truth, clicks = table["p_true"].to_numpy().astype(np.float64), table["click"].to_numpy()
    if ctr < 0.174:
        rate = ctr / 0.174
        truth = truth * rate
        clicks = clicks * (np.random.default_rng(seed).random(len(clicks)) < rate)
        table = table.set_column(table.column_names.index("click"), "click", pa.array(clicks))
    batch = from_data(world.schema, table, True)
    day = np.floor((batch.times - batch.times[0]) / 86400.0)
    return Impressions(world.schema, batch, truth, int((day == day.max()).sum()))


def fast_world(seed: int, rows: int, ctr: float = 0.17, hours: float = 40.0) -> Impressions:
    """Users and ads with factors; ads are replaced all the time, and every ten minutes another offer is on the page."""
    draws = np.random.default_rng([seed, 77])
    times = np.sort(draws.uniform(0.0, hours * HOUR, rows))
    user, slot = draws.zipf(1.3, rows) % 4000, draws.integers(0, 120, rows)
    ad = slot + 120 * np.floor((times / HOUR + slot / 3.0) / 40.0).astype(int)  # every slot gets a new ad once in forty hours
    offer, site = np.floor(times / 600.0).astype(int) % 24, draws.integers(0, 300, rows)
    users, ads = draws.normal(0, 0.6, (4000, 3)), draws.normal(0, 0.6, (int(ad.max()) + 1, 3))
    logit = draws.normal(0, 0.7, int(ad.max()) + 1)[ad] + draws.normal(0, 0.5, 4000)[user] + draws.normal(0, 0.4, 300)[site]
    logit += (users[user] * ads[ad]).sum(axis=1) + draws.normal(0, 0.6, int(offer.max()) + 1)[offer]
    shift = np.log(ctr / (1 - ctr)) - 0.6
    for _ in range(20):
        shift += np.log(ctr / np.mean(1 / (1 + np.exp(-logit - shift))))
    truth = 1 / (1 + np.exp(-logit - shift))
    schema = Schema(
        label="click", time="time",
        fields=[Field("user", group="user"), Field("ad", group="ad"), *(Field(name, group="page") for name in ("site", "offer"))],
    )  # fmt: skip
    columns = {"user": user, "ad": ad, "site": site, "offer": offer, "time": times + 1.7e9, "click": draws.random(rows) < truth}
    table = pa.table({name: pa.array(column.astype(np.int64) if name != "time" else column) for name, column in columns.items()})
    return Impressions(schema, from_data(schema, table, True), truth, rows // 5)


class Case(NamedTuple):
    """One kind of stream.

    late     share of clicks that come 10 to 70 minutes late; the others come after a minute, on average
    outage   hours from and to which no clicks come; all come after it
    faster   times as many impressions a second
    """

    late: float = 0.0
    outage: tuple[float, float] | None = None
    faster: float = 1.0
    options: dict[str, Any] = {}  # noqa: RUF012  of the join
    training: dict[str, Any] = {}  # noqa: RUF012
    changes: str = ""  # falls, rises, bots, clicking-bots, or ahead
    restart: float = 0.0  # hours after which the run ends and continues, again and again
    ctr: float = 0.17


def changed(world: Impressions, case: Case, seed: int) -> Impressions:
    """The world as the case has it: faster, with another CTR from the middle on, or with bots."""
    rows, truth, n = world.rows, world.truth.copy(), world.stream
    assert rows.clicks is not None
    clicks, draws = rows.clicks.copy(), np.random.default_rng([seed, 3])
    start = rows.times[0]
    rows = rows._replace(times=start + (rows.times - start) / case.faster)
    if case.changes in ("falls", "rises"):
        low = np.arange(len(rows)) >= n // 2 if case.changes == "falls" else np.arange(len(rows)) < n // 2
        keep = draws.random(len(rows)) < 2.0 / 17.0
        clicks[low & ~keep] = 0.0
        truth[low] *= 2.0 / 17.0
    if case.changes.endswith("bots"):
        hours = (rows.times - rows.times[0]) / HOUR
        bots = (hours > 20) & (hours < 22) & (draws.random(len(rows)) < 0.05)
        clicks[bots] = float(case.changes == "clicking-bots")
    return world._replace(rows=rows._replace(clicks=clicks), truth=truth)


def stream(world: Impressions, case: Case, seed: int) -> Iterator[Events]:
    """The events of the stream, in the order in which they arrive."""
    rows, n = world.rows.rows(0, world.stream), world.stream
    assert rows.clicks is not None
    draws = np.random.default_rng([seed, 4])
    delay = draws.exponential(60.0, n)
    late = draws.random(n) < case.late
    delay[late] = draws.uniform(600.0, 4200.0, int(late.sum()))
    at = rows.times + delay
    if case.outage is not None:
        first, last = (rows.times[0] + hour * HOUR for hour in case.outage)
        out = (at > first) & (at < last)
        at[out] = last + draws.uniform(0, 300.0, int(out.sum()))
    clicked = np.flatnonzero((rows.clicks > 0) & (at <= rows.times[-1]))
    times = np.concatenate([rows.times, at[clicked]])
    ids = np.concatenate([np.arange(n), clicked]).astype(np.uint64) + np.uint64(1)
    kinds = np.concatenate([np.full(n, IMPRESSION), np.full(len(clicked), CLICK)]).astype(np.int8)
    order = np.argsort(times, kind="stable")
    kinds, ids, times = kinds[order], ids[order], times[order]
    if case.changes == "ahead":
        times[len(times) // 2] += 20 * HOUR
    row = 0
    for begin in range(0, len(kinds), PIECE):
        part = slice(begin, begin + PIECE)
        count = int((kinds[part] == IMPRESSION).sum())
        some = rows.rows(row, row + count)
        row += count
        some = some._replace(clicks=np.zeros(count, np.float32))
        yield Events(kinds[part], ids[part], times[part], some, [], [], lambda number: str(number))


class Score(NamedTuple):
    """Of the held-out rows: log loss against the clicks; level: predicted over true CTRs."""

    loss: float
    level: float


def score(model: Any, world: Impressions) -> Score:
    """How a model predicts the rows that are held out."""
    rows, truth = world.rows.rows(world.stream, len(world.rows)), world.truth[world.stream :]
    p = np.clip(model.predict(rows).ctr, 1e-12, 1 - 1e-12)
    # By the true CTRs, which has less noise than by the clicks that happened.
    loss = -(truth * np.log(p) + (1 - truth) * np.log1p(-p)).mean()
    return Score(float(loss), float(p.mean() / truth.mean()))
