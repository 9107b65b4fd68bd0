"""Charts: well-formed SVG that shows what it was given."""

import math
import re
import xml.etree.ElementTree as ET

import pytest

from pbodl.training.report.charts import MOST_POINTS, Series, bar_chart, calibration_plot, line_chart

DAY = 86400.0
START = 1_414_000_000.0 // DAY * DAY


def parsed(figure: str) -> ET.Element:
    return ET.fromstring(figure)


def texts(figure: str) -> list[str]:
    return [element.text or "" for element in parsed(figure).iter() if element.tag in ("text", "figcaption", "title", "p", "span")]


def paths(figure: str) -> list[str]:
    return [element.get("d", "") for element in parsed(figure).iter("path")]


def test_several_models_in_one_picture():
    xs = [START + DAY * n for n in range(5)]
    figure = line_chart(
        "AUC", [Series("fm-mlp", xs, [0.7, 0.72, 0.73, 0.74, 0.75]), Series("ad & co", xs, [0.7, 0.71, 0.71, 0.72, 0.72])],
        "time", "AUC", in_time=True,
    )  # fmt: skip
    assert [group.get("class") for group in parsed(figure).iter("g")] == ["s0", "s1"]
    assert "ad & co" in "".join(parsed(figure).itertext())
    assert "22 Oct" in texts(figure)
    assert len(list(parsed(figure).iter("circle"))) == 10
    assert "fm-mlp, 2014-10-22 00:00: 0.7" in texts(figure)


def test_points_stand_where_they_belong():
    figure = line_chart("t", [Series("a", [0.0, 5.0, 10.0], [1.0, 2.0, 1.0])])
    (x0, y0), (x1, y1), (x2, y2) = [tuple(map(float, pair)) for pair in re.findall(r"[ML]([\d.]+) ([\d.]+)", paths(figure)[0])]
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert y0 == y2 > y1


def test_gaps_are_gaps():
    figure = line_chart("t", [Series("a", [0, 1, 2, 3, 4], [1.0, None, 2.0, 3.0, math.nan])])
    assert paths(figure)[0].count("M") == 2
    assert paths(figure)[0].count("L") == 1


def test_many_points_are_thinned():
    figure = line_chart("t", [Series("a", range(10_000), [math.sin(n / 500) for n in range(10_000)], faint=True)])
    assert 100 < len(re.findall("[ML]", paths(figure)[0])) <= MOST_POINTS
    assert not list(parsed(figure).iter("circle"))


def test_outliers_of_faint_lines_do_not_flatten_the_rest():
    noisy = [0.4] * 98 + [50.0, -50.0]
    figure = line_chart("t", [Series("noise", range(100), noisy, faint=True), Series("a", range(100), [0.39, 0.41] * 50)])
    ticks = [float(text) for text in texts(figure) if re.fullmatch(r"0\.\d+", text)]
    assert len(ticks) >= 3


def test_text_is_escaped():
    figure = line_chart("<b>", [Series("<i>", [0, 1], [0, 1])], "&", '"', note="<u>")
    assert "<b>" in texts(figure)
    assert "<u>" in texts(figure)


@pytest.mark.parametrize(
    "figure",
    [
        line_chart("t", []),
        line_chart("t", [Series("a", [0, 1], [None, None])]),
        calibration_plot("t", {"a": []}),
        calibration_plot("t", {"a": [(3.0, 0.1, 0.0)]}),
        bar_chart("t", [], {"a": []}),
    ],
)
def test_nothing_to_show(figure):
    assert "There is nothing to show yet." in texts(figure)


@pytest.mark.parametrize("values", [([0.0], [0.5]), ([1.0, 1.0], [0.5, 0.5]), ([0, 1], [0.0, 0.0]), ([0, 1], [-5.0, 1e7])])
def test_degenerate_ranges(values):
    parsed(line_chart("t", [Series("a", *values)]))
    parsed(line_chart("t", [Series("a", *values)], in_time=True))


def test_calibration():
    right, high = [(1000.0, p, p) for p in (0.02, 0.2, 0.6)], [(500.0, p, p / 2) for p in (0.02, 0.2, 0.6)]
    figure = calibration_plot("calibration", {"right": right, "too high": high})
    ideal = next(line for line in parsed(figure).iter("line") if line.get("class") == "ideal")
    x1, y1, x2, y2 = (float(ideal.get(name, "")) for name in ("x1", "y1", "x2", "y2"))
    for circle in parsed(figure).iter("circle"):
        x, y = float(circle.get("cx", "")), float(circle.get("cy", ""))
        on_diagonal = y1 + (x - x1) / (x2 - x1) * (y2 - y1)
        is_right = "1,000" in "".join(circle.itertext())
        assert y == pytest.approx(on_diagonal, abs=0.3) if is_right else y > on_diagonal + 5
    assert len(list(parsed(figure).iter("circle"))) == 6
    # Intervals: the fewer the clicks, the longer.
    reaches = [line for line in parsed(figure).iter("line") if line.get("class") == "reach"]
    lengths = [abs(float(line.get("y1", "")) - float(line.get("y2", ""))) for line in reaches]
    assert lengths[0] > lengths[2] > 0


def test_bars():
    figure = bar_chart("by age", ["new", "old"], {"a": [0.2, 0.4], "b": [None, 0.1]}, digits=2)
    heights = [float(bar.get("height", "")) for bar in parsed(figure).iter("rect")]
    assert heights[1] == pytest.approx(2 * heights[0], rel=0.02)
    assert heights[1] == pytest.approx(4 * heights[2], rel=0.02)
    assert {"0.20", "0.40", "0.10", "new", "old"} <= set(texts(figure))


def test_no_script_and_no_network():
    figure = line_chart("t", [Series("a", [0, 1], [0, 1])])
    assert "<script" not in figure
    assert "http" not in figure
