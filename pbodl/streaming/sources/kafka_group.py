"""What a member of a Kafka group has learned and saved, and what the brokers know of it.

A partition that goes to another member continues at the offset that the brokers know. So a snapshot counts from the moment that
they have its offsets, and not before. They refuse those of a member whose partitions have gone to others without its knowing: it
stood still for longer than its session lasts. Its newest snapshot is void then, since others learn the same events.
"""

from typing import Any

from pbodl.streaming.sources.event_source import Lost, StreamPosition
from pbodl.streaming.sources.kafka_client import ANSWER, KafkaError, KafkaException, TopicPartition
from pbodl.system.patience import at_most

REFUSED = (
    KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION, KafkaError.FENCED_INSTANCE_ID, KafkaError.FENCED_MEMBER_EPOCH,
    KafkaError._FENCED, KafkaError._ASSIGNMENT_LOST,
)  # fmt: skip


class GroupOffsets:
    """The offsets of a member.

    saved      up to here, its newest snapshot has learned
    committed  up to here, the brokers know it
    """

    def __init__(self, consumer: Any, topic: str, name: str) -> None:
        self._consumer, self._topic, self._name = consumer, topic, name
        self.saved = self.committed = StreamPosition()
        self._before = StreamPosition()  # what was saved before, if that is needed again
        self._starts: dict[int, int] = {}  # where our partitions began when we got them
        self._doubtful = False  # whether an attempt to commit what is saved had no answer

    def begin(self, position: StreamPosition) -> None:
        """A run begins, or continues, at the position of its snapshot."""
        self.saved = self.committed = self._before = position

    def begins_at(self, part: int, committed: int, first: int) -> int:
        """Where to read a partition that we got: as far as our snapshot has it, or as another member has committed."""
        known = max(int(self.saved.marks.get(str(part), (0,))[0]), committed)
        self._starts[part] = known if known > 0 else first
        return self._starts[part]

    def save(self, position: StreamPosition) -> None:
        """A snapshot of this position was written; what was saved before is committed."""
        self._before, self.saved, self._doubtful = self.saved, position, False

    def commit(self, owned: set[int]) -> bool:
        """Tell the brokers what is saved of the partitions that we own; returns whether they have it. `Lost` if they refuse it."""
        marks = self._marks(owned)
        answers: list[Any] = []
        try:
            offsets = [TopicPartition(self._topic, *mark) for mark in marks.items() if mark[1] > 0]
            if offsets:
                told = at_most(ANSWER, lambda: answers.extend(self._consumer.commit(offsets=offsets, asynchronous=False)))
                errors = [answer.error for answer in answers if answer.error is not None]
            else:
                told, errors = True, []
        except KafkaException as error:
            told, errors = True, [error.args[0]]
        if any(error.code() in REFUSED for error in errors):
            raise self.withdrawn(owned)
        if not told or errors:
            self._doubtful = True
            return False
        self.committed, self._doubtful = self.saved, False
        return True

    def _marks(self, owned: set[int]) -> dict[int, int]:
        """What is saved of these; never less than where they began: another member may have been further than our snapshot."""
        return {part: max(int(self.saved.marks.get(str(part), (0,))[0]), self._starts.get(part, 0)) for part in owned}

    def withdrawn(self, owned: set[int]) -> Lost:
        """Our partitions have gone to others: withdraw the snapshot that the brokers do not know, if there is one."""
        void = self.committed != self.saved and not self._arrived(self._marks(owned))
        self.saved = self.committed = self._before if void else self.saved
        return Lost(f"the partitions of {self._name} have gone to other members of its group", void)

    def _arrived(self, marks: dict[int, int]) -> bool:
        """Whether an attempt without an answer has reached the brokers after all. If that cannot be told, rather learn twice."""
        if not self._doubtful:
            return False
        asked = [TopicPartition(self._topic, part) for part in marks]
        try:
            found = self._consumer.committed(asked, timeout=ANSWER)
        except KafkaException:
            return True
        return all(part.offset >= marks[part.partition] for part in found)
