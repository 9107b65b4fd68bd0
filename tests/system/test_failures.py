"""Errors as one sentence, with the exit code that belongs to them."""

import errno
import os

import pytest

from pbodl.errors import InputError, WorkError
from pbodl.system.failures import ADVICE, report, sentence


@pytest.mark.parametrize("number", ADVICE)
def test_the_system_s_errors_come_with_advice(number):
    told, code = report(OSError(number, os.strerror(number), "runs/a"))
    assert code == 1 and told == f"runs/a: {os.strerror(number)} ({ADVICE[number]})"


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (InputError("the port is 99999"), 2, "the port is 99999"),
        (WorkError("redis://host/s does not answer"), 1, "redis://host/s does not answer"),
        (MemoryError("Unable to allocate 3 TiB"), 1, "memory is exhausted"),
        (OverflowError("int too large to convert"), 1, "a number is too large (int too large to convert)"),
        (OSError("a text alone\nand more"), 1, "a text alone"),
        (KeyError("x"), 1, "this is a bug"),
        (InputError("cannot use s3://me:hunter2@bucket"), 2, "s3://***@bucket"),
    ],
)
def test_every_error_is_one_sentence(error, code, words):
    told, exit_code = report(error)
    assert exit_code == code and words in told and "\n" not in told and "hunter2" not in told


def test_notes_follow_the_sentence():
    error = OSError(errno.ENOSPC, "No space left on device", b"runs/a")
    error.add_note("the last snapshot, runs/a/snapshots/1, is intact")
    assert report(error)[0].endswith("free some space). The last snapshot, runs/a/snapshots/1, is intact")
    assert sentence(ValueError()) == "ValueError"
