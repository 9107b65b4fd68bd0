"""The arms of the online experiment: their models, update intervals and policies.

There are two tests, each over all users. The first has the arms of the paper's Tables 3 and 4, ours, and an A/A pair; the second is
an ablation of one model. `python -m pbodl.experiments.ab.ab_tuning` chose the settings of all models in other worlds. A third test,
in the small market where quality decides, shows what exploring gains, beside the reference agent.
"""

from typing import Any, NamedTuple

import msgspec

import pbodl.baselines  # noqa: F401, registers its models in Model.kinds
from pbodl.experiments.ab.ad_features import SCHEMA
from pbodl.models.contract import Model

REFERENCE = "reference"  # the kind of an arm that is no model (`reference_agent`)
MINUTES, HOURS = 60.0, 3600.0

_DEEP: dict[str, Any] = {
    "dim": 16, "hidden": (32,), "initial_spread": 0.1, "adapt_prior": False,
    "prior": {"linear": 0.015, "embedding": 0.2, "dense": 0.05},
}  # fmt: skip
# The tuned settings by kind.
TUNED: dict[str, dict[str, Any]] = {
    "fm-batch": {"learning_rate": 0.05, "l2": 0.004, "dim": 16, "max_epochs": 15},
    # Fitted 42 times a week: to the last two and a half days of an arm's traffic, and by a network of half the size of the best.
    "dnn-batch": {
        "learning_rate": 0.03, "l2": 0.001, "dim": 16, "hidden": (64, 32), "initial_spread": 0.2, "max_epochs": 4,
        "window": "60k rows",
    },
    "fm-mlp": _DEEP,
    "ffm-mlp": _DEEP,
    "pair-fm": {},
    "ftrl": {"alpha": 0.1, "l2": 0.0, "beta": 1.0, "l1": 0.0},
}  # fmt: skip
# Passes of a kind over the burn-in log, in which each row has the weight 1/passes. Batch models choose their epochs themselves.
PASSES = {"fm-mlp": 4, "ffm-mlp": 4}


class Arm(NamedTuple):
    """An arm: its changes to the tuned settings of its kind, the seconds between two updates, and the policy."""

    name: str
    kind: str
    every: float
    policy: str = "greedy"
    spread: float = 1.0  # share of the model's standard deviation that exploration uses
    changes: tuple[tuple[str, Any], ...] = ()
    keep: float = 0.0  # seconds for which a user keeps a draw (`explore_key`); 0: a draw for each request
    published: tuple[float | None, float | None, float | None] = (None, None, None)  # Table 3's lift, Table 4's lift and share

    def build(self, seed: int) -> Model:
        kind = Model.kinds[self.kind]
        settings = {**TUNED[self.kind], **dict(self.changes)}
        if "seed" in kind.Spec.__struct_fields__:
            settings["seed"] = seed
        return kind.from_spec(SCHEMA, msgspec.convert(settings, kind.Spec))


class ABTest(NamedTuple):
    """Arms that share the users; each is compared with the first one, and on new ads with `new_ads_base`."""

    name: str
    arms: tuple[Arm, ...]
    new_ads_base: int
    pairs: tuple[tuple[int, int], ...]  # other comparisons of interest: arm, reference


TABLES = ABTest(
    "tables",
    (
        Arm("FM (batch, 24 h)", "fm-batch", 24 * HOURS, published=(0.0, None, None)),
        Arm("DNN (batch, 4 h)", "dnn-batch", 4 * HOURS, published=(0.022, 0.0, 0.1186)),
        Arm("FM-MLP (online, 15 min)", "fm-mlp", 15 * MINUTES, published=(0.041, 0.227, 0.1672)),
        Arm("FFM-MLP (online, 15 min)", "ffm-mlp", 15 * MINUTES, published=(0.056, 0.256, 0.1702)),
        Arm("FM-MLP once more (A/A)", "fm-mlp", 15 * MINUTES),
        Arm("PairFM (online, 15 min)", "pair-fm", 15 * MINUTES),
        Arm("PairFM, Thompson (15 min)", "pair-fm", 15 * MINUTES, "thompson"),
        Arm("reference, greedy (1 h)", REFERENCE, 1 * HOURS),
        Arm("reference, Thompson (1 h)", REFERENCE, 1 * HOURS, "thompson"),
    ),
    new_ads_base=1,
    pairs=((4, 2), (2, 1), (3, 1), (5, 1), (6, 1), (6, 5), (8, 7)),
)
ABLATION = ABTest(
    "ablation",
    (
        Arm("PairFM, 15 min", "pair-fm", 15 * MINUTES),
        Arm("1 min", "pair-fm", 1 * MINUTES),
        Arm("4 h", "pair-fm", 4 * HOURS),
        Arm("24 h", "pair-fm", 24 * HOURS),
        Arm("Thompson, a draw kept for an hour", "pair-fm", 15 * MINUTES, "thompson", keep=1 * HOURS),
        Arm("UCB", "pair-fm", 15 * MINUTES, "ucb"),
        Arm("FM-MLP, Thompson", "fm-mlp", 15 * MINUTES, "thompson"),
        Arm("variance decay (7 days)", "pair-fm", 15 * MINUTES, changes=(("half_life", "7d"),)),
        Arm("FTRL", "ftrl", 15 * MINUTES),
    ),
    new_ads_base=0,
    pairs=(),
)
QUALITY = ABTest(
    "quality",
    (
        Arm("PairFM, greedy", "pair-fm", 15 * MINUTES),
        Arm("PairFM, Thompson", "pair-fm", 15 * MINUTES, "thompson"),
        Arm("reference, greedy", REFERENCE, 15 * MINUTES),
        Arm("reference, Thompson", REFERENCE, 15 * MINUTES, "thompson"),
    ),
    new_ads_base=0,
    pairs=((1, 0), (3, 2), (1, 3)),
)
TESTS = {"standard": (TABLES, ABLATION), "quality": (QUALITY,)}  # by market
