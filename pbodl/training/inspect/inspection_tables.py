"""Tables for the terminal of what `inspection` returns."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from pbodl.training.display import number, plain_table

Found = Mapping[str, Any]
PAIRS = 10  # listed of those that matter most


def tables(found: Found) -> list[Table]:
    """The tables of an overview, a feature, or an explanation."""
    return SHOWN_AS[found["what"]](found)


def _overview(found: Found) -> list[Table]:
    facts = {"snapshot": found["snapshot"], "memory": f"{found['bytes'] / 2**20:,.1f} MB"}
    if found.get("features"):
        facts["memory per feature"] = f"{found['bytes'] / found['features']:.0f} bytes"
        facts["names kept"] = f"{found['names']:,}" if found["names"] else "no (train with --keep-names)"
    facts |= {name.replace("_", " "): f"{count:,}" for name, count in found["counters"].items()}
    shown = [_table(f"{found['model']} model", ["what", "value"], [[name, value] for name, value in facts.items()])]
    if "fields" in found:
        rows = [
            [one["field"], one["group"], f"{one['features']:,}", _percent(one["seen_once"]), number(one.get("variance_left"), 3)]
            for one in found["fields"]
        ]
        shown.append(_table("features by field", ["field", "group", "features", "seen once", "variance left"], rows))
    if "delays" in found:
        rows = [
            [f"{one['age']:,.0f} s", _percent(one["share"]), "yes" if one["judged"] else ""]
            for one in found["delays"]
            if one["judged"] or 0.01 < one["share"] < 0.995
        ]
        shown.append(_table("how soon clicks come", ["age of an impression", "clicks that have come", "judged then"], rows))
    if "pairs" in found:
        rows = [
            [one["pair"], f"{one['weight']:+.3f} ± {one['std']:.3f}", number(one["spread"], 4)] for one in found["pairs"][:PAIRS]
        ]
        shown.append(_table("pairs of fields that matter most", ["pair", "weight", "spread of the latent score"], rows))
    for name, title in (("most_certain", "most certain features"), ("most_uncertain", "most uncertain features")):
        if name in found:
            rows = [[one["feature"], f"{one['count']:,}", one["when"], number(one["variance_left"], 3)] for one in found[name]]
            shown.append(_table(title, ["feature", "count", "last seen", "variance left"], rows))
    return shown


def _feature(found: Found) -> list[Table]:
    left = found.get("variance_left")
    facts = [["model", found["model"]], ["key", found["key"]], ["count", f"{found['count']:,}"]]
    if found["seen"]:
        facts.append(["last seen", found["when"]])
    else:
        facts.append(["seen", "never; it has the prior's weights"])
        if found["nearest"]:
            facts.append(["similar names", ", ".join(found["nearest"])])
    if left is not None:
        facts.append(["variance left", number(left, 4)])
    for name, values in found.get("numbers", {}).items():
        facts.append([name, ", ".join(f"{value:.6g}" for value in values)])
    shown = [_table(found["feature"], ["what", "value"], facts)]
    if found["seen"] and found["parts"]:
        rows = []
        for part, values in found["parts"].items():
            for index, (m, v, prior) in enumerate(zip(values["mean"], values["variance"], values["prior_variance"], strict=True)):
                name = part if len(values["mean"]) == 1 else f"{part} {index}"
                rows.append([name, f"{m:+.5f}", f"{v**0.5:.5f}", f"{prior**0.5:.5f}", number(v / prior, 3)])
        shown.append(_table("weights", ["weight", "mean", "std", "prior std", "variance left"], rows))
    return shown


def _explanation(found: Found) -> list[Table]:
    base = found["base"]
    title = (
        f"predicted CTR {100 * found['ctr']:.3f} ± {100 * found['ctr_std']:.3f} %, latent {found['mean']:+.4f} ± {found['std']:.4f}"
    )
    features = found["features"]
    deep, counted = any("linear" in one for one in features), any("count" in one for one in features)
    columns = ["feature", "adds", "±", "CTR without it", "share of variance"]
    columns += ["linear part"] * deep + ["count", "variance left"] * counted
    rows = []
    for one in features:
        cells = [one["feature"], f"{one['contribution']:+.4f}", f"{one['std']:.4f}", _percent(one["ctr_without"], 3)]
        cells.append(_percent(one["variance_share"]))
        if deep:
            cells.append(f"{one['linear']['mean']:+.4f} ± {one['linear']['std']:.4f}")
        if counted:
            cells += [f"{one['count']:,}", number(one.get("variance_left"), 3)]
        rows.append(cells)
    blank = [""] * (len(columns) - 2)
    rows.append(["(interactions)", f"{found['interactions']:+.4f}", *blank])
    rows.append(["(no feature at all)", f"{base['mean']:+.4f}", f"{base['std']:.4f}", _percent(base["ctr"], 3), *blank[2:]])
    return [_table(title, columns, rows)]


SHOWN_AS: dict[str, Callable[[Found], list[Table]]] = {"overview": _overview, "feature": _feature, "explanation": _explanation}


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = plain_table(title, columns[0], columns[1:])
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    return table


def _percent(share: float | None, digits: int = 1) -> str:
    return "–" if share is None else f"{100 * share:.{digits}f} %"
