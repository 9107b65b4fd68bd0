"""`pbodl evaluate --policy`: the value that a policy with a model would have had, from a log of decisions by another one."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from pbodl.data.features.positions import reference_positions
from pbodl.errors import InputError
from pbodl.experiments.decisions.decision_reader import DecisionReader, LoggedRequest
from pbodl.experiments.decisions.off_policy import (
    ESTIMATORS,
    LoggedRows,
    effective_size,
    logged_value,
    support_warnings,
)
from pbodl.models.contract import Model
from pbodl.serving.models.follower import Version
from pbodl.serving.ranking.policies import RankPolicy, described
from pbodl.serving.ranking.propensities import placements
from pbodl.serving.scoring.predictor import Predictor
from pbodl.serving.scoring.whole_predictor import predictor_of
from pbodl.training.display import plain_table

REWARDS = ("click", "bid")
CERTAIN = ("greedy", "ucb")  # policies that show one ranking and no other
TITLES = {"logged": "logged policy", "ips": "new policy, IPS", "snips": "new policy, SNIPS", "dr": "new policy, doubly robust"}


class LoggedPolicy:
    """Collects the impressions of a log, as a policy with a model sees them.

    reward  "click": a click is worth 1; "bid": the bid of what was clicked
    draws   draws of the weights for each request, where the new policy's probabilities are counted
    """

    def __init__(self, model: Model, policy: RankPolicy, reward: str = "click", draws: int = 200, seed: int = 0) -> None:
        if reward not in REWARDS:
            raise InputError(f"there is no reward {reward!r}; give one of: {', '.join(REWARDS)}")
        self._predictor: Predictor = predictor_of(Version.of(model))
        self._policy, self._reward, self._draws = policy, reward, draws
        self._luck = np.random.default_rng(seed)
        self._positions = reference_positions(model.schema)
        self._columns: list[tuple[float, ...]] = []
        self._unsupported: list[float] = []
        self.requests = 0

    def add(self, request: LoggedRequest) -> None:
        """Add all impressions of a request."""
        encoder, values = self._predictor.encoder, request.values
        if self._reward == "bid" and request.bids is None:
            raise InputError(f"request {request.name!r} was logged without bids; evaluate it with --reward click")
        bids = None if request.bids is None else np.array(request.bids, np.float64)
        given = {name: values.get(name) for name in encoder.shared_names if name not in self._positions}
        own = encoder.encode_own([tuple(candidate.get(name) for name in encoder.own_columns) for candidate in request.candidates])
        slots = len(request.shown)
        shared = encoder.encode_shared(given)
        chance, scores = placements(self._predictor, shared, own, bids, slots, self._policy, self._draws, self._luck)
        worth = bids if self._reward == "bid" and bids is not None else np.ones(len(request.candidates))
        for shown in request.shown:
            ctr = scores.ctr
            if self._positions and shown.slot:
                here = {name: first + shown.slot for name, first in self._positions.items()}
                ctr = self._predictor.score_encoded(encoder.encode_shared(given | here), own).ctr
            target, predicted = chance[:, shown.slot], worth * ctr
            mine = shown.candidate
            reward, expected = float(shown.click) * worth[mine], float(target @ predicted)
            self._columns.append((reward, shown.propensity, target[mine], predicted[mine], expected, self.requests, shown.slot))
            certain = request.policy in CERTAIN or shown.about.get("epsilon") == 0.0 or shown.about.get("spread") == 0.0
            self._unsupported.append(1.0 - float(target[mine]) if certain else 0.0)
        self.requests += 1

    def rows(self) -> tuple[LoggedRows, NDArray[np.float64]]:
        """The impressions, and for each the probability that the new policy shows what the log cannot hold."""
        columns = np.array(self._columns, np.float64).reshape(-1, 7).T
        whole = columns[5:].astype(np.int64)
        return LoggedRows(*columns[:5], *whole), np.array(self._unsupported)


def policy_value(
    model: Model, policy: RankPolicy, paths: Sequence[str], reward: str = "click", draws: int = 200, seed: int = 0,
    progress: Callable[[int], None] = lambda requests: None,
) -> dict[str, Any]:  # fmt: skip
    """The value of a policy with a model on a log of decisions: estimates with intervals, and warnings."""
    reader, collected = DecisionReader(paths), LoggedPolicy(model, policy, reward, draws, seed)
    for request in reader.requests():
        collected.add(request)
        progress(collected.requests)
    if collected.requests < 2:
        raise InputError(
            f"the log holds {collected.requests} whole decisions of /v1/rank; it takes two or more. `pbodl serve --log-decisions`"
            " writes them"
        )
    rows, unsupported = collected.rows()
    estimates = {"logged": logged_value(rows)} | {name: estimator(rows) for name, estimator in ESTIMATORS.items()}
    return {
        "model": model.kind, **described(policy), "reward": reward, "requests": rows.requests, "impressions": len(rows.reward),
        "values": {
            name: {"value": one.value, "error": one.error, "interval": [one.low, one.high]} for name, one in estimates.items()
        },
        "effective_sample_size": effective_size(rows.weight), "mean_weight": float(rows.weight.mean()),
        "largest_weight": float(rows.weight.max()), "unsupported": float(unsupported.mean()),
        "other_lines": reader.counts.other, "incomplete_requests": reader.counts.incomplete,
        "warnings": support_warnings(rows, unsupported),
    }  # fmt: skip


def value_tables(found: dict[str, Any]) -> list[Table]:
    """The estimates, and what they rest on."""
    what = "clicks" if found["reward"] == "click" else "bids of clicks"
    title = f"{found['policy']} with {found['model']}: {what} per request, {found['requests']:,} requests"
    table = plain_table(title, "value of", ("estimate", "95 % interval"))
    for name, label in TITLES.items():
        one = found["values"][name]
        low, high = one["interval"]
        table.add_row(label, f"{one['value']:.5f}", f"{low:.5f} – {high:.5f}")
    about = plain_table("weights", "figure", ("value",))
    about.add_row("effective sample size, impressions", f"{found['effective_sample_size']:,.0f} of {found['impressions']:,}")
    about.add_row("mean (1 with full support)", f"{found['mean_weight']:.4f}")
    about.add_row("largest", f"{found['largest_weight']:.1f}")
    return [table, about]
