"""Alerts and dashboard: every expression parses, and asks for metrics and labels that a server and a learner really have."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

import pbodl.deployment
from pbodl.streaming.metrics_board import MetricsPage
from pbodl.streaming.online_service import Options, online
from tests.serving.services import REQUEST, ask, client_of, trained
from tests.streaming.test_online_service import JOIN, config, traffic, write

WATCHING = Path(pbodl.deployment.__file__).parent / "watching"
GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "operating.md"
OF_PROMETHEUS = {"job", "instance"}  # labels that Prometheus adds
Labels = dict[str, set[str]]


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> Labels:
    """The names of all metrics that a server and a learner show, with their labels."""
    found: Labels = {"up": set()}
    client = client_of(trained())
    ask(client, REQUEST)
    for family in text_string_to_metric_families(client.get("/metrics").text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    folder = tmp_path_factory.mktemp("learner")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pbodl.streaming.metrics_board.EVERY", 0.0)
        # What a learner shows after some 50,000 rows.
        patch.setattr("pbodl.streaming.watching.field_watch.WINDOW", 100)
        patch.setattr("pbodl.training.martingale.MartingaleWatch.ratio", 1.0)
        shown: list[object] = []
        patch.setattr(MetricsPage, "close", lambda page: shown.extend(page.collect()))
        source = write(folder / "events.jsonl", traffic(3000))
        online(config(), Options(source, folder / "run", JOIN, publish=str(folder / "model"), until_end=True))
    for family in shown:
        ending = "_total" if family.type == "counter" else ""
        found[family.name + ending] = {label for sample in family.samples for label in sample.labels}
    found["pbodl_online_setbacks_total"] = {"what"}  # shown from the first failure on
    return found


def selectors(expression: str) -> Iterator[promql_parser.VectorSelector]:
    found: list[promql_parser.VectorSelector] = []

    def visit(node: object) -> None:
        if isinstance(node, promql_parser.VectorSelector):
            found.append(node)
        elif isinstance(node, promql_parser.MatrixSelector):
            found.append(node.vector_selector)

    promql_parser.walk(promql_parser.parse(expression), visit)
    return iter(found)


def check_expression(expression: str, metrics: Labels) -> None:
    named = list(selectors(expression))
    assert named, f"asks for no metric: {expression}"
    allowed = set(OF_PROMETHEUS) | {"le"}
    for selector in named:
        assert selector.name in metrics, f"nobody shows {selector.name}: {expression}"
        labels = metrics[selector.name] | OF_PROMETHEUS
        assert {matcher.name for matcher in selector.matchers.matchers} <= labels, expression
        allowed |= labels
    for grouped in re.findall(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)", expression):
        assert {label.strip() for label in grouped.split(",") if label.strip()} <= allowed, expression


def rules() -> list[dict]:
    return [rule for group in yaml.safe_load((WATCHING / "rules.yml").read_text())["groups"] for rule in group["rules"]]


def panels() -> list[dict]:
    return [panel for panel in json.loads((WATCHING / "dashboard.json").read_text())["panels"] if panel["type"] != "row"]


def test_alerts_ask_for_what_is_there(metrics: Labels) -> None:
    for rule in rules():
        check_expression(rule["expr"], metrics)


def test_alerts_say_what_is_wrong_and_what_to_do(metrics: Labels) -> None:
    assert len({rule["alert"] for rule in rules()}) == len(rules())
    for rule in rules():
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert re.fullmatch(r"Pbodl[A-Z]\w+", rule["alert"])
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert set(rule["annotations"]) == {"summary", "action"}
        if "for" in rule:
            assert promql_parser.parse_duration(rule["for"])
        shown = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        known = set().union(*(metrics[selector.name] for selector in selectors(rule["expr"])), OF_PROMETHEUS)
        assert shown <= known, rule["alert"]


def test_every_alert_is_in_the_guide() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    missing = [rule["alert"] for rule in rules() if f"`{rule['alert']}`" not in text]
    assert not missing, f"say in {GUIDE.name} when these fire: {missing}"


def test_panels_ask_for_what_is_there(metrics: Labels) -> None:
    for panel in panels():
        assert panel["targets"], panel["title"]
        for target in panel["targets"]:
            check_expression(target["expr"].replace("$__rate_interval", "1m"), metrics)


def test_panels_have_names_and_places_of_their_own() -> None:
    board = json.loads((WATCHING / "dashboard.json").read_text())
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    assert len({panel["title"] for panel in board["panels"]}) == len(board["panels"])
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        assert not taken & cells, f"{panel['title']} lies over another panel"
        assert all(0 <= x < 24 for x, _ in cells)
        taken |= cells
    (source,) = board["templating"]["list"]
    assert source["type"] == "datasource" and all(panel["datasource"]["uid"] == "${source}" for panel in panels())


def test_a_check_that_would_fail(metrics: Labels) -> None:
    with pytest.raises(AssertionError, match="nobody shows"):
        check_expression("rate(pbodl_requests[5m])", metrics)
    with pytest.raises(AssertionError):
        check_expression('pbodl_online_held{cause="x"}', metrics)
