"""Charts as text: SVG figures that need no script and no network, for reports that open anywhere, in light and in dark.

`line_chart`, `calibration_plot` and `bar_chart` take one series or several, and return an HTML `<figure>`. The colours are those of
`page.STYLE`, by the class s0, s1, ... of a series. What a mark stands for is in its `<title>`: browsers show it under the pointer.
"""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

from pbodl.training.report.axes import Scale, chance_scale, moment, number_scale, thousands, time_scale

WIDTH, LOW, HIGH = 520, 290, 370  # pixels of a chart; a line or bar chart is low, a calibration plot high
TOP, BOTTOM, RIGHT = 14, 46, 20
COLOURS = 8
MOST_POINTS = 600  # of a line; more would fall on the same pixels
LETTER = 6.6  # width of a letter in a tick's label
SEEN_CLICKS = 5.0  # expected in a group of a calibration plot; with fewer it says nothing


class Series(NamedTuple):
    """One line of a chart; None among `y` is a gap. A faint one is background: thin, and its outliers may be cut off."""

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    faint: bool = False
    colour: int | None = None  # as that of another series; its own by default


class Frame(NamedTuple):
    """The rectangle of the plot, and its axes."""

    x: Scale
    y: Scale
    left: float
    right: float
    top: float
    bottom: float

    def at(self, x: float, y: float) -> tuple[float, float]:
        return self.x.place(x, self.left, self.right), self.y.place(y, self.bottom, self.top)


def line_chart(
    title: str, series: Sequence[Series], x_label: str = "", y_label: str = "", in_time: bool = False, note: str = ""
) -> str:
    """Lines over time (epoch seconds) or over a number, such as rows."""
    drawn = [(place if one.colour is None else one.colour, _thinned(one)) for place, one in enumerate(series)]
    drawn = [(colour, one) for colour, one in drawn if one.x]
    if not drawn:
        return _nothing(title)
    xs = [x for _, one in drawn for x in one.x]
    x_scale = (time_scale if in_time else number_scale)(min(xs), max(xs))
    frame = _frame(x_scale, number_scale(*_range([one for _, one in drawn])), WIDTH, LOW)
    marks = "".join(_line(one, colour, frame, in_time) for colour, one in drawn)
    legend = [(one.name, colour, one.faint) for colour, one in drawn]
    return _figure(title, _svg(frame, marks, WIDTH, LOW, title, x_label, y_label), legend, note)


def calibration_plot(title: str, models: Mapping[str, Sequence[tuple[float, float, float]]], note: str = "") -> str:
    """Predicted against observed CTR of groups of rows (weight, mean predicted, mean observed), with 95 % intervals, per model.

    Points on the diagonal are right; below it, predictions are too high.
    """
    shown = {name: [p for p in points if _says_something(*p)] for name, points in models.items()}
    values = [value for points in shown.values() for point in points for value in point[1:] if 0 < value < 1]
    if not values:
        return _nothing(title)
    scale = chance_scale(min(values) / 1.5, 1.0 - (1.0 - max(values)) / 1.5)
    frame = _frame(scale, scale, WIDTH, HIGH)
    (x0, y0), (x1, y1) = frame.at(scale.low, scale.low), frame.at(scale.high, scale.high)
    marks = f'<line class="ideal" x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}"/>'
    for colour, points in enumerate(shown.values()):
        heaviest = max((weight for weight, *_ in points), default=1.0)
        marks += "".join(_group(point, heaviest, colour, frame) for point in points)
    legend = [(name, colour, False) for colour, name in enumerate(shown)]
    svg = _svg(frame, marks, WIDTH, HIGH, title, "predicted CTR", "observed CTR")
    return _figure(title, svg, legend if len(shown) > 1 else [], note)


