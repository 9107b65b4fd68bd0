"""The join of impressions and clicks, event by event with dicts and lists."""

from collections.abc import Callable, Iterable


def join(
    events: Iterable[tuple[str, str, float]], window: float, late: float, kept: Callable[[int], bool] = lambda number: True
) -> list[tuple[str, str]]:
    """What is to be learned, in order: (id, "yes" | "no" | "back"), from (kind, id, time); no bounds on memory."""
    out: list[tuple[str, str]] = []
    entries: dict[str, dict] = {}
    early: dict[str, float] = {}
    now = start = float("nan")
    number = 0

    def settle(name: str, entry: dict) -> None:
        if entry["status"] == "held":
            entry["status"] = "clicked"
            out.append((name, "yes"))
        elif entry["status"] == "waiting":
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
        entry["status"] = "clicked"
        out.append((name, "yes"))

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
