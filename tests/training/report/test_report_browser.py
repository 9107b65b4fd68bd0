"""Reports in a real browser: the charts show what they were given, offline, in light and dark, and run no foreign script."""

import math
import re

import pytest

from pbodl.training.report.chart_data import Series, bar_chart, calibration_plot, line_chart
from pbodl.training.report.page import asset, charts, page, section, table, write_page
from tests.serving.browser import chromium

DAY = 86400.0
START = 1_414_000_000.0 // DAY * DAY
EVIL = "</script><img src=x onerror=alert(1)><script>alert(1)</script>"


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


@pytest.fixture
def shown(browser, tmp_path):
    """Opens a report with some figures; afterwards nothing but the file may have been read, and nothing have gone wrong."""
    opened = []

    def show(*figures: str, width: int = 1280, scheme: str = "light", title: str = "Report"):
        body = section("Charts", charts(*figures)) + section("Figures", table([EVIL], [[EVIL]]))
        url = write_page(tmp_path / "report.html", page(title, EVIL, body)).as_uri()
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme, offline=True)
        found = context.new_page()
        asked, faults = [], []
        found.on("request", lambda request: asked.append(request.url))
        found.on("pageerror", lambda error: faults.append(str(error)))
        found.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
        found.on("dialog", lambda dialog: faults.append(dialog.message))
        found.goto(url)
        opened.append((context, url, asked, faults))
        return found

    yield show
    for context, url, asked, faults in opened:
        context.close()
        assert (asked, faults) == ([url], [])


def texts(page, selector: str = "text, title, .empty, .note") -> list[str]:
    return page.locator(selector).all_text_contents()


def path_of(page) -> list[tuple[str, float, float]]:
    found = re.findall(r"([ML])([-\d.]+) ([-\d.]+)", page.locator("path.line").first.get_attribute("d"))
    return [(pen, float(x), float(y)) for pen, x, y in found]


def test_several_models_over_time(shown):
    xs = [START + DAY * n for n in range(5)]
    series = [Series("fm-mlp", xs, [0.7, 0.72, 0.73, 0.74, 0.75]), Series("ad & co", xs, [0.7, 0.71, 0.71, 0.72, 0.72])]
    page = shown(line_chart("AUC by day", series, "time (UTC)", "AUC", in_time=True, note="a note"))
    assert {"22 Oct", "time (UTC)", "AUC", "a note"} <= set(texts(page))
    assert page.locator("circle.end").count() == 10
    assert page.locator(".plot svg").get_attribute("aria-label") == "AUC by day, at the end: fm-mlp 0.7500, ad & co 0.7200"
    assert texts(page, ".legend button") == ["fm-mlp", "ad & co"]
    page.locator(".plot svg").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowLeft")
    assert re.sub(r"\s+", " ", page.locator(".tip").inner_text()) == "2014-10-25 00:00 fm-mlp 0.7400 ad & co 0.7200"
    page.click(".legend button:has-text('ad & co')")
    assert page.locator("path.line").count() == 1


def test_points_are_where_they_belong_and_gaps_are_gaps(shown):
    values = [1.0, 2.0, None, 1.0, math.nan, 3.0, 1.0]
    points = path_of(shown(line_chart("t", [Series("a", [float(n) for n in range(7)], values)])))
    assert [pen for pen, *_ in points] == ["M", "L", "M", "M", "L"]
    (_, x0, y0), (_, x1, y1), (_, x3, y3), (_, x5, y5), (_, _, y6) = points
    assert x3 - x1 == pytest.approx(2 * (x1 - x0), abs=0.2)
    assert y0 == y3 == y6 > y1 > y5
    assert y0 - y5 == pytest.approx(2 * (y0 - y1), abs=0.2)
    assert x5 - x0 == pytest.approx(5 * (x1 - x0), abs=0.3)


def test_outliers_of_faint_lines_do_not_flatten_the_rest(shown):
    noisy, days = [0.4] * 98 + [50.0, -50.0], range(100)
    page = shown(line_chart("t", [Series("a", days, [0.39, 0.41] * 50), Series("noise", days, noisy, faint=True)]))
    assert sum(bool(re.fullmatch(r"0\.[34]\d*", text)) for text in texts(page)) >= 3


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
def test_nothing_to_show(shown, figure):
    assert "There is nothing to show yet." in texts(shown(figure))


@pytest.mark.parametrize("in_time", [False, True])
def test_degenerate_ranges(shown, in_time):
    ranges = [([0.0], [0.5]), ([1.0, 1.0], [0.5, 0.5]), ([0, 1], [0.0, 0.0]), ([0, 1], [-5.0, 1e7])]
    page = shown(*(line_chart("t", [Series("a", *values)], in_time=in_time) for values in ranges))
    assert page.locator("path.line").count() == len(ranges)
    assert "NaN" not in page.content() and "Infinity" not in page.locator("main").inner_html().replace("-Infinity", "")