def bar_chart(
    title: str, labels: Sequence[str], models: Mapping[str, Sequence[float | None]], x_label: str = "", y_label: str = "",
    digits: int = 4, note: str = "",
) -> str:  # fmt: skip
    """Bars from zero, their values above them: one group per label, in it one bar per model."""
    values = [value for column in models.values() for value in column if value is not None]
    if not values:
        return _nothing(title)
    slots = Scale(0.0, float(len(labels)), [(place + 0.5, label) for place, label in enumerate(labels)])
    frame = _frame(slots, number_scale(min(0.0, *values), max(0.0, *values) * 1.08), WIDTH, LOW)
    width = min(0.7 / len(models), 0.35)
    marks = ""
    for colour, (name, column) in enumerate(models.items()):
        for place, value in enumerate(column):
            if value is not None:
                left = place + 0.5 + (colour - len(models) / 2) * width
                marks += _bar(left, width, value, f"{value:.{digits}f}", f"{name}, {labels[place]}", colour, frame)
    legend = [(name, colour, False) for colour, name in enumerate(models)]
    svg = _svg(frame, marks, WIDTH, LOW, title, x_label, y_label)
    return _figure(title, svg, legend if len(models) > 1 else [], note)


def _thinned(series: Series) -> Series:
    """Without its gaps at the ends, and with means of neighbours where there are more points than pixels."""
    step = math.ceil(len(series.x) / MOST_POINTS)
    xs: list[float] = []
    ys: list[float | None] = []
    for start in range(0, len(series.x), step):
        known = [y for y in series.y[start : start + step] if y is not None and math.isfinite(y)]
        stretch = series.x[start : start + step]
        xs.append(sum(stretch) / len(stretch))
        ys.append(sum(known) / len(known) if known else None)
    while ys and ys[-1] is None:
        del xs[-1], ys[-1]
    first = next((place for place, y in enumerate(ys) if y is not None), 0)
    return series._replace(x=xs[first:], y=ys[first:])


def _range(series: Sequence[Series]) -> tuple[float, float]:
    """What the y axis covers: all of the lines, but of the faint ones not the most extreme tenth at either end."""
    values: list[float] = []
    for one in series:
        known = sorted(y for y in one.y if y is not None)
        cut = len(known) // 10 if one.faint and len(series) > 1 else 0
        values += known[cut : len(known) - cut]
    low, high = min(values), max(values)
    room = 0.06 * (high - low) or 0.02 * abs(high) or 1.0
    return low - room, high + room


def _frame(x: Scale, y: Scale, width: float, height: float) -> Frame:
    left = 34 + LETTER * max((len(label) for _, label in y.ticks), default=1)
    return Frame(x, y, left, width - RIGHT, TOP, height - BOTTOM)


def _line(series: Series, colour: int, frame: Frame, in_time: bool) -> str:
    path, pen = [], "M"
    points = []
    for x, y in zip(series.x, series.y, strict=True):
        if y is None:
            pen = "M"
            continue
        left, top = frame.at(x, y)
        path.append(f"{pen}{left:.1f} {top:.1f}")
        pen = "L"
        points.append((left, top, f"{series.name}, {moment(x) if in_time else thousands(x)}: {y:.5g}"))
    kind = _class(colour) + (" faint" if series.faint else "")
    dots = ""
    if not series.faint and len(points) <= 60:
        dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.2"><title>{escape(text)}</title></circle>' for x, y, text in points)
    return f'<g class="{kind}"><path class="line" d="{"".join(path)}"/>{dots}</g>'


def _says_something(weight: float, predicted: float, observed: float) -> bool:
    return weight * min(predicted, 1.0 - predicted) >= SEEN_CLICKS and 0 < observed < 1


