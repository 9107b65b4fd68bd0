"""The truth that is fitted to a log: a penalised likelihood at its maximum, and pairs of fields where there are any."""

import numpy as np
import pyarrow as pa

from pbodl.data.convert import from_data
from pbodl.data.schema import Field, Schema
from pbodl.data.synthetic.fitted_truth import VARIANCE, fit_truth, probability

SCHEMA = Schema(
    label="click",
    fields=[
        Field("who", group="user"),
        Field("what", group="ad"),
        Field("where", group="context"),
        Field("tags", group="ad", kind="multi"),
    ],
)


def log(rows: int, pair: float) -> tuple[pa.Table, np.ndarray]:
    rng = np.random.default_rng(5)
    who, what, where = (rng.integers(0, n, rows) for n in (6, 5, 4))
    tags = [[f"t{k}" for k in range(3) if rng.random() < 0.4] for _ in range(rows)]
    eta = rng.normal(0, 0.7, 6)[who] + rng.normal(0, 0.7, 5)[what] + pair * rng.normal(0, 1, (6, 5))[who, what] - 1.0
    clicks = (rng.random(rows) < 1 / (1 + np.exp(-eta))).astype(np.int8)
    return pa.table({"click": clicks, "who": who, "what": what, "where": where, "tags": tags}), eta


def test_effects_are_at_the_maximum_of_the_penalised_likelihood() -> None:
    table, _ = log(4000, 0.0)
    batch = from_data(SCHEMA, table, True)
    truth = fit_truth(batch, 4, 0)
    clicks, p = table["click"].to_numpy(), probability(truth.log_odds(batch))
    for field, name in enumerate(("who", "what", "where")):
        values = table[name].to_numpy()
        effects = truth.fields[field][1]
        keys = batch.keys[batch.fields == field]
        for value in np.unique(values):
            slope = (clicks - p)[values == value].sum() - effects.of(keys[values == value][:1])[0] / VARIANCE
            assert abs(slope) < 0.5, (name, value, slope)  # of hundreds of clicks
    tagged = np.array(["t1" in tags for tags in table["tags"].to_pylist()])
    keys, effects = batch.keys[batch.fields == 3], truth.fields[3][1]
    assert len(effects.keys) == len(np.unique(keys)) >= 3
    assert abs((clicks - p)[tagged].sum()) < 3.0


def test_a_strong_pair_is_found_and_no_other() -> None:
    table, eta = log(20_000, 1.0)
    batch = from_data(SCHEMA, table, True)
    truth = fit_truth(batch, 4, 3)
    assert truth.pairs[0][:2] == (0, 1)
    assert np.corrcoef(truth.log_odds(batch), eta)[0, 1] > 0.98
    without = fit_truth(batch, 4, 0)
    assert np.corrcoef(without.log_odds(batch), eta)[0, 1] < 0.9


def test_unknown_values_have_no_effect() -> None:
    table, _ = log(3000, 1.0)
    truth = fit_truth(from_data(SCHEMA, table, True), 4, 3)
    stranger = from_data(SCHEMA, [{"who": "x", "what": "y", "where": "z", "tags": []}], False)
    np.testing.assert_allclose(truth.log_odds(stranger), truth.level)
