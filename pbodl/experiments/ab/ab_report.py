"""The pages of the online experiment: `ab.md` and `report.html`, with Tables 3 and 4 beside the paper's figures."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pbodl.experiments.table1.table1_report import markdown
from pbodl.training.report.chart_data import Series, line_chart
from pbodl.training.report.page import charts, page, section, table, tiles, write_page

Line = Mapping[str, Any]
TABLE_3 = (
    "arm", "impressions", "CTR", "CTR lift (95 %)", "paper", "CTR lift by the truth (95 %)", "CPM lift (95 %)",
    "share of the best, lift (95 %)", "value of the best (95 %)",
)  # fmt: skip
TABLE_4 = ("arm", "new ads' CTR", "lift (95 %)", "paper", "lift by the truth (95 %)", "share of impressions", "paper's share")
QUALITY = ("arm", "regret (95 %)", "regret where the best ad is new (95 %)", "calibration", "calibration on new ads")
PAIRS = (
    "arm", "against", "CTR by the truth", "share of the best", "new ads' CTR by the truth", "regret, points",
    "regret where the best is new, points",
)  # fmt: skip
ABLATION = (
    "arm", "CTR by the truth", "lift (95 %)", "share of the best, lift (95 %)", "new ads' CTR by the truth, lift (95 %)",
    "new ads' share", "regret", "regret where the best ad is new", "calibration",
)  # fmt: skip
WORLDS = ("arm", "CTR lift by the truth", "share of the best, lift", "new ads' CTR lift by the truth")
CURVES = {
    "true_ctr": "CTR by the truth",
    "regret": "regret",
    "new_share": "new ads' share of impressions",
    "new_regret": "regret where the best ad is new",
}
WORDS = (
    "CTR and CPM are observed. Figures 'by the truth' use the true click probabilities of the shown ads, which removes the luck "
    "of the clicks.",
    "Share of the best: the expected value of the shown ads divided by that of the best possible ranking; regret is 1 minus that. "
    "It cancels the differences between the arms' users and candidates, and is the most precise of these figures. "
    "Value of the best: the expected value per impression of the best ranking, which depends on the arm's users alone.",
    "An ad is new if its first impression, in the burn-in or by the arm itself, was less than a day ago. In 'regret where the "
    "best ad is new', the best ad entered the market less than a day ago.",
    "Calibration: predicted CTR divided by true CTR of the shown ads.",
    "Thompson sampling ranks by one draw of all weights for each request, at full spread; UCB adds one standard deviation. The "
    "reference knows everything but the ads, and the prior that they come from: what it gains by exploring can be gained.",
    "Intervals: 1,000 resamplings of users. They treat each model's history as fixed, although it is one of many possible ones: "
    "see 'World by world'.",
)


def write_report(out: Path, result: Mapping[str, Any]) -> None:
    """Write ab.md and report.html."""
    facts = result["provenance"]
    criterion = "eCPM" if facts["criterion"] == "ecpm" else "CTR"
    lead = (
        f"{facts['days']} days after {facts['burn_in']} of burn-in, {facts['requests_per_day']:,} requests per day shared by the "
        f"arms of a test, {facts['ads']} ads at a time, ranked by {criterion}; {facts['seeds']} world(s) "
        f"of the {facts['market']} market, from seed {facts['first_seed']} on; "
        f"arms learn from {'all' if facts['share'] else 'their own'} traffic."
    )
    parts: list[tuple[str, Sequence[str], list[list[str]]]] = []
    tests = result["tests"]
    if "tables" in tests:
        main = tests["tables"]
        parts += [
            ("Table 3: CTR lift over " + main["base"], TABLE_3, [_table_3(line) for line in main["arms"]]),
            ("Table 4: new ads' CTR lift over " + main["new_ads_base"], TABLE_4, [_table_4(line) for line in main["arms"]]),
            ("Regret and calibration", QUALITY, [_quality(line) for line in main["arms"]]),
            ("Pairwise comparisons", PAIRS, [_pair(line) for line in main["comparisons"]]),
        ]
    if "ablation" in tests:
        title = "Ablation: compared with " + tests["ablation"]["base"]
        parts.append((title, ABLATION, [_ablation(line) for line in tests["ablation"]["arms"]]))
    if "quality" in tests:
        small = tests["quality"]
        regrets = [[line["name"], *(f"{100 * world['regret']:.1f} %" for world in line["seeds"])] for line in small["arms"]]
        worlds = [f"world {facts['first_seed'] + number}" for number in range(facts["seeds"])]
        parts += [
            ("Regret and calibration", QUALITY, [_quality(line) for line in small["arms"]]),
            ("Pairwise comparisons", PAIRS, [_pair(line) for line in small["comparisons"]]),
            ("Regret, world by world", ("arm", *worlds), regrets),
        ]
    seeds = [[line["name"], *_by_seed(line)] for test in tests.values() for line in test["arms"]]
    parts.append(("World by world", WORLDS, seeds))
    text = f"# The online experiment\n\n{lead}\n"
    text += "".join(f"\n## {title}\n\n{markdown(columns, rows)}\n" for title, columns, rows in parts)
    text += "\n" + "".join(f"- {words}\n" for words in WORDS)
    (out / "ab.md").write_text(text, encoding="utf-8")
    body = tiles(_tiles(tests)) + "".join(section(title, table(columns, rows)) for title, columns, rows in parts)
    body += section("Day by day", "".join(charts(*(_curve(test, figure) for figure in CURVES)) for test in tests.values()))
    body += section("How to read the tables", "".join(f'<p class="note">{words}</p>' for words in WORDS))
    write_page(out / "report.html", page("The online experiment", lead, body))


def _table_3(line: Line) -> list[str]:
    lifts, base = line["lifts"], line["published"][0] == 0.0
    paper = "base" if base else _percent(line["published"][0])
    shown = ["base"] * 5 if base else [_lift(lifts[name]) for name in ("ctr", "true_ctr", "cpm", "value", "best")]
    return [line["name"], f"{line['impressions']:,}", _share(line["figures"]["ctr"]), shown[0], paper, *shown[1:]]


def _table_4(line: Line) -> list[str]:
    figures, lifts, published = line["figures"], line["new_lifts"], line["published"]
    base = published[1] == 0.0
    lift = [_lift(lifts["new_ctr"]), _lift(lifts["new_true_ctr"])]
    own_share = "–" if published[2] is None else f"{100 * published[2]:.2f} %"
    return [
        line["name"], _share(figures["new_ctr"]), "base" if base else lift[0], "base" if base else _percent(published[1]),
        "base" if base else lift[1], _share(figures["new_share"]), own_share,
    ]  # fmt: skip


def _quality(line: Line) -> list[str]:
    figures = line["figures"]
    return [
        line["name"], _interval(figures["regret"]), _interval(figures["new_regret"]), _number(figures["calibration"]),
        _number(figures["new_calibration"]),
    ]  # fmt: skip


def _pair(line: Line) -> list[str]:
    lifts, differences = line["lifts"], line["differences"]
    return [
        line["arm"], line["reference"], *(_lift(lifts[name]) for name in ("true_ctr", "value", "new_true_ctr")),
        *(_lift(differences[name], "") for name in ("regret", "new_regret")),
    ]  # fmt: skip


def _ablation(line: Line) -> list[str]:
    figures, lifts = line["figures"], line["lifts"]
    return [
        line["name"], _share(figures["true_ctr"]), _lift(lifts["true_ctr"]), _lift(lifts["value"]),
        _lift(line["new_lifts"]["new_true_ctr"]), _share(figures["new_share"]), _share(figures["regret"]),
        _share(figures["new_regret"]), _number(figures["calibration"]),
    ]  # fmt: skip


def _by_seed(line: Line) -> list[str]:
    return [", ".join(_percent(world[name]) for world in line["seeds"]) for name in ("true_ctr", "value", "new_true_ctr")]


def _tiles(tests: Mapping[str, Any]) -> dict[str, str]:
    if "tables" not in tests:
        return {}
    published = [line for line in tests["tables"]["arms"] if line["published"][0]]
    return {f"{line['name']}: CTR lift by the truth": _percent(line["lifts"]["true_ctr"]["value"]) for line in published}


def _curve(test: Mapping[str, Any], figure: str) -> str:
    series = []
    for line in test["arms"]:
        values = line["days"][figure]
        series.append(Series(line["name"], [float(day) for day in range(1, len(values) + 1)], values))
    return line_chart(CURVES[figure], series, "day of the test", CURVES[figure])


def _lift(estimate: Line, unit: str = " %") -> str:
    if estimate["value"] is None or estimate["low"] is None:
        return "–"
    if estimate["low"] == estimate["high"] == 0.0:
        return "base"
    value, low, high = (100 * estimate[name] for name in ("value", "low", "high"))
    return f"{value:+.1f}{unit} ({low:+.1f} to {high:+.1f})"


def _interval(estimate: Line) -> str:
    if estimate["value"] is None or estimate["low"] is None:
        return "–"
    value, low, high = (100 * estimate[name] for name in ("value", "low", "high"))
    return f"{value:.1f} % ({low:.1f} to {high:.1f})"


def _share(estimate: Line) -> str:
    return "–" if estimate["value"] is None else f"{100 * estimate['value']:.2f} %"


def _number(estimate: Line) -> str:
    return "–" if estimate["value"] is None else f"{estimate['value']:.3f}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:+.1f} %"
