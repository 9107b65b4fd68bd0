"""Reads logs of decisions: impressions with their `decision`, and the clicks that belong to them.

Impressions and clicks may be in the same files or in different ones, in any order. Everything else in the files, such as
impressions that no ranking made, is counted and left out.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from pbodl.data.log.lines import Lines
from pbodl.data.log.log_sources import LogSource, find_sources
from pbodl.errors import InputError

BLOCK = 4096  # lines at a time


class ShownSlot(NamedTuple):
    """One slot of a request."""

    slot: int
    candidate: int  # index among the candidates
    propensity: float
    click: bool
    about: dict[str, Any]  # the decision as it was logged


class LoggedRequest(NamedTuple):
    """All that is known about one request."""

    name: str
    values: dict[str, Any]  # of the user, of the context and of the first candidate shown, by column
    candidates: list[dict[str, Any]]
    bids: list[float] | None
    policy: str
    shown: list[ShownSlot]
    about: dict[str, Any]  # the decision of the first slot


class LogCounts(NamedTuple):
    """What a log held besides whole requests."""

    other: int  # lines that are neither a decision nor a click
    incomplete: int  # requests of which a slot is missing


class DecisionReader:
    """The requests of a log, in the order in which they are complete; reads the files twice, for clicks may come late."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._sources = find_sources(list(paths))
        for source in self._sources:
            if source.format != "jsonl":
                raise InputError(f"{source.name} is not a log of decisions; `pbodl serve --log-decisions` writes .jsonl files")
        self.counts = LogCounts(0, 0)

    def requests(self) -> Iterator[LoggedRequest]:
        """All requests; `counts` are right after the last."""
        clicked, other = set(), 0
        for event in self._events():
            if event.get("event") == "click":
                clicked.add(event.get("id"))
        begun: dict[str, dict[int, dict[str, Any]]] = {}
        done: set[str] = set()  # a client that tried again may be in the log twice
        for event in self._events():
            decision = event.get("decision")
            if event.get("event") != "impression" or not isinstance(decision, dict):
                other += event.get("event") != "click"
                continue
            try:
                if decision["request"] in done:
                    continue
                slots = begun.setdefault(decision["request"], {})
                slots[decision["slot"]] = event
                whole = len(slots) == decision["slots"] and 0 in slots
                if whole:
                    done.add(decision["request"])
                    yield _request(begun.pop(decision["request"]), clicked)
            except (KeyError, TypeError, IndexError, ValueError) as error:
                raise InputError(
                    f"the impression {event.get('id')!r} has a decision that `pbodl serve` did not write ({type(error).__name__}: "
                    f"{error}); its keys are: {', '.join(map(str, decision))}"
                ) from error
        self.counts = LogCounts(other, len(begun))

    def _events(self) -> Iterator[dict[str, Any]]:
        decoder = msgspec.json.Decoder(dict[str, Any])
        for source in self._sources:
            for number, line in enumerate(_lines(source), 1):
                try:
                    yield decoder.decode(line)
                except msgspec.DecodeError as error:
                    raise InputError(f"{source.name}, line {number}: it is not a JSON object ({error})") from None


def _lines(source: LogSource) -> Iterator[bytes]:
    with contextlib.closing(Lines(source)) as lines:
        while (block := lines.take(BLOCK)) is not None:
            for number in range(len(block)):
                if line := block.line(number).strip():
                    yield line


def _request(slots: dict[int, dict[str, Any]], clicked: set[Any]) -> LoggedRequest:
    first = slots[0]["decision"]
    candidates, bids = first["candidates"], first.get("bids")
    shown = []
    for slot in sorted(slots):
        about = slots[slot]["decision"]
        propensity, candidate = float(about["propensity"]), int(about["placed"])
        if not 0.0 < propensity <= 1.0 + 1e-9:
            raise ValueError(f"its propensity is {propensity}; it must be above 0 and at most 1")
        if not 0 <= candidate < len(candidates):
            raise ValueError(f"it shows candidate {candidate} of {len(candidates)}")
        shown.append(ShownSlot(slot, candidate, propensity, slots[slot]["id"] in clicked, about))
    return LoggedRequest(str(first["request"]), slots[0], candidates, bids, str(first["policy"]), shown, first)
