"""The dashboard in a real browser: as a person sees it, with and without figures, on a phone, and by keyboard."""

import re

import pyarrow as pa
import pytest

from pbodl.publishing.curves import Curves
from pbodl.serving.scoring.predictor import Predictor
from pbodl.serving.web.http_service import HttpService
from pbodl.serving.web.server_limits import Token
from pbodl.training.inspect.feature_names import NameStore
from tests.patience import PATIENCE
from tests.publishing.published import LOG
from tests.serving.browser import chromium, served
from tests.serving.services import CANDIDATES, CONTEXT, USER, Fixed, trained

PHONE = {"width": 360, "height": 740}
MILLISECONDS = 1000.0 * PATIENCE  # that the page may take to show something


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def predictor():
    made = Predictor.of(trained())
    made.score(USER, CONTEXT, CANDIDATES)  # compiles what is not yet, while no browser waits
    return made


@pytest.fixture
def run(tmp_path, predictor):
    names = NameStore(predictor.schema)
    names.add(pa.Table.from_pylist(LOG))
    names.save(tmp_path)
    return tmp_path


@pytest.fixture
def open_page(browser):
    """Opens a page; afterwards nothing may have been asked of another host, and no error have come up."""
    opened = []

    def open_at(url: str, **options):
        context = browser.new_context(**options)
        page = context.new_page()
        page.set_default_timeout(MILLISECONDS)
        asked, faults = [], []
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
        page.goto(url)
        opened.append((context, url, asked, faults))
        return page

    yield open_at
    for context, url, asked, faults in opened:
        context.close()
        # A server that refuses or is gone is no fault of the page; what its policy refuses is.
        assert [fault for fault in faults if not fault.startswith("Failed to load resource")] == []
        assert asked and all(address.startswith(url) for address in asked)


def figures(auc: float) -> dict:
    new_ads = {"rows": 10, "auc": auc - 0.02, "log_loss": 0.4}
    one = {"rows": 100, "auc": auc, "log_loss": 0.4, "ne": 0.9, "calibration": 1.01, "new_ads": new_ads}
    return {"window": one, "progressive": {**one, "auc": auc - 0.1}, "rows_per_second": 1000}


def learn(curves: Curves, steps: range) -> None:
    """A trainer's points: the first model overtakes the second."""
    for step in steps:
        models = {"FM-MLP": figures(0.7 + 0.001 * step), "FTRL": figures(0.71)}
        curves.append({"time": 1e9 + step, "rows": 1000 * step, "rows_per_second": 5000, "lag": 0.2, "models": models})


def wait_for(page, selector: str, text: str | re.Pattern | None = None, value: re.Pattern | None = None) -> None:
    """Until an element has a text, or an input a value."""
    from playwright.sync_api import expect  # here, where there is a browser

    shown = expect(page.locator(selector))
    shown.to_have_text(text, timeout=MILLISECONDS) if value is None else shown.to_have_value(value, timeout=MILLISECONDS)


def test_a_stream_tells_its_backpressure_and_why_it_is_held(open_page, predictor, run):
    curves = Curves(run)
    learn(curves, range(1, 3))
    with served(HttpService(Fixed(predictor), run=str(run))) as url:
        page = open_page(url)
        page.wait_for_selector("#auc .s0 .line")
        assert page.locator("#held").is_hidden()
        models = {"fm-mlp": figures(0.7)}
        point = {"time": 1e9 + 9, "rows": 9000, "rows_per_second": 1, "lag": 3.0, "models": models, "packs_ahead": 4}
        curves.append(point | {"held": "the field 'site' is missing"})
        wait_for(page, "#held", "Publishing is held: the field 'site' is missing.")
        assert page.locator("#lag-note").inner_text() == "behind the stream; 4 packs wait to be learned"


def test_curves_move_while_a_trainer_runs(open_page, predictor, run):
    curves = Curves(run)
    learn(curves, range(1, 11))
    with served(HttpService(Fixed(predictor), run=str(run))) as url:
        page = open_page(url)
        page.wait_for_selector("#auc .s0 .line")
        assert page.locator("#legend button").all_inner_texts() == ["FM-MLP", "FTRL"]
        assert "now: FM-MLP 0.7100, FTRL 0.7100" in page.locator("#auc svg").get_attribute("aria-label")
        before = page.locator("#auc g.s0 path.line").get_attribute("d")
        learn(curves, range(11, 31))
        page.wait_for_selector("#auc svg[aria-label*='FM-MLP 0.7300']")
        assert page.locator("#auc g.s0 path.line").get_attribute("d") != before
        assert page.locator("#standing tbody tr").first.inner_text().split()[:2] == ["FM-MLP", "0.7300"]
        page.check("input[value=progressive]", force=True)
        page.wait_for_selector("#auc svg[aria-label*='FM-MLP 0.6300']")
        page.click("#legend button:has-text('FTRL')")
        assert page.locator("#auc path.line").count() == 1
        # By keyboard: the chart is read from its end backwards.
        page.locator("#auc svg").focus()
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("ArrowLeft")
        assert re.sub(r"\s+", " ", page.locator("#auc .tip").inner_text()) == "29,000 rows FM-MLP 0.6290"


