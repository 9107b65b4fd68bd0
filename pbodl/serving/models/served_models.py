"""The models of a server by name, and which of them answers a request that names none.

Without a split, the default model answers. With one, a hash of the request's `split_key` chooses among several models: the same key
always gets the same model, on every server and after every restart. Models in the shadow score what others were asked for; their
scores are logged, and never answered.
"""

import itertools
import re
from collections.abc import Mapping

import msgspec

from pbodl.data.hashing import hash_value
from pbodl.data.schema import nearest
from pbodl.errors import InputError
from pbodl.serving.models.predictor_source import PredictorSource

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
ONLY = "default"  # name of a server's only model
Runs = Mapping[str, str | None]  # folders by name


class TrafficPlan(msgspec.Struct, frozen=True):
    """Who answers what.

    default  name of the model that answers requests without a model's name
    split    share of these requests by model; empty: the default model gets all
    salt     text that goes into the hash; another salt deals the keys out anew
    shadow   names of models that also score the requests for rankings, for the log alone
    """

    default: str = ONLY
    split: dict[str, float] = {}
    salt: str = ""
    shadow: tuple[str, ...] = ()

    def arm_of(self, key: str | int) -> str:
        """The model of a key."""
        at = hash_value(f"split {self.salt}", key) / 2**64
        ends = itertools.accumulate(self.split.values())
        return next((name for name, end in zip(self.split, ends, strict=True) if at < end), next(reversed(self.split)))

    def check(self, names: Mapping[str, object]) -> None:
        """InputError if it names a model that is not there, or shares that are none."""
        for role, named in (("default", (self.default,)), ("split", self.split), ("shadow", self.shadow)):
            for name in named:
                if name not in names:
                    raise InputError(f"{role} names the model {name!r}{nearest(name, names)}; the models are: {', '.join(names)}")
        wrong = {name: share for name, share in self.split.items() if not 0.0 < share <= 1.0}
        if wrong or (self.split and abs(sum(self.split.values()) - 1.0) > 1e-9):
            raise InputError(f"the shares of the split are {self.split}; each must be above 0, and together they must be 1")


def check_name(name: str) -> None:
    """InputError unless a name can stand in a path."""
    if not NAME.fullmatch(name):
        raise InputError(f"a model is named {name!r}; a name has up to 64 letters, digits, dots, dashes and underscores")


class ServedModels:
    """The models of a worker. Both attributes are replaced as a whole, never changed: requests read them at any moment."""

    def __init__(
        self,
        sources: Mapping[str, PredictorSource],
        traffic: TrafficPlan | None = None,
        runs: Mapping[str, str | None] | None = None,
    ) -> None:
        self.sources, self.runs = dict(sources), dict(runs or {})
        self.traffic = traffic or TrafficPlan(next(iter(self.sources), ONLY))

    @classmethod
    def only(cls, source: PredictorSource, run: str | None) -> "ServedModels":
        """The models of a server of one run."""
        return cls({ONLY: source}, TrafficPlan(), {ONLY: run})

    @property
    def several(self) -> bool:
        return len(self.sources) > 1 or ONLY not in self.sources

    @property
    def default(self) -> PredictorSource | None:
        return self.sources.get(self.traffic.default)
