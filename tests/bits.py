"""The bits of every kind of model, as one short text each: what machines that never met are compared by.

    python -m tests.bits [KIND]...

A log of 12,000 rows with numbers, lists and weights is learned in uneven slices; then rows are predicted all at once and one by
one, drawn, and scored as candidates of requests. Dimensions and layers are odd, so that every loop has a remainder.
"""

import hashlib
import json
import sys
from typing import Any

import numpy as np

import pbodl
from pbodl.models.contract import Model
from pbodl.models.deep_probit import DeepProbit
from pbodl.serving.scoring.predictor import Predictor

ROWS, SLICE = 12_000, 1_717
SCHEMA = pbodl.Schema(
    label="click",
    time="time",
    weight="weight",
    fields=[
        pbodl.Field("user", group="user"),
        pbodl.Field("site"),
        pbodl.Field("words", kind="multi"),
        pbodl.Field("price", kind="number", group="ad"),
        pbodl.Field("ad", group="ad"),
    ],
)
LAYERS = {"hidden": (9, 37), "dim": 5}
# What is not the default; the kinds that JAX trains have bits of their processor, and are no part of this.
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "pair-fm": [{}, {"dim": 3}, {"dim": 7, "half_life": "4k rows"}],
    "fm-mlp": [{}, {**LAYERS, "half_life": "4k rows"}],
    "ffm-mlp": [{"hidden": (50,), "dim": 3}],
    "deep-probit": [{"hidden": (37, 9), "dim": 7}],
    "sparse-mlp": [LAYERS],
    "adpredictor": [{}],
    "ftrl": [{}],
    "matchbox": [{"dim": 7}],
}


def log() -> dict[str, list[Any]]:
    """Columns of a log, the same on every machine: whole numbers decide, and no random generator or logarithm takes part."""
    state = np.uint64(7)

    def numbers(below: int, n: int = ROWS) -> np.ndarray:
        nonlocal state
        state += np.uint64(1)
        mixed = (np.arange(n, dtype=np.uint64) + state * np.uint64(1 << 32)) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
        return ((mixed ^ (mixed >> np.uint64(32))) % np.uint64(below)).astype(np.int64)

    user, site, ad = numbers(900), numbers(23), numbers(150)
    chance = (user % 5 + 3 * (site % 3 == ad % 3) + (ad % 7 == 0) * 4) * 5
    return {
        "user": [f"u{n}" for n in user],
        "site": [f"s{n}" for n in site],
        "words": [[f"w{n % 90}" for n in range(first, first + first % 6)] for first in numbers(400).tolist()],
        "price": ((numbers(4000) + 1) / 64).tolist(),
        "ad": [f"a{n}" for n in ad],
        "time": (1.7e9 + np.arange(ROWS) * 7.0).tolist(),
        "weight": (1.0 + (numbers(10) == 0) * numbers(3)).tolist(),
        "click": (numbers(100) < chance).astype(int).tolist(),
    }


def bits(kind: str, options: dict[str, Any], columns: dict[str, list[Any]]) -> str:
    """The fingerprint of one model: its state, predictions, draws, and scores of candidates."""
    total = hashlib.blake2b(digest_size=8)

    def add(*arrays: Any) -> None:
        for array in arrays:
            total.update(np.ascontiguousarray(array).tobytes())

    known = Model.kinds[kind]
    model = known.from_spec(SCHEMA, known.Spec(**options))
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    for start in range(0, ROWS, SLICE):
        add(model.learn(rows[start : start + SLICE]))
    state = model.state()
    for name in sorted(state):
        add(state[name])
    last = rows[-777:]
    add(*model.predict(last), model.predict(last).std, *(model.predict(row).ctr for row in last[:9]))
    if kind != "ftrl":
        add(model.sample(last[:99], 5))
    if isinstance(model, DeepProbit):
        predictor = Predictor.of(model)
        shared = {"user": "u3", "site": "s1", "words": ["w1", "w2"]}
        candidates = [{"ad": row["ad"], "price": row["price"]} for row in last[:101]]
        add(*predictor.score(shared, {}, candidates))
    return total.hexdigest()


def main(kinds: list[str]) -> None:
    columns = log()
    print(json.dumps({kind: [bits(kind, options, columns) for options in OPTIONS[kind]] for kind in kinds or OPTIONS}))


if __name__ == "__main__":
    main(sys.argv[1:])
