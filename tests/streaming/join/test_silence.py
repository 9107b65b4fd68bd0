"""Outages of the clicks: recognised soon, and not where chance, pauses, batches or a falling CTR explain the silence."""

import math

import numpy as np
import pytest

from pbodl.streaming.join.click_join import Join
from tests.streaming.traffic import SCHEMA, click, decoded, impression, pieces


def stream(seconds: int, ctr, deliver=lambda time: time, shown=lambda time: True, step: float = 0.2) -> list[dict]:
    """Impressions where `shown` says so, with a CTR that may depend on the time; clicks arrive when they are delivered."""
    draws, events = np.random.default_rng(3), []
    for number in range(int(seconds / step)):
        now = number * step
        if not shown(now):
            continue
        events.append((now, impression(number, now)))
        if draws.random() < (ctr(now) if callable(ctr) else ctr):
            at = deliver(now + draws.exponential(30.0))
            events.append((at, click(number, at)))
    return [event for _, event in sorted(events, key=lambda entry: entry[0])]


def outages(events: list[dict]) -> tuple[int, list[float]]:
    """How many outages were recognised, and the time of the stream when each was."""
    join, found = Join(SCHEMA, 300.0, 1800.0), []
    for piece in pieces(events, [50]):
        before = join.metrics()["outages"]
        join.add(decoded(piece))
        if join.metrics()["outages"] > before:
            found.append(join.watermark)
    return join.metrics()["outages"], found


def test_an_outage_is_recognised_in_the_time_of_some_dozen_clicks() -> None:
    events = stream(6000, 0.1, deliver=lambda time: time if not 3000 < time < 4500 else 4500 + (time - 3000) / 100)
    count, (at,) = outages(events)
    assert count == 1 and 3030 < at < 3000 + 3 * 25 / (5 * 0.1)


@pytest.mark.parametrize("ctr", [0.3, 0.02, 0.002])
def test_chance_is_no_outage(ctr: float) -> None:
    assert outages(stream(9000, ctr))[0] == 0


def test_a_pause_of_the_impressions_or_of_all_is_no_outage() -> None:
    assert outages(stream(9000, 0.2, shown=lambda time: not 3000 < time < 6000))[0] == 0


def test_a_leap_over_the_clicks_that_were_due_is_no_outage() -> None:
    """Everything is silent for a while, and the clicks of the impressions before it have gone."""
    events = [event for event in stream(9000, 0.3, step=0.05) if not 3000 < event["time"] < 6000]
    assert outages(events)[0] == 0


def test_clicks_that_are_delivered_together_are_no_outage_once_that_is_known() -> None:
    count, times = outages(stream(9000, 0.2, deliver=lambda time: 300.0 * math.ceil(time / 300.0)))
    assert count <= 5 and all(time < 4500 for time in times)


def test_a_ctr_that_falls_recovers() -> None:
    count, times = outages(stream(9000, lambda time: 0.17 if time < 4500 else 0.02))
    assert count <= 3 and all(time < 7000 for time in times)
