"""What `pbodl online` shows on a terminal while it learns: one line, renewed every few seconds. Elsewhere it shows nothing."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape

from pbodl.training.display import console

RECENT = 7 * 86400.0  # seconds; older events are a replay, whose age says nothing
Show = Callable[[Mapping[str, Any]], None]


def status_line(values: Mapping[str, Any]) -> str:
    """The state of a learner in one line, from its figures.

    >>> status_line({"source": "clicks/", "rows_learned": 12000, "rows_per_second": 800.4, "waiting": 31, "version": 4})
    'learning from clicks/: 12,000 rows, 800/s; 31 impressions wait to be judged; version 4 published'
    """
    if "rows_learned" not in values:
        return f"connecting to {values['source']}"
    if values.get("away"):
        return f"waiting for {values['source']}: {values['away']}"
    rows, rate = values["rows_learned"], values.get("rows_per_second") or 0.0
    parts = [f"learning from {values['source']}: {rows:,} rows, {rate:,.0f}/s"]
    if values.get("log_loss") is not None:
        parts[0] += f", log loss {values['log_loss']:.4f}"
    behind = [f"{values['lag']:,} behind"] if values.get("lag") is not None else []
    age = values.get("event_lag_seconds")
    if age is not None and age < RECENT:
        behind.append(f"{_span(age)} old")
    parts += ["lag " + ", ".join(behind)] if behind else []
    parts.append(f"{values.get('waiting', 0):,} impressions wait to be judged")
    if values.get("version"):
        parts.append(f"version {values['version']:,} published")
    if values.get("bad"):
        parts.append(f"{values['bad']:,} bad events")
    if values.get("alarms"):
        parts.append(f"{values['alarms']:,} alarms")
    if values.get("clicks_silent"):
        parts.append("NO CLICKS COME, although some were due: nothing is judged")
    if values.get("held"):
        parts.append(f"PUBLISHING IS HELD: {values['held']}")
    return "; ".join(parts)


def _span(seconds: float) -> str:
    for unit, name in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= unit:
            return f"{seconds / unit:.1f} {name}"
    return f"{max(seconds, 0.0):.1f} s"


@contextlib.contextmanager
def live_status(source: str, terminal: Console = console) -> Iterator[Show]:
    """Within the block, the function that it gives shows figures on the terminal."""
    if not terminal.is_terminal:
        yield lambda values: None
        return
    with terminal.status(escape(status_line({"source": source}))) as status:
        yield lambda values: status.update(escape(status_line({"source": source, **values})))
