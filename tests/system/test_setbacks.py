"""What may fail is told twice: when it begins, and when it has passed."""

import errno
import logging

import pytest

from pbodl.errors import WorkError
from pbodl.system.setbacks import Setbacks


def test_told_once_counted_always_and_told_again_when_over(caplog):
    setbacks = Setbacks()

    def attempt(error=None):
        with setbacks.tolerating("publishing"):
            if error is not None:
                raise error

    with caplog.at_level(logging.WARNING):
        attempt()
        for error in (OSError(errno.ENOSPC, "No space left on device", "m/1.full"), OSError(errno.EIO, "x"), WorkError("away")):
            attempt(error)
        attempt()
        attempt()
    first, last = (record.getMessage() for record in caplog.records)
    assert first.startswith("publishing fails: m/1.full: No space left on device") and "tries again" in first
    assert last == "publishing works again"
    assert setbacks.counts == {"publishing": 3} and not setbacks.lasting


def test_other_errors_pass():
    with pytest.raises(ValueError), Setbacks().tolerating("publishing"):
        raise ValueError
