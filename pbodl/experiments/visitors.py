"""Visitors of the server that `pbodl up` runs: they send a few requests per second, so that the dashboard shows answer times.

Their requests consist of values that the model has seen; the server itself lists them.
"""

import json
import random
import threading
import urllib.request
from typing import Any

RATE = 10.0  # requests per second
CANDIDATES = 100
PATIENCE = 2.0  # seconds for an answer
Request = dict[str, Any]


class Visitors:
    """Inside this context, requests go to a server as soon as it has a model."""

    def __init__(self, url: str, rate: float = RATE) -> None:
        self.url, self._rate = url, rate
        self._example: Request | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._visit, daemon=True)

    def __enter__(self) -> "Visitors":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def take_example(self) -> Request | None:
        """A small request that the server can answer, returned once; None before it exists and afterwards."""
        example, self._example = self._example, None
        return example

    def _visit(self) -> None:
        known: dict[str, list[str]] = {}
        groups: dict[str, str] = {}
        rows: list[dict[str, Any]] = []
        while not known or len(rows) < 2:
            if self._stop.wait(0.25):
                return
            groups, known = self._ask_values()
            rows = [point["example"] for point in (self._ask("/v1/curves") or {"points": []})["points"]]
        self._example = combined(groups, rows[-2:])
        while not self._stop.wait(random.expovariate(self._rate)):
            self._ask("/v1/score", drawn(groups, known, CANDIDATES))

    def _ask_values(self) -> tuple[dict[str, str], dict[str, list[str]]]:
        """The group of every field, and its common values."""
        model, features = self._ask("/v1/model"), self._ask("/v1/features")
        if model is None or features is None:
            return {}, {}
        given = [field for field in model["schema"]["fields"] if field.get("derive") is None and not field.get("cross")]
        groups = {field.get("column", field["name"]): field.get("group", "context") for field in given}
        return groups, {one["field"]: one["frequent"] for one in features["fields"] if one["frequent"] and one["field"] in groups}

    def _ask(self, path: str, body: Request | None = None) -> Any:
        """The server's answer; None if it does not answer, as during its start and end."""
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, content, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as response:
                return json.load(response)
        except (OSError, ValueError):
            return None


class KnownVisitors(Visitors):
    """Visitors whose requests consist of the values of given rows: `groups` has the group of every column."""

    def __init__(self, url: str, groups: dict[str, str], rows: list[dict[str, Any]], rate: float = RATE) -> None:
        super().__init__(url, rate)
        self._groups, self._rows = groups, rows

    def _visit(self) -> None:
        while self._ask("/v1/model") is None:
            if self._stop.wait(0.25):
                return
        self._example = combined(self._groups, self._rows[:2])
        while not self._stop.wait(random.expovariate(self._rate)):
            self._ask("/v1/score", combined(self._groups, random.sample(self._rows, min(CANDIDATES, len(self._rows)))))


def drawn(groups: dict[str, str], known: dict[str, list[str]], candidates: int) -> Request:
    """A request with values drawn from the known ones."""

    def draw(wanted: str) -> dict[str, str]:
        return {name: random.choice(values) for name, values in known.items() if groups[name] == wanted}

    return {"user": draw("user"), "context": draw("context"), "candidates": [draw("ad") for _ in range(candidates)]}


def combined(groups: dict[str, str], rows: list[dict[str, Any]]) -> Request:
    """A request for the ads of some rows, with the user and context of the last."""

    def part(row: dict[str, Any], *wanted: str) -> dict[str, Any]:
        return {name: value for name, value in row.items() if groups.get(name, "context") in wanted}

    last = rows[-1]
    return {"user": part(last, "user"), "context": part(last, "context"), "candidates": [part(row, "ad") for row in rows]}
