"""Deltas hold the rows that learning touched, and nothing else of the table."""

import numpy as np
import pytest

from pbodl.errors import InputError
from pbodl.models import adaptation
from pbodl.publishing.delta import ROWS, changes, mark, moved, split
from tests.publishing.published import LOG, MODELS, assert_same_bits, steps


@pytest.mark.parametrize("name", ["concat", "sum", "fm", "ffm", "decay", "no linear term, no layers"])
def test_a_delta_holds_what_changed_and_no_more(name):
    model = MODELS[name]()
    first, one, *_ = steps()
    model.learn(first)
    before, since = model.state(), mark(model)
    model.learn(one)
    after = model.state()
    delta, rows = split(changes(model, since))
    per_row = [part for part in after if part.startswith(("embedding.", "linear.")) and after[part].shape]
    size = len(before["embedding.keys"])
    differ = np.zeros(len(after["embedding.keys"]), bool)
    differ[size:] = True
    for part in per_row:
        differ[:size] |= (after[part][:size] != before[part]).reshape(size, -1).any(axis=1)
    assert 0 < len(rows) < len(differ)
    assert rows.tolist() == np.flatnonzero(differ).tolist()
    assert_same_bits(delta, {part: array[rows] if part in per_row else array for part, array in after.items()})


@pytest.mark.parametrize("name", ["fm", "no linear term, no layers"])
def test_a_row_changed_behind_its_count_is_found(name):
    """As by a sample that was taken back, and learned again as a click."""
    model = MODELS[name]()
    model.learn(steps()[0])
    since = mark(model)
    model.learn(steps()[1])
    touched = np.flatnonzero(model.table.count[: len(since.watched[0])] != since.watched[0])
    model.table.count[: len(since.watched[0])] = since.watched[0]
    assert set(touched) <= set(changes(model, since)[ROWS])


def test_nothing_learned_is_an_empty_delta():
    model = MODELS["fm"]()
    model.learn(steps()[0])
    delta = changes(model, mark(model))
    assert len(delta[ROWS]) == len(delta["embedding.keys"]) == 0


def test_after_an_eviction_there_is_no_delta():
    model = MODELS["eviction"]()
    since = mark(model)
    for rows in steps():
        model.learn(rows)
    assert model.table.evicted > 0
    assert moved(model, since)
    with pytest.raises(InputError, match="publish the whole state"):
        changes(model, since)


def test_after_another_prior_there_is_no_delta(monkeypatch):
    monkeypatch.setattr(adaptation, "FIRST", 64)
    model = MODELS["fm"]()
    model.learn(LOG[:60])
    since = mark(model)
    model.learn(LOG[60:63])
    assert not moved(model, since)
    model.learn(LOG[63:70])
    assert moved(model, since)
    with pytest.raises(InputError, match="publish the whole state"):
        changes(model, since)


def test_a_state_without_rows_is_no_delta():
    with pytest.raises(InputError, match=ROWS):
        split(MODELS["fm"]().state())