def _group(point: tuple[float, float, float], heaviest: float, colour: int, frame: Frame) -> str:
    weight, predicted, observed = point
    reach = 1.96 * math.sqrt(observed * (1.0 - observed) / weight)
    ends = [min(max(observed + side * reach, frame.y.low), frame.y.high) for side in (-1, 1)]
    x, y = frame.at(predicted, observed)
    (_, low), (_, high) = frame.at(predicted, ends[0]), frame.at(predicted, ends[1])
    radius = 2.5 + 5.5 * math.sqrt(weight / heaviest)
    text = f"{weight:,.0f} rows: predicted {100 * predicted:.3g} %, observed {100 * observed:.3g} %"
    return (
        f'<g class="{_class(colour)}"><line class="reach" x1="{x:.1f}" y1="{low:.1f}" x2="{x:.1f}" y2="{high:.1f}"/>'
        f'<circle class="group" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}"><title>{text}</title></circle></g>'
    )


def _bar(left: float, width: float, value: float, label: str, what: str, colour: int, frame: Frame) -> str:
    (x0, y0), (x1, y1) = frame.at(left + 0.06 * width, 0.0), frame.at(left + 0.94 * width, value)
    top, height = min(y0, y1), abs(y1 - y0)
    box = f'x="{x0:.1f}" y="{top:.1f}" width="{x1 - x0:.1f}" height="{height:.1f}"'
    return (
        f'<g class="{_class(colour)}"><rect class="bar" {box} rx="2">'
        f"<title>{escape(what)}: {label}</title></rect></g>"
        f'<text class="value" x="{(x0 + x1) / 2:.1f}" y="{top - 5:.1f}" text-anchor="middle">{label}</text>'
    )


def _svg(frame: Frame, marks: str, width: float, height: float, title: str, x_label: str, y_label: str) -> str:
    left, right, top, bottom = frame.left, frame.right, frame.top, frame.bottom
    axes = ""
    for value, label in frame.y.ticks:
        _, y = frame.at(frame.x.low, value)
        axes += f'<line class="grid" x1="{left:.1f}" x2="{right:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
        axes += f'<text x="{left - 8:.1f}" y="{y + 4:.1f}" text-anchor="end">{escape(label)}</text>'
    for value, label in frame.x.ticks:
        x, _ = frame.at(value, frame.y.low)
        axes += f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{bottom:.1f}" y2="{bottom + 4:.1f}"/>'
        axes += f'<text x="{x:.1f}" y="{bottom + 18:.1f}" text-anchor="middle">{escape(label)}</text>'
    axes += f'<line class="axis" x1="{left:.1f}" x2="{right:.1f}" y1="{bottom:.1f}" y2="{bottom:.1f}"/>'
    middle = (top + bottom) / 2
    axes += f'<text class="name" x="{(left + right) / 2:.1f}" y="{height - 6:.1f}" text-anchor="middle">{escape(x_label)}</text>'
    axes += f'<text class="name" transform="translate(14 {middle:.1f}) rotate(-90)" text-anchor="middle">{escape(y_label)}</text>'
    # An inner <svg> cuts off what is drawn beyond the plot; a little more room lets marks on the edge stay whole.
    box = (left - 6, top - TOP, right - left + 12, bottom - top + TOP + 3)
    inner = 'x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"'.format(*box)
    view = " ".join(f"{number:.1f}" for number in box)
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">{axes}'
        f'<svg {inner} viewBox="{view}">{marks}</svg></svg>'
    )


def _figure(title: str, svg: str, legend: Sequence[tuple[str, int, bool]], note: str) -> str:
    items = "".join(
        f'<span class="{_class(colour)}{" faint" if faint else ""}"><i></i>{escape(name)}</span>' for name, colour, faint in legend
    )
    below = f'<div class="legend">{items}</div>' if items else ""
    words = f'<p class="note">{escape(note)}</p>' if note else ""
    return f"<figure><figcaption>{escape(title)}</figcaption>{svg}{below}{words}</figure>"


def _nothing(title: str) -> str:
    return _figure(title, '<p class="note">There is nothing to show yet.</p>', [], "")


def _class(colour: int) -> str:
    return f"s{colour % COLOURS}" + (" dashed" if colour // COLOURS % 2 else "")
