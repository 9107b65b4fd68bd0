"""A request for a ranking, from its body to the answer and the log.

It is done in steps. The first one decides; the others count propensities in draws of the weights, a few milliseconds at a time, so
that requests for scores are answered in between.
"""

import uuid
from typing import Any

import numpy as np

from pbodl.errors import InputError
from pbodl.serving.ranking.decision_events import Decided, name_in_the_way
from pbodl.serving.ranking.policies import exact_placements, rank
from pbodl.serving.ranking.propensities import PlacementCount, counted_in_draws
from pbodl.serving.ranking.rank_messages import RankAsked, answer_of, rank_wire_of, write_ranking
from pbodl.serving.scoring.predictor import Predictor
from pbodl.serving.web.http_messages import RequestError, invalid

STEP = 0.005  # seconds of counting at a time
_FRESH = np.random.default_rng()  # for propensities; never for decisions


class Deciding:
    """One request under way.

    more    what the log says about the model: its name and the split, where a server has several
    logged  whether the decision goes into a log
    """

    def __init__(
        self, predictor: Predictor, body: bytes, content_type: str, candidates: int, more: dict[str, Any], logged: bool
    ) -> None:
        self.predictor, self._content_type, self._more = predictor, content_type, more
        schema = predictor.schema
        if logged and (name := name_in_the_way(schema)) is not None:
            message = f"the model has a column {name!r}, which the log of decisions uses itself; rename the column and train again"
            raise RequestError(422, "invalid", message)
        self.asked: RankAsked = rank_wire_of(schema).read(body, content_type, candidates)
        asked, encoder = self.asked, predictor.encoder
        shared = {name: value for name, value in (asked.user | asked.context).items() if name not in encoder.positions}
        try:
            self.shared, self.own = encoder.encode_shared(shared), encoder.encode_own(asked.candidates)
        except InputError as error:
            raise invalid(error) from None

    def decided(self) -> "Deciding":
        """Decide, and return this."""
        asked, predictor = self.asked, self.predictor
        self._ranking = rank(predictor, self.shared, self.own, asked.bids, asked.slots, asked.policy)
        self._count: PlacementCount | None = None
        if asked.policy.is_drawn and asked.candidates:
            self._count = counted_in_draws(
                predictor, self.shared, self.own, self._ranking.scores, asked.bids, asked.slots, asked.policy, asked.draws, _FRESH,
                self._ranking.placed,
            )  # fmt: skip
        return self

    @property
    def name(self) -> str | None:
        """Of the model, where there are several."""
        return self._more.get("name")

    @property
    def candidates(self) -> int:
        return len(self.asked.candidates)

    @property
    def ctr_sum(self) -> float:
        return float(self._ranking.scores.ctr.sum())

    @property
    def counts(self) -> bool:
        """Whether propensities are counted in draws."""
        return self._count is not None

    def step(self) -> bool:
        """Count for a few milliseconds; returns whether nothing is left to count."""
        return self._count is None or self._count.step(STEP)

    def finish(self) -> tuple[bytes, Decided]:
        """The answer, and the decision for the log."""
        asked, ranking, draws = self.asked, self._ranking, 0
        if self._count is not None:
            draws, (propensity, error) = asked.draws, self._count.propensity()
        else:
            kept = self.predictor.version.model.negative_rate
            all_placements = exact_placements(ranking.scores, asked.bids, asked.slots, asked.policy, kept)
            propensity, error = all_placements[ranking.placed, np.arange(len(ranking.placed))], None
        request_id, version = asked.request_id or uuid.uuid4().hex, self.predictor.version.number
        answer = answer_of(version, request_id, asked.policy, ranking, propensity, error, draws, self._more.get("name", ""))
        decided = Decided(self.predictor.schema, version, request_id, asked, ranking, propensity, error, draws, self._more, {})
        return write_ranking(answer, self._content_type), decided