def test_a_request_is_scored_and_shown_with_its_interval(open_page, predictor, run):
    with served(HttpService(Fixed(predictor), run=str(run))) as url:
        page = open_page(url)
        wait_for(page, "#ad-1-ad", value=re.compile(r"ad\d+"))  # the form starts with values that are known
        page.fill("#user-user", "3")
        page.fill("#user-tags", "tag0, tag2")
        page.fill("#context-site", "site1")
        page.fill("#context-time", "1414000000")
        page.fill("#ad-1-ad", "ad1")
        page.fill("#ad-1-price", "3")
        page.fill("#user-age", "")
        page.press("#ad-1-price", "Enter")
        page.wait_for_selector(".score")
        user, context = {"user": "3", "tags": ["tag0", "tag2"]}, {"site": "site1", "time": 1414000000}
        scores = predictor.score(user, context, [{"ad": "ad1", "price": 3.0}])
        assert page.locator(".score b").first.inner_text() == f"{100 * scores.ctr[0]:.2f} %"
        low, high = map(float, re.findall(r"([\d.]+) %", page.locator(".ends").first.inner_text())[:2])
        assert low < 100 * scores.ctr[0] < high
        assert page.locator(".score").count() == 2
        page.click("#add")
        page.click("#send")
        page.wait_for_selector(".score >> nth=2")
        wait_for(page, "#latency-note", text=re.compile("^2 requests; half within"))  # the server has counted them


def test_errors_are_told_where_they_are(open_page, predictor, run):
    with served(HttpService(Fixed(predictor), run=str(run))) as url:
        page = open_page(url)
        page.wait_for_selector("#ad-1-price")
        page.fill("#ad-1-price", "cheap")
        page.click("#send")
        page.wait_for_selector("#form-error:visible")
        assert page.inner_text("#form-error") == "price must be a number; “cheap” is not one."
        assert page.evaluate("document.activeElement.id") == "ad-1-price"
        page.fill("#ad-1-price", "1e301")  # which only the server refuses
        page.click("#send")
        wait_for(page, "#form-error", text=re.compile("price.*<= 1"))
        assert page.get_attribute("#ad-1-price", "aria-invalid") == "true"
        page.fill("#ad-1-price", "1")
        page.click("#send")
        page.wait_for_selector(".score")
        assert not page.is_visible("#form-error") and page.get_attribute("#ad-1-price", "aria-invalid") is None


def test_a_server_that_went_away_is_told(open_page, predictor):
    with served(HttpService(Fixed(predictor))) as url:
        page = open_page(url)
        page.wait_for_selector("#form:visible")
    page.click("#send")
    page.wait_for_selector("#form-error:visible")
    assert page.inner_text("#form-error") == "The server does not answer. Is it still running?"


def test_without_figures_it_says_so(open_page, predictor):
    with served(HttpService(Fixed(predictor))) as url:
        page = open_page(url)
        page.wait_for_selector("#no-curves:visible")
        assert page.inner_text("#no-curves").startswith("No live figures yet")
        wait_for(page, "#latency", text=re.compile("^No request has been scored yet"))
        wait_for(page, "#status", text="serving; no trainer")


def test_without_a_model_it_waits(open_page, predictor):
    source = Fixed(None)
    with served(HttpService(source)) as url:
        page = open_page(url)
        wait_for(page, "#status", text="waiting for the first model")
        assert all(page.is_visible(place) for place in ("#no-form", "#no-uncertain", "#latency .empty"))
        source.predictor = predictor
        page.wait_for_selector("#form:visible")


def test_a_token_is_asked_for(open_page, predictor, run):
    learn(Curves(run), range(1, 5))
    with served(HttpService(Fixed(predictor), None, Token("secret"), run=str(run))) as url:
        page = open_page(url)
        page.wait_for_selector("#token:visible")
        assert not page.is_visible("#content")
        page.fill("#token-text", "wrong")
        page.press("#token-text", "Enter")
        page.wait_for_selector("#token-error:visible")
        page.fill("#token-text", "secret")
        page.click("#token button")
        page.wait_for_selector("#auc .s0 .line")
        page.click("#send")
        page.wait_for_selector(".score")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_nothing_is_wider_than_the_screen(open_page, predictor, run, scheme):
    learn(Curves(run), range(1, 40))
    with served(HttpService(Fixed(predictor), run=str(run))) as url:
        page = open_page(url, viewport=PHONE, color_scheme=scheme)
        page.wait_for_selector("#auc .s0 .line")
        page.wait_for_selector("#form:visible")
        assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
        red, *_ = map(int, re.findall(r"\d+", page.evaluate("getComputedStyle(document.body).backgroundColor")))
        assert (red < 60) == (scheme == "dark")
        # Every input has a name that a screen reader can say.
        assert page.evaluate("[...document.querySelectorAll('input, select')].every((input) => input.labels.length > 0)")
