"""`model.report()`: the report of a model, as a page that a notebook shows.

A model of `pbodl.train`, or of a run folder, has the report of its training: learning curves, calibration, figures by period. Below
it, and alone for other models, stands what the model holds: its features by field, and the pairs of fields that matter most.
"""

from html import escape
from pathlib import Path
from typing import Any

from pbodl.models.contract import Model
from pbodl.models.pair_fm import PairFM
from pbodl.training.display import number
from pbodl.training.inspect.feature_weights import weights_of
from pbodl.training.inspect.inspection import field_line
from pbodl.training.inspect.pairs_of_fields import pairs_by_spread
from pbodl.training.report.chart_data import bar_chart
from pbodl.training.report.page import charts, page, section, table, tiles, write_page

PAIRS = 12
BARS = 5  # of them in the chart, where names are long
HEIGHT = 720  # pixels of the frame in a notebook


class ModelReport:
    """A page about a model: a notebook shows it, and `save` writes it to a file."""

    def __init__(self, html: str, about: str) -> None:
        self.html, self._about = html, about

    def save(self, path: str | Path) -> Path:
        """Write the page; it opens offline."""
        return write_page(Path(path), self.html)

    def _repr_html_(self) -> str:
        # A frame keeps the styles and the script of the page apart from those of the notebook.
        return f'<iframe srcdoc="{escape(self.html)}" style="width:100%;height:{HEIGHT}px;border:0"></iframe>'

    def __repr__(self) -> str:
        return f"report of {self._about}; a notebook shows it, report.save('report.html') writes it"


def report(model: Model) -> ModelReport:
    """The report of a model; `Model.report` calls this."""
    html = model.page
    if html is None and model.run is not None and (model.run / "report.html").exists():
        html = (model.run / "report.html").read_text(encoding="utf-8")
    inside = _inside(model)
    if html is None:
        lead = "This model was not trained by pbodl.train, so there are no curves."
        html = page(f"{model.kind}", lead, tiles(_sizes(model)) + inside)
    else:
        html = html.replace("</main>", f"{inside}</main>")
    return ModelReport(html, repr(model))


def _sizes(model: Model) -> dict[str, str]:
    return {name.replace("_", " "): f"{count:,}" for name, count in model.metrics().items()}


def _inside(model: Model) -> str:
    """What the model holds."""
    weights = weights_of(model)
    if weights is None:
        return ""
    lines: list[dict[str, Any]] = [field_line(model, weights, index) for index in range(len(model.schema.fields))]
    rows = [
        [
            line["field"],
            line["group"],
            f"{line['features']:,}",
            _share(line["seen_once"]),
        ]
        for line in lines
    ]
    body = section("Features by field", table(("field", "group", "features", "seen once"), rows))
    if isinstance(model, PairFM) and len(model.schema.fields) > 1:
        pairs = pairs_by_spread(model)[:PAIRS]
        chart = bar_chart(
            "Pairs of fields that matter most", [pair["pair"] for pair in pairs[:BARS]],
            {model.kind: [pair["spread"] for pair in pairs[:BARS]]},
            "pair of fields", "spread of the latent score", digits=3,
        )  # fmt: skip
        cells = [[pair["pair"], f"{pair['weight']:+.3f} ± {pair['std']:.3f}", number(pair["spread"], 4)] for pair in pairs]
        body += section("Pairs of fields", charts(chart) + table(("pair", "weight", "spread of the latent score"), cells))
    return body


def _share(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f} %"
