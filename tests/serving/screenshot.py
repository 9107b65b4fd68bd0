"""Takes the picture of the dashboard that the README shows:

pbodl up &  # and after some minutes
python -m tests.serving.screenshot http://127.0.0.1:8080 docs/guide/dashboard.png
"""

import sys

from tests.serving.browser import chromium

WIDTH = 1280


def take(url: str, path: str, scheme: str = "light") -> None:
    """The page from its top to the table of the models, with a request scored."""
    with chromium() as browser:
        page = browser.new_context(viewport={"width": WIDTH, "height": 900}, color_scheme=scheme).new_page()
        page.goto(url)
        page.wait_for_selector("#standing tbody")
        page.wait_for_selector("#status[data-state=live]")
        page.click("#send")
        page.wait_for_selector(".score")
        page.evaluate("scrollTo({top: 0, behavior: 'instant'})")
        page.hover("#auc svg", position={"x": 250, "y": 110})
        bottom = page.evaluate("document.querySelector('#standing-card').getBoundingClientRect().bottom")
        page.screenshot(path=path, full_page=True, clip={"x": 0, "y": 0, "width": WIDTH, "height": bottom + 24})


if __name__ == "__main__":
    take(*sys.argv[1:])
