"""The join of impressions and clicks, event by event with dicts and lists."""

from collections.abc import Callable, Iterable


def join(
    events: Iterable[tuple[str, str, float]], window: float, late: float, kept: Callable[[int], bool] = lambda number: True,
    in_step: bool = False,
) -> list[tuple[str, str]]:  # fmt: skip
    """What is to be learned, in order: (id, "yes" | "no" | "back"), from (kind, id, time); no bounds on memory."""
    out: list[tuple[str, str]] = []
    entries: dict[str, dict] = {}
    early: dict[str, float] = {}
    now = start = float("nan")
    number, due = 0, 0.0
    count = {"no": 0, "yes": 0, "corrected": 0}

    def settle(name: str, entry: dict) -> None:
        if entry["status"] == "held":
            entry["status"] = "clicked"
            out.append((name, "yes"))
            count["yes"] += 1
        elif entry["status"] == "waiting":
            count["no"] += 1
            entry["status"] = "no" if kept(entry["number"]) else "unsampled"
            if entry["status"] == "no":
                out.append((name, "no"))

    def clicked(name: str) -> None:
        entry = entries[name]
        if entry["status"] in ("held", "clicked"):
            return
        if entry["status"] == "waiting" and now <= start + window:
            entry["status"] = "held"
            return
        if entry["status"] == "no":
            out.append((name, "back"))
        count["corrected"] += entry["status"] in ("no", "unsampled")
        count["yes"] += 1
        entry["status"] = "clicked"
        out.append((name, "yes"))
        if in_step and now <= entry["deadline"]:
            settle_beside(entry["number"])

    def settle_beside(clicked_one: int) -> None:
        nonlocal due
        due += (count["no"] - count["corrected"]) / count["yes"] + 0.5
        here = {entry["number"]: other for other, entry in entries.items() if entry["status"] == "waiting"}
        reach = int(8 * due) + 1
        for other in sorted(here, key=lambda other: (abs(other - clicked_one), other)):
            if due >= 1.0 and abs(other - clicked_one) <= reach:
                settle(here[other], entries[here[other]])
                due -= 1.0
        due %= 1.0

    for kind, name, time in events:
        if now != now:
            now = start = time
        now = max(now, time)
        for other in list(entries):
            if entries[other]["deadline"] < now:
                settle(other, entries[other])
            if entries[other]["deadline"] + late < now:
                del entries[other]
        early = {other: deadline for other, deadline in early.items() if deadline >= now}
        if kind == "impression":
            if name not in entries:
                entries[name] = {"status": "waiting", "deadline": now + window, "number": number}
                if early.pop(name, None) is not None:
                    clicked(name)
            number += 1
        elif name in entries:
            clicked(name)
        elif name not in early:
            early[name] = now + window
    for name, entry in entries.items():
        settle(name, entry)
    return out
