"""What brokers are told of a member's snapshots, and which are void, whatever they answer. With real ones: `test_kafka_faults`."""

import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from pbodl.streaming.sources import kafka_group
from pbodl.streaming.sources.event_source import Lost, StreamPosition
from pbodl.streaming.sources.kafka_group import GroupOffsets


class GroupOfOne:
    """A group's offsets, and what it answers next: an error, or silence before or after it took them."""

    def __init__(self) -> None:
        self.offsets: dict[int, int] = {}
        self.answers: list[str | int] = []
        self._released = threading.Event()

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition]:
        assert not asynchronous
        answer = self.answers.pop(0) if self.answers else "taken"
        if isinstance(answer, int):
            raise KafkaException(KafkaError(answer))
        if answer != "not taken":
            self.offsets |= {one.partition: one.offset for one in offsets}
        if answer != "taken":
            self._released.wait()
        return offsets

    def committed(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        return [TopicPartition("t", one.partition, self.offsets.get(one.partition, -1001)) for one in partitions]

    def release(self) -> None:
        self._released.set()


def at(*offsets: int) -> StreamPosition:
    return StreamPosition({str(part): (offset,) for part, offset in enumerate(offsets)})


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Iterator[GroupOfOne]:
    monkeypatch.setattr(kafka_group, "ANSWER", 0.05)
    group = GroupOfOne()
    yield group
    group.release()


def member(group: GroupOfOne, *saved: int) -> GroupOffsets:
    own = GroupOffsets(group, "t", "kafka://t")
    own.begin(at(*saved))
    return own


def test_a_partition_that_comes_back_is_not_committed_at_what_we_knew_of_it(group: GroupOfOne) -> None:
    own = member(group, 10, 7)
    group.offsets = {0: 50, 1: 3}
    assert [own.begins_at(part, group.offsets[part], 0) for part in (0, 1)] == [50, 7]
    own.save(at(10, 9))  # nothing of partition 0 was read yet
    assert own.commit({0, 1})
    assert group.offsets == {0: 50, 1: 9}


def test_a_partition_that_nobody_knows_begins_at_its_first_offset_and_nothing_is_committed(group: GroupOfOne) -> None:
    own = member(group)
    assert own.begins_at(0, -1001, 0) == 0
    assert own.commit({0}) and own.commit(set())
    assert group.offsets == {}


@pytest.mark.parametrize("code", [KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION, KafkaError.FENCED_MEMBER_EPOCH])
def test_a_snapshot_that_the_brokers_refuse_is_void(group: GroupOfOne, code: int) -> None:
    own = member(group, 10)
    assert own.commit({0})
    own.save(at(20))
    group.answers = [code]
    with pytest.raises(Lost) as refused:
        own.commit({0})
    assert refused.value.void and own.saved == own.committed == at(10)
    assert group.offsets == {0: 10}


def test_a_member_that_lost_its_partitions_and_saved_nothing_since_keeps_its_snapshot(group: GroupOfOne) -> None:
    own = member(group, 10)
    group.answers = [KafkaError.UNKNOWN_MEMBER_ID]
    with pytest.raises(Lost) as refused:
        own.commit({0})
    assert not refused.value.void and own.saved == at(10)


def test_what_a_group_that_changes_does_not_take_is_told_again(group: GroupOfOne) -> None:
    own = member(group, 10)
    own.save(at(20))
    group.answers = [KafkaError.REBALANCE_IN_PROGRESS]
    assert not own.commit({0}) and own.committed == at(10)
    assert own.commit({0}) and own.committed == at(20)
    assert group.offsets == {0: 20}


@pytest.mark.parametrize("silence, void", [("not taken", True), ("taken, silently", False)])
def test_after_silence_the_brokers_are_asked_what_they_have(group: GroupOfOne, silence: str, void: bool) -> None:
    group.offsets = {0: 10}
    own = member(group, 10)
    own.save(at(20))
    group.answers = [silence, KafkaError.UNKNOWN_MEMBER_ID]
    assert not own.commit({0})
    with pytest.raises(Lost) as refused:
        own.commit({0})
    assert refused.value.void == void
    assert own.saved == own.committed == (at(10) if void else at(20))
