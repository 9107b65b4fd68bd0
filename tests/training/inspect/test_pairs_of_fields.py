"""The pairs of fields that matter: those that decide the clicks come first, and their spread is that of what they add."""

import numpy as np
import pytest

import pbodl
from pbodl.training.inspect import inspection
from pbodl.training.inspect.pairs_of_fields import pairs_by_spread
from tests.training.inspect.test_inspection import shown

SCHEMA = pbodl.Schema(
    label="click",
    fields=[pbodl.Field("likes", group="user"), pbodl.Field("topic", group="ad"), pbodl.Field("site", group="context")],
)


def trained() -> tuple[pbodl.PairFM, list[dict]]:
    rng = np.random.default_rng(0)
    rows = [dict(zip(("likes", "topic", "site"), rng.integers(4, size=3).tolist(), strict=True)) for _ in range(4000)]
    for row in rows:
        row["click"] = int(rng.random() < (0.5 if row["likes"] == row["topic"] else 0.05))
    model = pbodl.PairFM(SCHEMA)
    model.learn(rows)
    return model, rows


def test_the_pair_that_decides_the_clicks_comes_first():
    found = pairs_by_spread(trained()[0])
    assert found[0]["pair"] == "likes x topic" and len(found) == 3
    assert found[0]["spread"] > 3 * found[1]["spread"]


def test_the_spread_is_that_of_what_the_pair_adds():
    model, _ = trained()
    one = next(one for one in pairs_by_spread(model) if one["pair"] == "likes x topic")
    vectors = model.table.column("mean").reshape(model.table.size, 3, -1)
    codes = {name: code for code, name in enumerate(model.schema.groups)}
    users, ads = (vectors[model.table.field == field][:, codes[other]] for field, other in ((0, "ad"), (1, "user")))
    weights = np.outer(*(model.table.count[model.table.field == field] for field in (0, 1)))
    added = one["weight"] * users @ ads.T
    ref = np.sqrt(np.average(added**2, weights=weights))
    assert one["spread"] == pytest.approx(ref, rel=0.5)  # dimensions of few features are not quite uncorrelated


def test_the_overview_lists_them(tmp_path):
    trained()[0].save(tmp_path)
    found = inspection.overview(tmp_path)
    text = shown(found)
    assert "pairs of fields that matter most" in text and "likes x topic" in text


def test_a_model_that_has_learned_nothing_has_pairs_of_no_spread():
    assert {one["spread"] for one in pairs_by_spread(pbodl.PairFM(SCHEMA))} == {0.0}
