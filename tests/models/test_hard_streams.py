"""Whatever valid rows come, a model stays finite, sane, and hardly worse than the base rate; hypothesis draws the logs.

The loss is progressive and weighted, over windows of WINDOW rows. Shorter logs are judged more mildly: a model may spend COST nats
on learning what it does not know yet, more where rows weigh differently, as fewer rows then carry the sum.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pbodl
from pbodl.data.convert import Batch, from_data
from pbodl.models.contract import Model
from pbodl.parallel.simulated import Cluster
from pbodl.parallel.threads.learning_threads import learn_with_threads

WINDOW, PARTS = 20_000, 4
COST = 200.0
# Latent means. In a log that is sorted by its labels they may go further, in the right direction: a model's biases trust thousands
# of non-clicks, and vectors must make up for it; workers of a cluster all do so at once. There only the loss is judged.
FARTHEST = 30.0
LEARNERS = ("alone", "threads", "cluster")
NETWORKS = {
    "pair-fm": pbodl.PairFM, "fm-mlp": pbodl.FMMLP, "ffm-mlp": pbodl.FFMMLP, "sparse-mlp": pbodl.SparseMLP,
    "deep-probit": pbodl.DeepProbit,
}  # fmt: skip
KINDS = NETWORKS | {"adpredictor": pbodl.AdPredictor, "ftrl": pbodl.FTRLProximal, "matchbox": pbodl.MatchBox}
# How a row is weighted, and the most that a model may lose to the base rate by it where the world does not change.
WEIGHTS = {"none": 0.01, "five": 0.1, "one to five": 0.1, "clicks ten": 0.2, "log-normal": 0.1, "twenty": 0.2, "below one": 0.1}
ORDERS = ("as drawn", "by label", "by ad", "flips", "falls")
CHANGED = 0.3  # the same where it does
COLUMNS = ("constant", "missing", "huge", "scaled", "list", "long list", "wide", "rare")


ANY = st.frozensets(st.sampled_from(COLUMNS), max_size=3)
MANY = st.sampled_from((frozenset({"long list"}), frozenset({"wide"}), frozenset({"long list", "wide"})))


@dataclass(frozen=True)
class Stream:
    """What hypothesis draws."""

    kind: str
    learner: str
    rows: int
    rate: float
    weights: str
    order: str
    columns: frozenset[str]
    seed: int


def streams(
    rows: tuple[int, ...], columns: st.SearchStrategy[frozenset[str]] = ANY, weights: tuple[str, ...] = tuple(sorted(WEIGHTS)),
    orders: tuple[str, ...] = ORDERS,
) -> st.SearchStrategy[Stream]:  # fmt: skip
    return st.builds(
        Stream, st.sampled_from(sorted(KINDS)), st.sampled_from(LEARNERS), st.sampled_from(rows),
        st.sampled_from((0.002, 0.02, 0.17, 0.5, 0.9)), st.sampled_from(weights), st.sampled_from(orders), columns,
        st.integers(0, 2**32 - 1),
    )  # fmt: skip


def weights_of(how: str, clicks: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    n = len(clicks)
    drawn = {
        "none": lambda: np.ones(n), "five": lambda: np.full(n, 5.0), "one to five": lambda: draw.uniform(1, 5, n),
        "clicks ten": lambda: np.where(clicks > 0, 10.0, 1.0), "twenty": lambda: np.full(n, 20.0),
        "log-normal": lambda: np.minimum(np.exp(1.97 * draw.normal(size=n)), 1000.0), "below one": lambda: draw.random(n),
    }  # fmt: skip
    return drawn[how]()


def extra_column(name: str, n: int, draw: np.random.Generator) -> tuple[list[pbodl.Field], dict[str, pa.Array]]:
    """The fields and columns that a stream may have beside user and ad; none has to do with the clicks."""

    def lists(length: int) -> pa.Array:
        ends = np.concatenate([[0], np.cumsum(draw.integers(1, 2 * length, n))])
        return pa.ListArray.from_arrays(pa.array(ends.astype(np.int32)), pa.array(draw.integers(2000, size=ends[-1])))

    huge = 10.0 ** draw.uniform(-30, 30, n) * draw.choice((-1, 1), n)
    made: dict[str, tuple[list[pbodl.Field], list]] = {
        "constant": ([pbodl.Field("constant")], [np.full(n, 7)]),
        "missing": ([pbodl.Field("missing"), pbodl.Field("missing list", kind="multi")], [pa.nulls(n)] * 2),
        "huge": ([pbodl.Field("huge", kind="number")], [huge]),
        "scaled": ([pbodl.Field(t, kind="number", transform=t) for t in ("scale", "log")], [huge, np.abs(huge)]),
        "list": ([pbodl.Field("list", kind="multi")], [lists(5)]),
        "long list": ([pbodl.Field("long list", kind="multi")], [lists(150)]),
        "wide": ([pbodl.Field(f"wide{i}") for i in range(60)], list(draw.integers(30, size=(60, n)))),
        "rare": ([pbodl.Field("rare", group="ad")], [np.arange(n)]),
    }  # fmt: skip
    fields, columns = made[name]
    return fields, {field.name: pa.array(column) for field, column in zip(fields, columns, strict=True)}


def log_of(stream: Stream) -> tuple[pbodl.Schema, Batch]:
    """The rows of a stream."""
    draw, n = np.random.default_rng(stream.seed), stream.rows
    user, ad = (50 * draw.random(n) ** 2).astype(np.int64), draw.integers(20, size=n)
    chance = stream.rate ** np.exp(0.3 * draw.normal(size=20))[ad]
    part = np.arange(n) * 8 // n
    if stream.order == "flips":
        chance = np.where(part % 2, 1.0 - chance, chance)
    elif stream.order == "falls":
        chance = np.where(part < 4, chance, chance / 10)
    clicks = (draw.random(n) < chance).astype(np.int64)
    order = {"by label": np.argsort(clicks, kind="stable"), "by ad": np.argsort(ad, kind="stable")}.get(stream.order, np.arange(n))
    weights = weights_of(stream.weights, clicks, draw)
    fields, columns = [pbodl.Field("user", group="user"), pbodl.Field("ad", group="ad")], {"user": user, "ad": ad}
    for name in sorted(stream.columns):
        more, theirs = extra_column(name, n, draw)
        fields, columns = fields + more, columns | theirs
    schema = pbodl.Schema(label="click", weight="weight", fields=fields)
    table = pa.table({**columns, "click": clicks, "weight": weights})
    return schema, from_data(schema, table.take(order), labelled=True)


def learned(stream: Stream, schema: pbodl.Schema, batch: Batch) -> tuple[Model, np.ndarray, float]:
    """The model after the stream, the CTR of each row before it was learned, and the largest |z| on the way."""
    model: Model = KINDS[stream.kind](schema)
    cluster = None
    if stream.learner == "threads" and stream.kind in NETWORKS:
        learn_with_threads(model, 2, in_turns=True)
    if stream.learner == "cluster" and stream.kind in NETWORKS:
        cluster = Cluster(model, workers=4, rows=64, shards=2)
    ctr, farthest, n = [], 0.0, len(batch)
    for start, stop in zip(edges := np.linspace(0, n, PARTS + 1).astype(int), edges[1:], strict=False):
        part = batch.rows(start, stop)
        ctr.append((cluster or model).learn(part))
        model = cluster.model() if cluster else model
        farthest = max(farthest, float(np.abs(model.predict(part).mean).max()))
    return model, np.concatenate(ctr), farthest


def loss(p: np.ndarray, clicks: np.ndarray, weights: np.ndarray) -> float:
    p = np.clip(p, 1e-15, 1.0 - 1e-15)
    return float(np.average(-np.where(clicks > 0, np.log(p), np.log1p(-p)), weights=weights))


def allowed(stream: Stream, weights: np.ndarray) -> float:
    n, typical = len(weights), float((weights**2).sum() / weights.sum())
    limit = WEIGHTS[stream.weights] if stream.order == "as drawn" else max(CHANGED, WEIGHTS[stream.weights])
    return limit + COST * max(typical, 1.0) ** 0.5 * (1.0 / n - 1.0 / max(WINDOW, n))


def check(stream: Stream) -> None:
    schema, batch = log_of(stream)
    model, ctr, farthest = learned(stream, schema, batch)
    assert np.isfinite(ctr).all() and (ctr >= 0.0).all() and (ctr <= 1.0).all()
    for name, array in model.state().items():
        assert array.dtype.kind != "f" or np.isfinite(array).all(), name
    assert farthest < FARTHEST or stream.order == "by label"
    clicks, weights = batch.clicks, batch.weights.astype(np.float64)
    base = np.full(len(ctr), np.average(clicks, weights=weights))
    assert loss(ctr, clicks, weights) - loss(base, clicks, weights) < allowed(stream, weights)


@settings(max_examples=20)
@given(streams((2000, 3000)))
def test_no_stream_makes_a_model_diverge(stream):
    check(stream)


@settings(max_examples=10)
@given(streams((3000,), MANY, ("none",), ORDERS[:1]))
def test_no_number_of_features_makes_a_model_diverge(stream):
    check(stream)


@pytest.mark.slow
@settings(max_examples=2000)
@given(streams((1000, 3000, 6000, WINDOW)))
def test_no_stream_of_many_makes_a_model_diverge(stream):
    check(stream)
