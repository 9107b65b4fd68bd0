"""Files, folders and Redis streams that grow, turn over and lose things in any order, beside readers that save, crash and restart.

The learner's counters must be those of a small reference, which knows what was written and what a reader can know of it.
"""

import itertools
import json
import os
import shutil
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from pbodl.streaming.events import EventDecoder
from pbodl.streaming.sources.event_source import EventSource, open_source
from pbodl.streaming.stream_learner import StreamLearner, StreamOptions
from tests.streaming.redis_server import RedisServer, needs_redis
from tests.streaming.traffic import SCHEMA, config, impression

LINES = st.lists(st.booleans(), min_size=1, max_size=6)  # which of them are good
OPTIONS = StreamOptions("5m", "20m", 50)
SHORT, LONG = (settings(max_examples=examples, stateful_step_count=steps) for examples, steps in ((25, 25), (400, 60)))


@dataclass(eq=False)
class Part:
    """What was written to a file, or to a stream, before it was replaced."""

    lines: list[bool] = field(default_factory=list)
    first: int = 0  # lines before this one were trimmed
    number: int = 0
    intact: bool = True  # what was read can be read again
    there: bool = True  # under some name


@dataclass
class Reader:
    """Where a reader is, and what it has counted."""

    part: Part | None = None
    line: int = 0
    is_open: bool = False  # it has the file open, and can read it though it was removed
    finished: dict[int, int] = field(default_factory=dict)  # in a folder: the files before
    events: int = 0
    bad: int = 0
    gaps: int = 0

    def take(self, part: Part) -> None:
        """Read to the end of a part."""
        new = part.lines[self.line :]
        self.events, self.bad = self.events + sum(new), self.bad + len(new) - sum(new)
        self.line, self.is_open = len(part.lines), True


