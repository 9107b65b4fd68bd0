"""The charts of a report, as data: each function returns an HTML `<figure>` with the numbers as JSON, which `charts.js` draws.

`line_chart`, `calibration_plot` and `bar_chart` take one series or several. A value that is missing or not finite is a gap.
"""

import json
import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

MOST_POINTS = 600  # of a line; more would fall on the same pixels
DIGITS = 4  # after the point, of values that a person reads off

Group = tuple[float, float, float]  # weight, mean predicted, mean observed


class Series(NamedTuple):
    """One line of a chart. A faint one is background: thin, and its outliers may be cut off."""

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    faint: bool = False
    colour: int | None = None  # shared with another series; a colour of its own by default


def line_chart(
    title: str, series: Sequence[Series], x_label: str = "", y_label: str = "", in_time: bool = False, note: str = ""
) -> str:
    """Lines over time (epoch seconds) or over a whole number, such as rows. The first series is drawn on top."""
    lines = [
        {"name": one.name, "colour": index if one.colour is None else one.colour, "faint": one.faint, "points": _points(one)}
        for index, one in enumerate(series)
    ]
    chart = {"kind": "lines", "series": lines, "time": in_time, "digits": DIGITS, "names": {"x": x_label, "y": y_label}}
    return _figure(title, chart, note)


def calibration_plot(title: str, models: Mapping[str, Sequence[Group]], note: str = "") -> str:
    """Predicted against observed CTR of groups of rows, per model."""
    series = [{"name": name, "colour": index, "groups": groups} for index, (name, groups) in enumerate(models.items())]
    return _figure(title, {"kind": "calibration", "series": series}, note, "plot tall")


def bar_chart(
    title: str, labels: Sequence[str], models: Mapping[str, Sequence[float | None]], x_label: str = "", y_label: str = "",
    digits: int = DIGITS, note: str = "",
) -> str:  # fmt: skip
    """Bars from zero with their values above them: one group per label, one bar per model in each group."""
    series = [
        {"name": name, "colour": index, "values": [_finite(value) for value in values]}
        for index, (name, values) in enumerate(models.items())
    ]
    chart = {"kind": "bars", "groups": labels, "series": series, "digits": digits, "names": {"x": x_label, "y": y_label}}
    return _figure(title, chart, note)


def _points(series: Series) -> list[tuple[float, float | None]]:
    """The points of a line; where there are more than pixels, the means of neighbours."""
    step = math.ceil(len(series.x) / MOST_POINTS) or 1
    points = []
    for start in range(0, len(series.x), step):
        xs = series.x[start : start + step]
        known = [y for y in map(_finite, series.y[start : start + step]) if y is not None]
        points.append((sum(xs) / len(xs), sum(known) / len(known) if known else None))
    return points


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _figure(title: str, chart: Mapping[str, Any], note: str, kind: str = "plot") -> str:
    # Without "<", no text inside the JSON can end the script element.
    data = json.dumps({"name": title, **chart}, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    words = f'<p class="note">{escape(note)}</p>' if note else ""
    return (
        f'<figure><figcaption>{escape(title)}</figcaption><div class="{kind}"></div><div class="legend"></div>{words}'
        f'<script type="application/json">{data}</script></figure>'
    )
