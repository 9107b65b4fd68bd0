"""`pbodl serve` as a person meets it when something is wrong: prose, and exit code 2."""

import errno
import os
import socket

import pytest

import pbodl
from tests.click_log import PLAIN
from tests.command_line import run_pbodl


@pytest.fixture
def serve():
    def run(*arguments: str) -> tuple[int, str]:
        done = run_pbodl("serve", *arguments)
        return done.code, done.prose

    return run


def test_a_folder_that_is_not_there(serve, tmp_path):
    code, told = serve(str(tmp_path / "none"))
    assert code == 2
    assert "there is no folder" in told
    assert "pbodl train --out" in told


def test_a_port_in_use(serve, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, told = serve(str(tmp_path), "--port", str(taken.getsockname()[1]))
    assert code == 2
    assert "cannot listen on 127.0.0.1" in told
    assert "--port" in told


def test_settings_that_cannot_be(serve, tmp_path):
    for options, words in (
        (("--workers", "0"), "'--workers'"),
        (("--max-candidates", "0"), "'--max-candidates'"),
        (("--max-body", "-1"), "'--max-body'"),
        (("--timeout", "0"), "'--timeout'"),
        (("--token-file", str(tmp_path / "none")), "token file"),
    ):
        code, told = serve(str(tmp_path), "--port", "0", *options)
        assert code == 2
        assert words in told


def test_no_room_for_the_model(serve, tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    pbodl.FMMLP(PLAIN, dim=2, hidden=()).save(tmp_path)
    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    code, told = serve(str(tmp_path), "--port", "0")
    assert code == 2
    assert "version 1 does not fit into" in told
    assert "No space left" in told


def test_an_address_that_is_none(serve):
    code, told = serve("nowhere://x", "--port", "0")
    assert code == 2
    assert "nowhere://x" in told
