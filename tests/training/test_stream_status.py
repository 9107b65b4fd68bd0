"""The line that `pbodl online` shows."""

import io

import pytest
from rich.console import Console

from pbodl.training.stream_status import live_status, status_line

VALUES = {
    "source": "redis://host/clicks",
    "rows_learned": 2_000_000,
    "rows_per_second": 51_234.5,
    "waiting": 4321,
    "log_loss": 0.41,
}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, "2,000,000 rows, 51,234/s, log loss 0.4100; 4,321 impressions wait"),
        ({"lag": 1200, "event_lag_seconds": 90.0}, "lag 1,200 behind, 1.5 min old"),
        ({"version": 12}, "version 12 published"),
        ({"bad": 3, "alarms": 2, "held": "clicks stopped"}, "3 bad events; 2 alarms; PUBLISHING IS HELD: clicks stopped"),
        ({"away": "connection refused"}, "waiting for redis://host/clicks: connection refused"),
    ],
)
def test_the_line_says_what_happens(more, words):
    assert words in status_line({**VALUES, **more})


def test_before_the_first_figures_it_connects():
    assert status_line({"source": "clicks/"}) == "connecting to clicks/"


def test_only_a_terminal_gets_the_line():
    for terminal in (True, False):
        written = io.StringIO()
        with live_status("a[b]", Console(file=written, force_terminal=terminal, width=200)) as show:
            show({key: value for key, value in VALUES.items() if key != "source"})
        assert ("2,000,000 rows" in written.getvalue() and "a[b]" in written.getvalue()) == terminal
