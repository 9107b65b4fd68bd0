"""A centred network leaves the level of the clicks to the linear term: frozen, it is nearer to the truth at other hours."""

import numpy as np
import pyarrow as pa
import pytest

import pbodl
from pbodl.data.batch import from_data
from pbodl.data.synthetic import World
from tests.click_log import PLAIN, click_log

PARTS = 6  # of a day


@pytest.mark.parametrize("seed", [1, 2])
def test_frozen_for_a_day_it_stays_nearer_to_the_truth(seed):
    world = World(rows=120_000, days=4, seed=seed)
    log = pa.Table.from_batches(list(world.batches()))
    batch, true = from_data(world.schema, log, labelled=True), log["p_true"].to_numpy()
    last = np.flatnonzero(batch.times >= 86400 * np.floor(batch.times[-1] / 86400))
    part = batch.times[last] % 86400 // (86400 // PARTS)
    off = {}
    for centred in (True, False):
        model = pbodl.FMMLP(world.schema, centred=centred)
        model.learn(batch.rows(0, last[0]))
        ctr = model.predict(batch.rows(last[0], len(batch))).ctr
        ratio = [ctr[part == n].mean() / true[last][part == n].mean() for n in range(PARTS)]
        off[centred] = np.abs(np.log(ratio)).mean()
    assert off[True] < 0.9 * off[False]


@pytest.mark.parametrize("options", [{"centred": False}, {"linear": False}, {"hidden": ()}, {"paper": True}])
def test_it_needs_a_linear_term_and_hidden_layers(options):
    model = pbodl.FMMLP(PLAIN, **{"dim": 2, "hidden": (3,), **options})
    model.learn(click_log(50))
    assert model.state()["level"] == 0.0


def test_the_level_is_part_of_the_state():
    ref, comp = (pbodl.FMMLP(PLAIN, dim=2, hidden=(3,)) for _ in range(2))
    ref.learn(click_log(50))
    assert ref.state()["level"] != 0.0
    comp.load_state(ref.state())
    assert comp.state()["level"] == ref.state()["level"]
