"""The models of Table 1, their settings, and the paper's figures."""

from typing import Any, NamedTuple

PAPER: dict[str, Any] = {"paper": True}


class Table1Entry(NamedTuple):
    """A row of the table."""

    name: str
    kind: str
    model: dict[str, Any]  # the [model] table without the kind
    tuned: tuple[str, ...] | None  # keys that may be tuned; None: all that the kind has
    published: tuple[float, float] | None  # AUC and log loss in the paper

    @property
    def label(self) -> str:
        """The name in file names."""
        return self.name.lower().replace(" ", "-").replace("(", "").replace(")", "")


# As published: settings that the paper fixes (priors, no linear term) stay; only what it leaves open is tuned.
LEFT_OPEN = ("model.dim", "training.half_life")
TABLE_1 = (
    Table1Entry("AdPredictor", "adpredictor", {}, None, (0.7375, 0.4019)),
    Table1Entry("FTRL", "ftrl", {}, None, (0.7357, 0.4030)),
    Table1Entry("MatchBox", "matchbox", {}, None, (0.7426, 0.4001)),
    Table1Entry("Sparse-MLP (paper)", "sparse-mlp", PAPER, LEFT_OPEN, (0.7489, 0.3987)),
    Table1Entry("FM-MLP (paper)", "fm-mlp", PAPER, LEFT_OPEN, (0.7489, 0.3972)),
    Table1Entry("FFM-MLP (paper)", "ffm-mlp", PAPER, LEFT_OPEN, (0.7498, 0.3981)),
    Table1Entry("Sparse-MLP", "sparse-mlp", {}, None, None),
    Table1Entry("FM-MLP", "fm-mlp", {}, None, None),
    Table1Entry("FFM-MLP", "ffm-mlp", {}, None, None),
    Table1Entry("PairFM", "pair-fm", {}, None, None),
)
