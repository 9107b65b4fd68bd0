"""Compile the large kernels before the suite, each once: its processes would compile them at the same time.

    python -m tests.compile_ahead KIND

What is missing here is compiled by the first test that needs it.
"""

import sys

import numpy as np

from pbodl.commands.warmup_command import SCHEMA
from pbodl.models.contract import Model
from pbodl.serving.models.predictor_source import ready
from pbodl.serving.scoring.predictor import Predictor

ROWS = 64


def compile_ahead(kind: str) -> None:
    """All that a model of this kind needs, without forgetting and with it: compiled code contains one of the two."""
    known = Model.kinds[kind]
    rows = [{"user": n % 7, "site": n % 3, "ad": n % 5, "time": float(n), "click": int(n % 5 == n % 7)} for n in range(ROWS)]
    for half_life in (None, "1d"):
        model = known.from_spec(SCHEMA, known.Spec(half_life=half_life))
        model.learn(rows)
        assert np.isfinite(model.predict(rows).ctr).all()
        model.sample(rows, 1)
        ready(Predictor.of(model))


if __name__ == "__main__":
    compile_ahead(sys.argv[1])