def test_calibration(shown):
    right, high = [(1000.0, p, p) for p in (0.02, 0.2, 0.6)], [(500.0, p, p / 2) for p in (0.02, 0.2, 0.6)]
    page = shown(calibration_plot("calibration", {"right": right, "too high": high}, "a note"))
    ideal = page.locator("line.ideal")
    x1, y1, x2, y2 = (float(ideal.get_attribute(name)) for name in ("x1", "y1", "x2", "y2"))
    circles = page.locator("circle.group").all()
    assert len(circles) == 6
    for circle in circles:
        x, y = float(circle.get_attribute("cx")), float(circle.get_attribute("cy"))
        on_diagonal = y1 + (x - x1) / (x2 - x1) * (y2 - y1)
        assert y == pytest.approx(on_diagonal, abs=0.3) if "1,000 rows" in circle.text_content() else y > on_diagonal + 5
    assert "right, 1,000 rows: predicted 20 %, observed 20 %" in texts(page)
    # The fewer the clicks, the longer the interval.
    intervals = page.locator("line.interval").all()
    lengths = [abs(float(line.get_attribute("y1")) - float(line.get_attribute("y2"))) for line in intervals]
    assert lengths[0] > lengths[2] > 0


def test_bars(shown):
    page = shown(bar_chart("by age", ["new", "old"], {"a": [0.2, 0.4], "b": [None, 0.1]}, "age", "log loss", digits=2))
    heights = [float(bar.get_attribute("height")) for bar in page.locator("rect.bar-mark").all()]
    assert heights[1] == pytest.approx(2 * heights[0], rel=0.01)
    assert heights[1] == pytest.approx(4 * heights[2], rel=0.01)
    assert {"0.20", "0.40", "0.10", "new", "old", "age", "log loss", "b, old: 0.10"} <= set(texts(page))


def test_names_are_text_and_never_markup(shown):
    figures = [
        line_chart(EVIL, [Series(EVIL, [0, 1], [0, 1]), Series("b", [0, 1], [1, 0])], EVIL, EVIL, note=EVIL),
        bar_chart(EVIL, [EVIL], {EVIL: [1.0], "b": [2.0]}, EVIL, EVIL, note=EVIL),
        calibration_plot(EVIL, {EVIL: [(1000.0, 0.1, 0.2)], "b": []}, EVIL),
    ]
    page = shown(*figures, title=EVIL)
    page.hover(".plot >> nth=0")
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 1 + len(figures)
    assert texts(page, "figcaption") == [EVIL] * 3
    assert EVIL in texts(page, ".legend button") and EVIL in page.locator(".tip").first.inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_in_light_and_dark(shown, scheme):
    figures = [
        line_chart("AUC, progressive", [Series("a", [START, START + DAY], [0.7, 0.8])], in_time=True),
        calibration_plot("c", {"m": [(1000.0, 0.1, 0.2)]}),
        bar_chart("b", ["under 1 h", "1 h to 1 day", "older"], {"m": [0.1, 0.2, 0.3]}),
    ]
    page = shown(*figures, width=360, scheme=scheme)
    assert page.locator(".plot svg").count() == 3
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    red, *_ = map(int, re.findall(r"\d+", page.evaluate("getComputedStyle(document.body).backgroundColor")))
    assert (red < 60) == (scheme == "dark")
    page.set_viewport_size({"width": 900, "height": 700})
    page.wait_for_function("document.querySelectorAll('.plot svg')[2].clientWidth > 360")  # it is drawn again for the new width


def test_axes(browser):
    page = browser.new_page()
    functions = re.sub(r"^export ", "", asset("axes.js"), flags=re.MULTILINE)
    page.evaluate(f"{functions}; Object.assign(globalThis, {{ numberScale, timeScale, chanceScale, short }})")
    labels = "(code) => eval(code).ticks.map(([, label]) => label)"
    assert page.evaluate(labels, "numberScale(0.382, 0.41, 6)") == ["0.385", "0.390", "0.395", "0.400", "0.405", "0.410"]
    assert page.evaluate(labels, "numberScale(1, 3, 6, 1)") == ["1", "2", "3"]
    assert page.evaluate(labels, "numberScale(0, 5000000, 5)") == ["0", "1M", "2M", "3M", "4M", "5M"]
    assert page.evaluate(labels, "timeScale(0, 3 * 86400, 8)") == ["1 Jan", "12:00", "2 Jan", "12:00", "3 Jan", "12:00", "4 Jan"]
    assert page.evaluate(labels, "timeScale(0, 8 * 86400, 8)")[:3] == ["1 Jan", "2 Jan", "3 Jan"]
    assert page.evaluate(labels, "chanceScale(0.02, 0.6)") == ["3 %", "10 %", "30 %", "50 %"]
    assert page.evaluate("[1500000, 200000, 40].map(short)") == ["1.5M", "200k", "40"]
    # Over many ranges: few ticks, all inside, in order, with labels that tell them apart.
    for exponent in range(-12, 20):
        for start in (0.0, 0.31, -0.77, 1.0):
            span = 10 ** (exponent / 2)
            low, high = start * span, (start + 1) * span
            values, names = zip(*page.evaluate("([low, high]) => numberScale(low, high, 6).ticks", [low, high]), strict=True)
            assert 2 <= len(values) <= 8
            assert list(values) == sorted(set(values)) and len(set(names)) == len(names)
            assert low - 1e-6 * span <= values[0] <= values[-1] <= high + 1e-6 * span
            ticks = page.evaluate("([low, high]) => timeScale(low, high, 8).ticks", [1.4e9 + low, 1.4e9 + high + 60.0])
            assert len(ticks) <= 9
            assert all(1.4e9 + low <= value <= 1.4e9 + high + 60.0 for value, _ in ticks)
    page.close()
