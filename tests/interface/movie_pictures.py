"""Takes the pictures of docs/guide/movies.md, from the page's own code:

python -m tests.interface.movie_pictures
"""

import contextlib
import io
import tempfile
from pathlib import Path
from typing import Any

from pbodl.training.report.chart_data import Series, line_chart
from pbodl.training.report.page import charts, page
from tests.pages import ROOT, blocks
from tests.serving.browser import chromium

GUIDE = ROOT / "docs" / "guide"
WIDTH = 1000


def run_page() -> dict[str, Any]:
    """The names that the page defines."""
    names: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        for block in blocks(GUIDE / "movies.md"):
            if block.language == "python":
                exec(compile(block.text, "movies.md", "exec"), names)
    return names


def premiere(names: dict[str, Any]) -> str:
    """The page with the chart of the first ratings."""
    n, ctr, std = zip(*names["after"], strict=True)
    truth = names["chance"](names["user"], names["hit"])
    series = [
        Series("predicted", n, ctr),
        Series("one standard deviation above", n, [c + s for c, s in zip(ctr, std, strict=True)], faint=True, colour=0),
        Series("one standard deviation below", n, [c - s for c, s in zip(ctr, std, strict=True)], faint=True, colour=0),
        Series("truth", n, [truth] * len(n), colour=1),
    ]
    return page("", "", charts(line_chart("Chance that the user likes the movie", series, "ratings of the movie so far")))


def take(html: str, selector: str, path: Path) -> None:
    """A picture of one part of a page."""
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        (Path(folder) / "page.html").write_text(html, encoding="utf-8")
        shown = browser.new_context(viewport={"width": WIDTH, "height": 800}, color_scheme="light").new_page()
        shown.goto(f"file://{folder}/page.html")
        shown.wait_for_selector(f"{selector} svg")
        shown.locator(selector).first.screenshot(path=str(path))


if __name__ == "__main__":
    found = run_page()
    take(found["model"].report().html, ".charts", GUIDE / "movies-learning.png")
    take(premiere(found), ".charts", GUIDE / "movies-premiere.png")
