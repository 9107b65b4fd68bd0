"""What an abnormal stretch taught is taken back."""

from pathlib import Path

import numpy as np
import pytest

from pbodl.data.convert import from_data
from pbodl.models.adaptation import move_centres
from pbodl.streaming.sources.event_source import StreamPosition
from pbodl.streaming.stream_learner import StreamLearner, StreamOptions
from pbodl.streaming.take_back import TakeBack
from pbodl.streaming.watchdog import STRETCH
from tests.streaming.traffic import config, decoded, fingerprint, pieces


@pytest.fixture(autouse=True)
def judge_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pbodl.streaming.watchdog.LEARNING", 1)


def rows(stretches: int, seed: int = 0) -> list[dict]:
    draws = np.random.default_rng(seed)
    users, ads, chance = draws.integers(50, size=stretches * STRETCH), draws.integers(9, size=stretches * STRETCH), draws.random
    return [
        {"time": float(n), "user": int(user), "ad": int(ad), "click": int(chance() < 0.02 + 0.02 * ad)}
        for n, (user, ad) in enumerate(zip(users, ads, strict=True))
    ]


def learner(folder: Path) -> StreamLearner:
    return StreamLearner.start(config(), folder, StreamOptions(on_alarm="drop"), StreamPosition())


def test_an_inverted_stretch_leaves_next_to_no_trace(tmp_path: Path) -> None:
    good, after = rows(4), rows(1, seed=1)
    bad = [{**row, "time": row["time"] + 1e4, "click": 1 - row["click"], "user": row["user"] + 25} for row in after]
    comp = learner(tmp_path)
    comp.take(decoded(good), StreamPosition())
    before = {name: array.copy() for name, array in comp.model.state().items()}
    prediction = comp.model.predict(after).ctr
    comp.take(decoded(bad), StreamPosition())
    assert (comp.dropped, comp.watchdog.alarms, comp.watchdog.held) == (STRETCH, 1, None)
    known = len(before["embedding.keys"])
    for name, array in before.items():
        if name.endswith(("mean", "variance")):
            restored = np.isclose(comp.model.state()[name][: len(array)], array, rtol=2e-3, atol=2e-4)
            assert restored.mean() > 0.9, name
    assert comp.model.table.size > known and comp.model.rows_learned == len(good)
    np.testing.assert_allclose(comp.model.predict(after).ctr, prediction, atol=0.02)


def test_a_stretch_in_which_the_hidden_units_got_another_centre(tmp_path: Path) -> None:
    good, bad = rows(4), [{**row, "time": row["time"] + 1e4, "click": 1 - row["click"]} for row in rows(2, seed=1)]
    comp = learner(tmp_path)
    comp.take(decoded(good), StreamPosition())
    move_centres(comp.model)
    prediction = comp.model.predict(good[:200]).ctr
    stretch = TakeBack(comp.model)
    stretch.note(from_data(comp.model.schema, bad, labelled=True))
    centre, total = comp.model.dense.centre.copy(), comp.model.dense.total.copy()
    comp.model.learn(bad)
    move_centres(comp.model)
    assert not np.allclose(comp.model.dense.centre, centre, rtol=0.05)
    stretch.undo()
    np.testing.assert_array_equal(comp.model.dense.centre, centre)
    np.testing.assert_allclose(comp.model.dense.total, total, atol=1e-6)
    np.testing.assert_allclose(comp.model.predict(good[:200]).ctr, prediction, atol=0.02)


def test_saved_in_the_middle_of_a_stretch(tmp_path: Path) -> None:
    events = rows(4) + [{**row, "time": row["time"] + 1e4, "click": 1 - row["click"]} for row in rows(1)] + rows(1, seed=2)
    ref = learner(tmp_path / "ref")
    ref.take(decoded(events), StreamPosition())
    comp = learner(tmp_path / "comp")
    for piece in pieces(events, [777]):
        comp.take(decoded(piece), StreamPosition())
        comp.save()
        comp = StreamLearner.resume(config(), tmp_path / "comp")
    assert comp.dropped == ref.dropped == STRETCH
    assert fingerprint(comp.model) == fingerprint(ref.model)
