"""Conversions of clicks: the same join with delays of hours and days, within a bounded memory."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

from pbodl.errors import InputError
from pbodl.streaming.events import EventDecoder
from pbodl.streaming.same_run import StreamOptions
from pbodl.streaming.sources.event_source import StreamPosition
from pbodl.streaming.stream_learner import StreamLearner
from tests.streaming.traffic import SCHEMA, config, pieces

DAY, RATES = 86400.0, (0.05, 0.3)
OPTIONS = StreamOptions(window="1d", late="7d", capacity=2000, outcome="conversion")


def shop(days: int, a_day: int, seed: int = 0) -> list[dict]:
    """Clicks on two ads, and conversions: most within hours, a fifth days later."""
    draws, events = np.random.default_rng(seed), []
    for number in range(days * a_day):
        now, ad = number * DAY / a_day, int(draws.integers(2))
        events.append({"event": "click", "id": f"c{number}", "time": now, "user": int(draws.integers(30)), "ad": ad})
        if draws.random() < RATES[ad]:
            delay = draws.uniform(DAY, 6 * DAY) if draws.random() < 0.2 else draws.exponential(DAY / 8)
            events.append({"event": "conversion", "id": f"c{number}", "time": now + delay})
    return sorted(events, key=lambda event: event["time"])


def test_conversions_that_take_days_are_learned_without_bias(tmp_path: Path) -> None:
    decoder = EventDecoder(SCHEMA, outcome="conversion")
    own, most = StreamLearner.start(config(), tmp_path, OPTIONS, StreamPosition()), 0
    for piece in pieces(shop(60, 200), [300]):
        events = decoder.decode([msgspec.msgpack.encode(piece)])
        assert not events.bad
        own.take(events, StreamPosition())
        most = max(most, own.join.rows.bytes)
    assert most < 2 * (OPTIONS.capacity + 4096) * (3 * 8 + 4 + 8 + 4)
    curve = own.join.curve()
    assert next(point["share"] for point in curve if point["age"] > DAY) == pytest.approx(0.8, abs=0.06)
    assert curve[-1]["age"] == 7 * DAY and own.join.metrics()["crowded_out"] == 0
    rows = [{"user": user, "ad": ad, "time": 60 * DAY} for ad in (0, 1) for user in range(30)]
    cvr = own.model.predict(rows).ctr.reshape(2, 30).mean(axis=1)
    np.testing.assert_allclose(cvr, RATES, rtol=0.2)
    figures = own.tracker.overall()
    assert figures.ctr == pytest.approx(np.mean(RATES), rel=0.1) and figures.calibration == pytest.approx(1.0, abs=0.15)


def test_other_events_and_outcomes_are_refused() -> None:
    bad = EventDecoder(SCHEMA, outcome="conversion").decode([b'{"event": "impression", "id": "a", "time": 1}']).bad
    assert "it must be 'click', 'conversion'" in bad[0].reason
    with pytest.raises(InputError, match="allowed are 'click' and 'conversion'"):
        EventDecoder(SCHEMA, outcome="sale")
