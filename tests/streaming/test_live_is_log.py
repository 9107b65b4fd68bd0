"""A live model is the model of its log: small versions of `benchmarks.online_is_offline`."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.late_streams import Case, Impressions, changed, fast_world, score
from benchmarks.online_is_offline import CASES, offline, online, settings

KINDS = ("pair-fm", "fm-mlp", "adpredictor")


@pytest.fixture(scope="module")
def world() -> Impressions:
    return fast_world(5, 60_000)


def compared(world: Impressions, kind: str, case: Case) -> tuple[float, float]:
    """Held-out loss of the live model over that of its log, and its level over theirs."""
    made = changed(world, case, 5)
    config = settings(made, kind, case)
    log, live = score(offline(config, made)[0], made), score(online(config, made, case, 5).model, made)
    return live.loss - log.loss, live.level / log.level


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["soon", "late17", "outage", "restarts", "window-1h-late17", "ahead", "falls", "rate-.3"])
def test_the_live_model_is_that_of_the_log(world: Impressions, kind: str, name: str) -> None:
    """A fourth of the rows of the benchmark: twice its tolerance."""
    loss, level = compared(world, kind, CASES[name])
    assert loss < 0.004 and abs(level - 1.0) < 0.1, (loss, level)


@pytest.mark.parametrize("name", ["late17", "outage"])
def test_late_clicks_and_an_outage_leave_a_model_as_its_log_does(world: Impressions, name: str) -> None:
    loss, level = compared(world, "pair-fm", CASES[name])
    assert loss < 0.004 and abs(level - 1.0) < 0.1, (loss, level)
    assert np.isfinite(loss)


def test_a_run_that_ends_and_continues_is_bit_for_bit_one_that_never_stopped(tmp_path: Path) -> None:
    small = fast_world(6, 8000, hours=8.0)
    case = CASES["late8"]
    config = settings(small, "pair-fm", case)
    ref, comp = (online(config, small, one, 6) for one in (case, case._replace(restart=0.5)))
    for name, array in ref.model.state().items():
        np.testing.assert_array_equal(comp.model.state()[name], array, err_msg=name)
    assert comp.metrics() == ref.metrics()
