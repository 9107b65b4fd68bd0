"""Live figures are those of scikit-learn on the same rows, and go on exactly after a stop."""

import numpy as np
import pytest
from sklearn.metrics import log_loss, roc_auc_score

from pbodl.data.convert import from_data
from pbodl.data.schema import Field, Schema
from pbodl.streaming.live_figures import LiveFigures

SCHEMA = Schema(label="click", time="time", fields=[Field("ad", group="ad")])
DAY = 86400
RNG = np.random.default_rng(4)
TIMES = np.sort(RNG.integers(0, 4 * DAY, 3000))
# Every day brings ads of its own.
ADS = TIMES // DAY * 3 + RNG.integers(0, 3, 3000)
PREDICTED = RNG.uniform(0.02, 0.9, 3000)
CLICKS = (RNG.random(3000) < PREDICTED).astype(int)
FIRST_SEEN = {ad: time for ad, time in reversed(list(zip(ADS.tolist(), TIMES.tolist(), strict=True)))}
AGES = TIMES - np.array([FIRST_SEEN[ad] for ad in ADS.tolist()])
NEW = (TIMES - TIMES[0] >= DAY) & (AGES < DAY)


def feed(figures: LiveFigures, start: int, stop: int, step: int = 250) -> None:
    for first in range(start, stop, step):
        rows = range(first, min(first + step, stop))
        samples = [{"ad": int(ADS[i]), "time": int(TIMES[i]), "click": int(CLICKS[i])} for i in rows]
        figures.add(from_data(SCHEMA, samples, labelled=True), PREDICTED[rows])


def check(comp: dict, mine: np.ndarray) -> None:
    assert comp["rows"] == mine.sum()
    assert comp["auc"] == pytest.approx(roc_auc_score(CLICKS[mine], PREDICTED[mine]), abs=1e-6)
    assert comp["log_loss"] == pytest.approx(log_loss(CLICKS[mine], PREDICTED[mine]), abs=1e-6)
    assert comp["calibration"] == pytest.approx(PREDICTED[mine].sum() / CLICKS[mine].sum(), abs=1e-6)


@pytest.mark.parametrize("window", [700, 1000, 10_000])
def test_figures_of_all_rows_of_the_last_and_of_new_ads(window):
    figures = LiveFigures(SCHEMA, window)
    feed(figures, 0, 3000)
    comp = figures.figures()
    everything, last = np.ones(3000, bool), np.arange(3000) >= 3000 - window
    for name, mine in (("progressive", everything), ("window", last)):
        check(comp[name], mine)
        check(comp[name]["new_ads"], mine & NEW)


def test_nothing_yet_is_none_not_a_number():
    comp = LiveFigures(SCHEMA).figures()
    assert comp["window"]["rows"] == 0 and comp["window"]["auc"] is None and comp["progressive"]["new_ads"]["log_loss"] is None


def test_saved_and_loaded_is_never_stopped():
    ref = LiveFigures(SCHEMA, 900)
    feed(ref, 0, 3000)
    first, comp = LiveFigures(SCHEMA, 900), LiveFigures(SCHEMA, 900)
    feed(first, 0, 1750)
    comp.load_state(first.state())
    feed(comp, 1750, 3000)
    assert comp.figures() == ref.figures()
