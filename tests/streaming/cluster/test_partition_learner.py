"""One partition: from any record and the number of rows that were learned, the same rows follow."""

import numpy as np
import pytest

from pbodl.data.convert import concat
from pbodl.errors import InputError
from pbodl.streaming.cluster.partition_learner import PartitionLearner
from pbodl.streaming.sources.event_source import StreamPosition
from pbodl.streaming.stream_learner import StreamOptions
from tests.streaming.traffic import config, decoded, traffic

CONFIG, JOIN = config(negative_rate=0.6), StreamOptions("5m", "20m", 500)
EVENTS = traffic(800)


def fresh() -> PartitionLearner:
    return PartitionLearner("p", CONFIG, CONFIG.build(0.6), JOIN, StreamPosition({"at": (0,)}))


def read(learner: PartitionLearner, count: int, gaps: int = 0) -> None:
    start = int(learner.position.marks["at"][0])
    learner.take(decoded(EVENTS[start : start + count]), StreamPosition({"at": (start + count,)}), gaps)


def all_rows(learner: PartitionLearner, most: int):
    """All rows that are left, learned a few at a time."""
    found = []
    while learner.pending:
        joined = learner.next(most)
        found.append(joined)
        learner.learned(joined)
    return found


def whole():
    learner = fresh()
    read(learner, len(EVENTS))
    return learner, all_rows(learner, 10**6)


@pytest.mark.parametrize("before, learned_before, learned_after", [(0, 0, 40), (300, 0, 0), (300, 30, 100), (500, 77, 300)])
def test_from_a_record_and_the_rows_learned_the_same_rows_follow(before, learned_before, learned_after):
    _, (ref,) = whole()
    first = fresh()
    read(first, before)
    rows = min(learned_before, first.pending)
    if rows:
        first.learned(first.next(rows))
    facts, arrays = first.record()
    second = fresh()
    second.continue_record(facts, arrays)
    second.skip_to(rows + learned_after)
    while int(second.position.marks["at"][0]) < len(EVENTS):
        read(second, 37)
        second.record()  # of any moment, also while events are read again
    assert not second.replaying
    found = all_rows(second, 23)
    np.testing.assert_array_equal(np.concatenate([part.roles for part in found]), ref.roles[rows + learned_after :])
    comp, expected = concat([part.batch for part in found]), ref.batch.rows(rows + learned_after, len(ref))
    np.testing.assert_array_equal(comp.keys, expected.keys)
    for name in ("weights", "clicks", "came_before", "came_by"):
        np.testing.assert_array_equal(getattr(comp, name), getattr(expected, name), err_msg=name)
    assert second.rows == len(ref)


def test_a_record_taken_while_events_are_read_again_is_sound():
    _, (ref,) = whole()
    first = fresh()
    record = first.record()
    second = fresh()
    second.continue_record(*record)
    second.skip_to(200)
    read(second, 100)
    assert second.replaying
    third = fresh()
    third.continue_record(*second.record())
    third.skip_to(200)
    read(third, len(EVENTS) - 100)
    found = all_rows(third, 50)
    np.testing.assert_array_equal(concat([part.batch for part in found]).keys, ref.batch.rows(200, len(ref)).keys)


def test_a_gap_while_events_are_read_again_is_refused():
    learner = fresh()
    learner.skip_to(50)
    with pytest.raises(InputError, match="has lost events that were learned after the last snapshot"):
        read(learner, 10, gaps=1)


def test_a_record_ahead_of_the_shards_is_refused():
    learner = fresh()
    read(learner, 400)
    learner.learned(learner.next(20))
    with pytest.raises(InputError, match="is of 20 rows, and the shards have 5"):
        learner.skip_to(5)


def test_the_ledger_accounts_for_every_event():
    learner, _ = whole()
    ledger = learner.ledger()
    assert ledger["events"] == len(EVENTS) == ledger["settled"] + ledger["waiting"] + ledger["repeated"] + ledger["dead"]
    assert (ledger["pending"], ledger["before"]) == (0, 0) and ledger["waiting"] < 100
