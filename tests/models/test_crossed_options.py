"""Every pair of documented options that touch learning: thirty short days, after which deviation and error are of one size.

The truth is known (`World`). Options of `PairFM` are crossed in `test_honest_variance`; here those of a network, and what lies
outside the model: threads and how they merge, numbers, lists.
"""

import itertools
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

import pbodl
from pbodl.data.batch import Batch
from pbodl.data.convert import from_data
from pbodl.data.synthetic import World
from pbodl.experiments.uncertainty.honesty import latent
from pbodl.parallel.threads.learning_threads import Threads
from tests.models.test_honest_variance import OPTIONS as OF_ALL_MODELS
from tests.models.test_honest_variance import honesty

pytestmark = pytest.mark.slow
SEED, ROWS, DAYS = 405, 70_000, 30
OPTIONS: dict[str, dict[str, Any]] = {
    **OF_ALL_MODELS,
    "shortcut": {"shortcut": True},
    "one layer": {"hidden": (32,)},
    "no layer": {"hidden": ()},
    "workers": {"workers": 2, "merge": "add"},
    "merge": {"workers": 2, "merge": "shared"},
    "numbers": {"numbers": ("C15", "C16")},
    "lists": {"lists": ("site_category", "app_category")},
}
# "No layer" is what hidden=() says, whatever "one layer" said; it has nothing that a shortcut could pass by.
SENSELESS = {("one layer", "no layer"), ("shortcut", "no layer"), ("workers", "merge"), ("half_life", "decay_mean")}
PAIRS = [pair for pair in itertools.combinations(OPTIONS, 2) if pair not in SENSELESS]


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return pa.Table.from_batches(World(seed=SEED, rows=ROWS, days=DAYS).batches()).unify_dictionaries()


def as_asked(table: pa.Table, numbers: tuple[str, ...], lists: tuple[str, ...]) -> tuple[pbodl.Schema, Batch]:
    """The log with some columns as numbers, and some as one list."""
    schema = World(seed=SEED, rows=ROWS, days=DAYS).schema
    fields = [field for field in schema.fields if field.name not in lists]
    fields = [pbodl.Field(field.name, group=field.group, kind="number") if field.name in numbers else field for field in fields]
    for name in numbers:
        values = np.array(table[name].to_pylist(), np.float64)
        table = table.set_column(table.column_names.index(name), name, pa.array(values))
    if lists:
        fields.append(pbodl.Field("some", group="context", kind="multi"))
        table = table.append_column("some", pa.array(zip(*(table[name].to_pylist() for name in lists), strict=True)))
    schema = msgspec.structs.replace(schema, fields=tuple(fields))
    return schema, from_data(schema, table, True)


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_options_in_pairs_leave_the_deviation_and_the_error_of_one_size(one, other, table):
    asked = {**OPTIONS[one], **OPTIONS[other]}
    workers, merge = asked.pop("workers", 1), asked.pop("merge", "add")
    schema, batch = as_asked(table, asked.pop("numbers", ()), asked.pop("lists", ()))
    model = pbodl.FMMLP(schema, **asked)
    if workers > 1:
        model.learn_with(Threads(workers, merge, in_turns=True))
    found = honesty(model, batch, latent(table["p_true"].to_numpy()))
    assert 1 / 1.8 < found["deviation"] / found["error"] < 1.8  # the narrowest, with decayed means: 0.30 for 0.52
    assert found["error"] < 0.8
