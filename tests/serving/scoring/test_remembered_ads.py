"""Ads met before: the sums looked up are those worked out, whoever asks, in whatever order, however little room there is."""

import threading

import numpy as np
import pytest

import pbodl
from pbodl.kernels.layers.interaction import EXACT, FM
from pbodl.serving.scoring import predictor
from pbodl.serving.scoring.candidate_kernels import Operation
from pbodl.serving.scoring.predictor import Predictor
from pbodl.serving.scoring.remembered_ads import Remembered

FIELDS = [pbodl.Field("user", group="user"), pbodl.Field("ad", group="ad"), pbodl.Field("size", group="ad")]
SCHEMA = pbodl.Schema(label="click", fields=FIELDS)
KINDS = {"concat": pbodl.DeepProbit, "sum": pbodl.SparseMLP, "fm": pbodl.FMMLP, "ffm": pbodl.FFMMLP}


def memory(capacity: int) -> Remembered:
    return Remembered(capacity, 2, Operation(np.int64(FM), np.int64(EXACT), np.int64(1), np.int64(4), np.int64(1)))


def keys(*pairs: tuple[int, int]) -> np.ndarray:
    return np.array(pairs, np.uint64)


def trained(kind: str, dim: int) -> pbodl.DeepProbit:
    rng = np.random.default_rng(0)
    model = KINDS[kind](SCHEMA, dim=dim, hidden=(7,))
    model.learn([{"user": int(u), "click": int(u > a), **ads(a)[0]} for u, a in rng.integers(9, size=(300, 2))])
    return model


def ads(*numbers: int) -> list[dict]:
    return [{"ad": f"a{number}", "size": f"s{number % 3}"} for number in numbers]


def test_what_is_new_is_listed_once():
    remembered = memory(8)
    places, fresh = remembered.places(keys((1, 2), (1, 3), (1, 2), (2, 1)))
    assert places.tolist() == [0, 1, 0, 2]
    assert fresh.tolist() == [0, 1, 3]
    places, fresh = remembered.places(keys((2, 1), (7, 7), (1, 3)))
    assert places.tolist() == [2, 3, 1]
    assert fresh.tolist() == [1]


def test_full_it_forgets_everything_and_begins_again():
    remembered = memory(3)
    remembered.places(keys((1, 1), (2, 2)))
    places, fresh = remembered.places(keys((2, 2), (3, 3), (4, 4)))
    assert sorted(places.tolist()) == [0, 1, 2]
    assert fresh.tolist() == [0, 1, 2]
    assert remembered.size == 3


def test_the_keys_that_are_told_are_known_but_not_asked_for():
    remembered = memory(4)
    remembered.places(keys((9, 9)))
    assert remembered.told(keys((1, 1), (2, 2), (3, 3))).tolist() == [0, 1, 2]
    places, fresh = remembered.places(keys((2, 2), (4, 4)))
    assert (places.tolist(), fresh.tolist()) == ([1, 3], [1])
    assert remembered.lately().tolist() == [[2, 2], [4, 4]]  # many: those that were asked for
    few = memory(8)
    few.told(keys((1, 1), (2, 2)))
    assert few.lately().tolist() == [[1, 1], [2, 2]]


@pytest.mark.parametrize("dim", [4, 16])
@pytest.mark.parametrize("kind", KINDS)
def test_the_next_version_knows_the_ads_of_the_one_before(kind, dim):
    model = trained(kind, dim)
    before = Predictor.of(model)
    before.score({"user": 1}, {}, ads(1, 2, 3, 77))
    model.learn([{"user": u, "click": u % 2, **ad} for u in range(9) for ad in ads(1, 2, 3)])
    comp = Predictor.of(model)
    comp.recall(before)
    assert comp._remembered.size == 4
    given = ads(77, 2, 3, 5)
    scores = comp.score({"user": 4}, {}, given)
    assert comp._remembered.size == 5
    cold = Predictor.of(model).score({"user": 4}, {}, given)
    np.testing.assert_array_equal(scores.mean, cold.mean)
    np.testing.assert_array_equal(scores.variance, cold.variance)
    assert abs(scores.ctr - before.score({"user": 4}, {}, given).ctr).max() > 1e-4


def test_ads_of_another_schema_are_not_carried_over():
    before, comp = Predictor.of(trained("fm", 4)), Predictor.of(pbodl.FMMLP(pbodl.Schema(label="click", fields=FIELDS[:2])))
    before.score({"user": 1}, {}, ads(1))
    comp.recall(before)
    assert comp._remembered.size == 0


@pytest.mark.parametrize("dim", [4, 16])
@pytest.mark.parametrize("kind", KINDS)
def test_a_score_is_the_same_when_the_ad_is_met_again(kind, dim):
    model = trained(kind, dim)
    comp = Predictor.of(model)
    first = comp.score({"user": 1}, {}, ads(1, 2, 3, 77))
    again = comp.score({"user": 1}, {}, ads(77, 2, 5, 1))
    assert comp._remembered.size == 5
    np.testing.assert_array_equal(again.mean[[3, 1, 0]], first.mean[[0, 1, 3]])
    np.testing.assert_array_equal(again.variance[[3, 1, 0]], first.variance[[0, 1, 3]])
    ref = model.predict([{"user": 4, **ad} for ad in ads(5, 77)])
    np.testing.assert_allclose(comp.score({"user": 4}, {}, ads(5, 77)).ctr, ref.ctr, rtol=0, atol=1e-6)


def test_numbers_as_categories_are_remembered_too():
    comp = Predictor.of(trained("fm", 4))
    comp.score({"user": 1}, {}, [{"ad": 1, "size": 2}, {"ad": 1, "size": None}])
    assert comp._remembered.size == 2


def test_whoever_finds_the_memory_taken_goes_without():
    model = trained("fm", 16)
    comp = Predictor.of(model)
    ref = comp.score({"user": 1}, {}, ads(1, 2, 3))
    with comp._lock:
        scores = comp.score({"user": 1}, {}, ads(1, 2, 3))
    np.testing.assert_array_equal(scores.mean, ref.mean)
    np.testing.assert_array_equal(scores.std, ref.std)


def test_threads_get_what_one_gets(monkeypatch):
    monkeypatch.setattr(predictor, "CAPACITY", 6)  # so small that it is forgotten again and again
    model = trained("fm", 16)
    comp = Predictor.of(model)
    asked = [ads(*range(i, i + 5)) for i in range(8)]
    ref = [Predictor.of(model).score({"user": 2}, {}, given).mean for given in asked]
    wrong = []

    def ask(start: int) -> None:
        for i in range(60):
            place = (start + i) % len(asked)
            if not np.array_equal(comp.score({"user": 2}, {}, asked[place]).mean, ref[place]):
                wrong.append(place)

    threads = [threading.Thread(target=ask, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