class Machine(RuleBasedStateMachine):
    """What is common to all: a learner that reads, saves, crashes and restarts."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.numbers = itertools.count()
        self.kept: list[int] = []  # files, open, so that no other gets their inode: that would be chance
        self.parts = [Part()]
        self.prepare()
        self.source: EventSource = open_source(self.address)
        self.learner = StreamLearner.start(config(), self.folder / "run", OPTIONS, self.source.start("start"))
        self.reader = Reader(self.parts[-1] if self.parts else None)
        self.decoder = EventDecoder(SCHEMA)
        self.save()

    address: str

    def prepare(self) -> None: ...

    def expect(self) -> None:
        """Let the reference read all that it can."""

    @rule()
    def read(self) -> None:
        while pack := self.source.read(self.learner.position, 0.0):
            self.learner.take(self.decoder.decode(pack.contents), pack.position, int(pack.gap is not None))
        self.expect()
        counted = self.learner.metrics()
        assert (counted["events"], counted["bad"], counted["gaps"]) == (self.reader.events, self.reader.bad, self.reader.gaps)
        assert counted["impressions"] == counted["events"] and self.source.ended(self.learner.position)

    @rule()
    def save(self) -> None:
        with self.source.saving(self.learner.position):
            self.learner.save()
        self.saved = replace(self.reader)

    @rule()
    def crash(self) -> None:
        self.source.close()
        self.source = open_source(self.address)
        self.learner = StreamLearner.resume(config(), self.folder / "run")
        self.reader = replace(self.saved, is_open=False)

    def event(self, good: bool) -> dict:
        number = next(self.numbers)
        return impression(f"i{number}", float(number)) if good else {"event": "clack", "id": number}

    def write(self, path: Path, lines: list[bool], mode: str) -> None:
        with path.open(mode) as file:
            file.write("".join(json.dumps(self.event(good)) + "\n" for good in lines))
        self.kept.append(os.open(path, os.O_RDONLY))
        os.utime(path, ns=(0, 10**18 + 10**9 * next(self.numbers)))  # the clock of the file system is too coarse for this haste

    def teardown(self) -> None:
        try:
            self.read()
        finally:
            for file in self.kept:
                os.close(file)
        self.source.close()
        shutil.rmtree(self.folder)


class FileMachine(Machine):
    """A file that is appended to, rotated, cut, and replaced."""

    def prepare(self) -> None:
        self.path = self.folder / "events.jsonl"
        self.write(self.path, [], "w")
        self.address = str(self.path)

    @rule(lines=LINES)
    def append(self, lines: list[bool]) -> None:
        self.write(self.path, lines, "a")
        self.parts[-1].lines += lines

    @precondition(lambda self: self.parts[-1].lines)
    @rule()
    def rotate(self) -> None:
        for number in range(len(self.parts) - 1, 0, -1):
            os.rename(f"{self.path}.{number}", f"{self.path}.{number + 1}")
        os.rename(self.path, f"{self.path}.1")
        self.write(self.path, [], "w")
        self.parts.append(Part(number=next(self.numbers)))

    @precondition(lambda self: len(self.parts) > 1)
    @rule()
    def remove_the_oldest(self) -> None:
        os.unlink(f"{self.path}.{len(self.parts) - 1}")
        self.parts.pop(0).there = False

    @precondition(lambda self: self.parts[-1].lines)
    @rule(lines=st.lists(st.booleans(), max_size=12))
    def cut(self, lines: list[bool]) -> None:
        self.write(self.path, lines, "w")
        old, new = self.parts[-1], Part(lines, number=next(self.numbers))
        old.there = old.intact = False
        self.parts[-1] = new
        for reader in (self.reader, self.saved):  # nothing was read from it: it is the same file
            reader.part = new if reader.part is old and not reader.line else reader.part

    @precondition(lambda self: self.parts[-1].lines)
    @rule(lines=LINES)
    def replace(self, lines: list[bool]) -> None:
        other = self.folder / "new"
        self.write(other, lines, "w")
        os.replace(other, self.path)
        self.parts[-1].there = False
        self.parts[-1] = Part(lines, number=next(self.numbers))

    def expect(self) -> None:
        reader = self.reader
        while True:
            assert reader.part is not None
            if not (reader.part.intact and (reader.part.there or reader.is_open)):
                reader.gaps, reader.part, reader.line = reader.gaps + 1, self.parts[-1], 0
            reader.take(reader.part)
            following = next((part for part in self.parts if part.number > reader.part.number and part.lines), None)
            if following is None:
                return
            reader.part, reader.line, reader.is_open = following, 0, True


class FolderMachine(Machine):
    """A folder whose last file grows; it gets new files, and late ones, and loses old ones."""

    def prepare(self) -> None:
        self.address = str(self.folder / "logs")
        os.mkdir(self.address)
        self.parts = []
        self.named: dict[int, Part] = {}

    def path_of(self, number: int) -> Path:
        return Path(self.address) / f"part{number}.jsonl"

    @precondition(lambda self: self.named)
    @rule(lines=LINES)
    def append(self, lines: list[bool]) -> None:
        self.write(self.path_of(max(self.named)), lines, "a")
        self.named[max(self.named)].lines += lines

    @rule(lines=LINES, step=st.integers(1, 3))
    def add(self, lines: list[bool], step: int) -> None:
        self.put(max(self.named, default=0) + step, lines)

    @rule(lines=LINES, number=st.integers(1, 12))
    def add_late(self, lines: list[bool], number: int) -> None:
        if self.named and number < max(self.named) and number not in self.named:
            self.put(number, lines)

    def put(self, number: int, lines: list[bool]) -> None:
        self.write(self.path_of(number), lines, "w")
        self.named[number] = Part(lines, number=number)

    @precondition(lambda self: len(self.named) > 1)
    @rule(pick=st.integers(0, 100))
    def remove(self, pick: int) -> None:
        number = sorted(self.named)[pick % (len(self.named) - 1)]
        self.path_of(number).unlink()
        self.named.pop(number).there = False

    @precondition(lambda self: self.named and self.named[max(self.named)].lines)
    @rule(lines=LINES)
    def cut(self, lines: list[bool]) -> None:
        number = max(self.named)
        self.write(self.path_of(number), lines, "w")
        self.named[number].there = self.named[number].intact = False
        self.named[number] = Part(lines, number=number)

    def expect(self) -> None:
        reader = self.reader
        if reader.part is None:
            if not self.named:
                return
            reader.part = self.named[min(self.named)]
        while True:
            part, now = reader.part, self.named.get(reader.part.number)
            if reader.line and not (part.intact and (part.there or reader.is_open)):
                reader.gaps += 1
                reader.line, reader.is_open = 0, False
                reader.part = part = now or Part([], number=part.number)
            reader.take(part)
            before = {number: len(other.lines) for number, other in self.named.items() if number < part.number}
            if any(reader.finished.get(number) != size for number, size in before.items()):
                reader.gaps, reader.finished = reader.gaps + 1, before
                continue
            following = min((number for number in self.named if number > part.number), default=None)
            if following is None:
                return
            reader.finished = reader.finished | {part.number: len(part.lines)}
            reader.part, reader.line, reader.is_open = self.named[following], 0, True


class RedisMachine(Machine):
    """A stream that is trimmed, loses entries, and is made anew."""

    server: RedisServer
    streams = itertools.count()

    def prepare(self) -> None:
        self.stream, self.client = f"s{next(self.streams)}", self.server.client
        self.address = self.server.address(self.stream)

    @rule(lines=LINES)
    def append(self, lines: list[bool]) -> None:
        for good in lines:
            self.client.xadd(self.stream, {"data": json.dumps(self.event(good))})
        self.parts[-1].lines += lines

    @rule(left=st.integers(0, 8))
    def trim(self, left: int) -> None:
        self.client.xtrim(self.stream, maxlen=left, approximate=False)
        self.parts[-1].first = max(self.parts[-1].first, len(self.parts[-1].lines) - left)

    @precondition(lambda self: self.parts[-1].lines)
    @rule()
    def delete(self) -> None:
        self.client.delete(self.stream)
        time.sleep(0.002)  # ids begin with milliseconds: those of the new stream must be later
        self.parts[-1].there = False
        self.parts.append(Part())

    def expect(self) -> None:
        reader = self.reader
        assert reader.part is not None
        if not reader.part.there:
            reader.gaps += int(reader.line > 0)
            reader.part, reader.line = self.parts[-1], 0
            if self.parts[-1].first > 0:
                reader.line = self.parts[-1].first
        elif reader.part.first > reader.line:
            reader.gaps, reader.line = reader.gaps + 1, reader.part.first
        reader.take(reader.part)


def test_a_followed_file() -> None:
    run_state_machine_as_test(FileMachine, settings=SHORT)


def test_a_folder() -> None:
    run_state_machine_as_test(FolderMachine, settings=SHORT)


@needs_redis
def test_a_redis_stream(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    redis_server.client.config_set("appendonly", "no")  # it is not killed here: nothing waits for a disk
    monkeypatch.setattr(RedisMachine, "server", redis_server, raising=False)
    run_state_machine_as_test(RedisMachine, settings=SHORT)


@pytest.mark.slow
@pytest.mark.parametrize("machine", [FileMachine, FolderMachine, RedisMachine])
@needs_redis
def test_for_longer(machine: type[Machine], redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    redis_server.client.config_set("appendonly", "no")  # it is not killed here: nothing waits for a disk
    monkeypatch.setattr(RedisMachine, "server", redis_server, raising=False)
    run_state_machine_as_test(machine, settings=LONG)
