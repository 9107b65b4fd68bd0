"""The data of charts: complete, bounded in size, and safe inside a page."""

import json
import math
import re

import pytest

from pbodl.training.report.chart_data import MOST_POINTS, Series, bar_chart, calibration_plot, line_chart


def data(figure: str) -> dict:
    (text,) = re.findall(r'<script type="application/json">(.*?)</script>', figure)
    return json.loads(text)


def test_lines():
    xs = [0.0, 1.0, 2.0]
    chart = data(
        line_chart("AUC", [Series("a", xs, [0.7, None, 0.8]), Series("b", xs, [0.1, math.nan, 0.3], faint=True, colour=0)])
    )
    first, second = chart["series"]
    assert first == {"name": "a", "colour": 0, "faint": False, "points": [[0.0, 0.7], [1.0, None], [2.0, 0.8]]}
    assert (second["colour"], second["faint"], second["points"][1]) == (0, True, [1.0, None])
    assert chart["name"] == "AUC"


def test_many_points_are_thinned():
    ys = [math.sin(n / 500) for n in range(10_000)]
    points = data(line_chart("t", [Series("a", range(10_000), ys)]))["series"][0]["points"]
    assert 500 < len(points) <= MOST_POINTS
    step = 10_000 // len(points) + 1
    assert points[3] == pytest.approx([sum(range(3 * step, 4 * step)) / step, sum(ys[3 * step : 4 * step]) / step])


def test_bars_and_groups():
    bars = data(bar_chart("by age", ["new", "old"], {"a": [0.2, 0.4], "b": [None, math.inf]}, digits=2))
    assert [series["values"] for series in bars["series"]] == [[0.2, 0.4], [None, None]]
    assert (bars["groups"], bars["digits"]) == (["new", "old"], 2)
    groups = [(1000.0, 0.02, 0.03)]
    assert data(calibration_plot("c", {"m": groups}))["series"] == [{"name": "m", "colour": 0, "groups": [[1000.0, 0.02, 0.03]]}]


def test_no_name_can_leave_its_element():
    evil = "</script><script>alert(1)</script><!--"
    figure = bar_chart(evil, [evil], {evil: [1.0]}, evil, evil, note=evil)
    assert figure.count("<script") == figure.count("</script") == 1
    assert "<!--" not in figure
    chart = data(figure)
    assert (chart["name"], chart["groups"], chart["series"][0]["name"], chart["names"]) == (
        evil,
        [evil],
        evil,
        {"x": evil, "y": evil},
    )
