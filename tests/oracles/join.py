"""The join of impressions and clicks, event by event with dicts and lists; every figure is counted anew where it is needed."""

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple


class Operation(NamedTuple):
    name: str
    role: str  # predict, first or later
    clicked: bool
    before: float
    by: float
    power: float


class NaiveJoin:
    """`edges`: ages at which F is known; `judged`: indices of those at which impressions are judged, or None: by the shares."""

    def __init__(
        self, edges: list[float], window: float, judged: list[int] | None = None,
        kept: Callable[[int, int, float], bool] = lambda number, edge, share: True,
    ) -> None:  # fmt: skip
        self.edges, self.window, self.horizon, self.kept = edges, window, edges[-1], kept
        half = window / 10
        guess = [a / (a + half) * (self.horizon + half) / self.horizon for a in edges]
        self.n = [20.0] * len(edges)
        self.d = [20.0 * (1 - (guess[k - 1] if k else 0.0) / guess[k]) for k in range(len(edges))]
        self.given, self.chosen_at, self.joined = judged, 64, 0
        self.judged = judged if judged is not None else self.by_share()
        self.shown: list[dict] = []
        self.by_name: dict[str, dict] = {}
        self.early: dict[str, float] = {}
        self.times: list[float] = []
        self.watermark = -math.inf
        self.out: list[Operation] = []
        self.final: list[tuple[str, bool]] = []
        self.ripens_at = -1
        self.since, self.ripe, self.clicks, self.widest, self.heard, self.silent, self.outages = 0, 0.0, 0.0, 0.0, 0, False, 0

    def share(self, edge: int) -> float:
        product = math.prod(1 - self.d[k] / self.n[k] for k in range(edge + 1, len(self.edges)))
        return min(max(product, 0.001), 0.995)

    def by_share(self) -> list[int]:
        return sorted({
            next((k for k in range(len(self.edges)) if self.share(k) >= target), len(self.edges) - 1)
            for target in (0.75, 0.99)
        })  # fmt: skip

    def add(self, kind: str, name: str, time: float) -> None:
        self.times.append(time)
        agreed = min(self.times[-5:])
        self.watermark = agreed if len(self.times) <= 5 else max(self.watermark, agreed)
        now = self.watermark
        if len(self.times) <= 5:
            for one in self.shown:
                one["shown"] = min(one["shown"], now)
                one["clicked"] = min(one["clicked"], now) if one["clicked"] < math.inf else math.inf
        left = 4
        for one in self.shown:
            if not one["ripe"] and one["shown"] + self.edges[self.judged[0]] < now:
                one["ripe"] = True
                if left and one["real"] and self.judged[0] == self.ripens_at:
                    self.since, left = self.since + 1, left - 1
        self.ripens_at = self.judged[0]
        if not self.silent and self.heard >= 20 and self.since > 2 * self.widest:
            self.silent = self.since * self.clicks / max(self.ripe, 1.0) > 25
            self.outages += self.silent
        getattr(self, kind)(name, now)
        self.early = {other: deadline for other, deadline in self.early.items() if deadline >= now}
        self.by_name = {other: one for other, one in self.by_name.items() if one["passed"] < len(self.edges)}

    def impression(self, name: str, now: float) -> None:
        one = {"name": name, "shown": now, "clicked": math.inf, "at": 0.0, "state": "new", "passed": 0, "ripe": False,
               "number": len(self.shown), "real": name not in self.by_name}  # fmt: skip
        self.shown.append(one)
        if not one["real"]:
            one["state"] = "repeated"
            return
        self.by_name[name] = one
        self.out.append(Operation(name, "predict", False, 0.0, 1.0, 0.0))
        if self.early.pop(name, None) is not None:
            one["clicked"] = now
            self.joined += 1
            self.count_heard()

    def click(self, name: str, now: float) -> None:
        if self.silent:
            for one in self.shown:
                if one["passed"] < len(self.edges) and one["state"] != "repeated":
                    one["state"] = "given up"
        self.pass_ages(now)
        one, of_impression = self.by_name.get(name), False
        if one is None:
            self.early.setdefault(name, now + self.window)
        elif one["state"] != "given up" and one["clicked"] == math.inf and now <= one["shown"] + self.horizon:
            one["clicked"] = now
            self.joined += 1
            of_impression = True
        self.hear(of_impression)

    def hear(self, of_impression: bool) -> None:
        gap, self.since, self.silent = self.since, 0, False
        if self.heard >= 20:
            longest = 25 * max(self.ripe, 1.0) / max(self.clicks, 1.0)
            self.widest = max(self.widest * (1 - 1 / 2000), min(gap, longest + 2 * self.widest))
            gap = min(gap, longest)
        fade = math.exp(-gap / max(2000, 100 * self.ripe / max(self.clicks, 1.0)))
        self.ripe, self.clicks = self.ripe * fade + gap, self.clicks * fade
        if of_impression:
            self.count_heard()

    def count_heard(self) -> None:
        if any(one["ripe"] for one in self.shown):
            self.clicks, self.heard = self.clicks + 1, self.heard + 1

    def pass_ages(self, until: float) -> None:
        shares = [self.share(k) for k in range(len(self.edges))]
        if self.given is None and self.joined >= self.chosen_at:
            self.judged, self.chosen_at = self.by_share(), min(2 * self.chosen_at, self.chosen_at + 1024)
        for k, age in enumerate(self.edges):
            for one in self.shown:
                if one["passed"] != k or one["shown"] + age >= until:
                    continue
                one["passed"] = k + 1
                if one["state"] in ("repeated", "given up"):
                    continue
                delay = one["clicked"] - one["shown"]
                if delay <= age:
                    self.n[k] = self.n[k] * (1 - 1 / 4000) + 1
                    self.d[k] = self.d[k] * (1 - 1 / 4000) + (k > 0 and delay > self.edges[k - 1])
                if k in self.judged and one["state"] != "learned":
                    self.judge(one, k, shares[k], delay <= age)
                if k == len(self.edges) - 1:
                    self.final.append((one["name"], delay <= age))

    def judge(self, one: dict, k: int, share: float, clicked: bool) -> None:
        role, before = "first" if one["state"] == "new" else "later", one["at"]
        if clicked:
            one["state"] = "learned"
            self.out.append(Operation(one["name"], role, True, before, 1.0, 1.0))
        elif role == "first" or share - before >= 0.01:
            one["state"], one["at"] = "open", share
            kept = 1.0 if role == "first" else 0.5
            if role == "first" or self.kept(one["number"], k, kept):
                self.out.append(Operation(one["name"], role, False, before, share, 1 / kept))


def joined(
    events: Iterable[tuple[str, str, float]], edges: list[float], window: float, judged: list[int] | None = None,
    kept: Callable[[int, int, float], bool] = lambda number, edge, share: True,
) -> NaiveJoin:  # fmt: skip
    """The join after these events."""
    join = NaiveJoin(edges, window, judged, kept)
    for event in events:
        join.add(*event)
    return join
