"""The age of ads against a plain dictionary."""

import numpy as np
import pytest

from pbodl.data.convert import from_data
from pbodl.data.schema import Field, Schema
from pbodl.training.novelty import DAY, FirstSeen, ad_field
from tests.click_log import PLAIN, RICH

FIELDS = [Field("user", group="user"), Field("ad", group="ad"), Field("brand", group="ad")]
SCHEMA = Schema(label="click", time="time", fields=FIELDS)


def rows(n: int, seed: int = 0) -> list[dict]:
    rng = np.random.default_rng(seed)
    times = np.sort(rng.uniform(0.0, 4 * DAY, n))
    ads = (times / DAY * 5).astype(int) + rng.integers(0, 10, n)  # new ones keep coming
    return [{"user": 1, "ad": int(ad), "brand": 2, "time": 1e9 + float(t), "click": 0} for ad, t in zip(ads, times, strict=True)]


def naive(log: list[dict]) -> list[float]:
    first: dict[int, float] = {}
    return [
        np.inf if row["time"] < log[0]["time"] + DAY else row["time"] - first[row["ad"]]
        for row in log
        if first.setdefault(row["ad"], row["time"]) is not None
    ]


def test_ages_are_those_of_a_dictionary():
    log = rows(500)
    seen = FirstSeen(SCHEMA)
    comp = np.concatenate([seen.ages(from_data(SCHEMA, log[a : a + 70], True)) for a in range(0, 500, 70)])
    ref = naive(log)
    np.testing.assert_allclose(comp, ref)
    assert np.isinf(comp).any()
    assert (comp < DAY).any()
    assert (comp == 0).any()


def test_restored_is_never_stopped():
    log = rows(300)
    ref, first, comp = FirstSeen(SCHEMA), FirstSeen(SCHEMA), FirstSeen(SCHEMA)
    parts = [from_data(SCHEMA, log[a:b], True) for a, b in ((0, 120), (120, 300))]
    expected = [ref.ages(part) for part in parts]
    np.testing.assert_array_equal(first.ages(parts[0]), expected[0])
    comp.load_state(first.state())
    np.testing.assert_array_equal(comp.ages(parts[1]), expected[1])


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        (RICH.fields, 2),
        (PLAIN.fields, 1),
        ([Field("a", kind="number", group="ad"), Field("b", group="ad")], 1),
        ([Field("a", kind="number"), Field("b")], None),
        ([Field("tags", group="ad", kind="multi"), Field("b")], None),
    ],
)
def test_which_field_tells_ads_apart(fields, place):
    assert ad_field(Schema(label="click", time="time", fields=fields)) == place


def test_lists_do_not_tell_which_ad_it_was():
    schema = Schema(label="click", time="time", fields=[Field("ads", group="ad", kind="multi")])
    log = [{"ads": ads, "time": 1e9 + t * DAY, "click": 0} for t, ads in enumerate([["a"], ["a", "b"], [], ["c"]])]
    assert np.isinf(FirstSeen(schema).ages(from_data(schema, log, True))).all()
