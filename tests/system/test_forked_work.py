"""Work in a copy of the process: of that moment, and with a word about its end."""

import os
import signal

import numpy as np
import pytest

from pbodl.system.forked_work import CopyFailed, in_a_copy


def test_the_copy_sees_the_moment_in_which_it_was_made(tmp_path):
    numbers, path = np.arange(1000), tmp_path / "numbers"
    begin, go_on = os.pipe()

    def work() -> bytes:
        os.read(begin, 1)  # only after the original has changed
        path.write_bytes(numbers.tobytes())
        return b"written"

    wait = in_a_copy(work)
    numbers += 1
    os.write(go_on, b"x")
    assert wait() == b"written"
    np.testing.assert_array_equal(np.frombuffer(path.read_bytes(), numbers.dtype), np.arange(1000))


def test_an_error_in_the_copy_is_told():
    def work() -> bytes:
        raise OSError("no space left on device")

    with pytest.raises(CopyFailed, match="OSError: no space left on device"):
        in_a_copy(work)()


def test_a_copy_that_is_killed_is_told():
    def work() -> bytes:
        os.kill(os.getpid(), signal.SIGKILL)
        return b""

    with pytest.raises(CopyFailed, match="the copy was killed"):
        in_a_copy(work)()
