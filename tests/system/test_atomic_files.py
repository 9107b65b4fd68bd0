"""A file or a folder is there whole or not at all, and an error leaves what was there before."""

import os

import pytest

from pbodl.system.atomic_files import replacing, write_file, write_synced


def listed(folder):
    return sorted(os.listdir(folder))


def test_a_file_of_pieces(tmp_path):
    write_file(tmp_path / "a", b"one ", memoryview(b"two"))
    write_file(str(tmp_path / "a"), b"new")
    assert (tmp_path / "a").read_bytes() == b"new" and listed(tmp_path) == ["a"]


def test_a_folder(tmp_path):
    with replacing(tmp_path / "a") as beside:
        beside.mkdir()
        write_synced(beside / "inside", b"content")
        assert not (tmp_path / "a").exists()
    assert listed(tmp_path) == ["a"] and listed(tmp_path / "a") == ["inside"]


@pytest.mark.parametrize("sync", [False, True])
def test_an_error_changes_nothing(tmp_path, sync):
    write_file(tmp_path / "a", b"old")
    with pytest.raises(OSError, match="full"), replacing(tmp_path / "a", sync=sync) as beside:
        beside.write_bytes(b"half")
        raise OSError("full")
    assert (tmp_path / "a").read_bytes() == b"old" and listed(tmp_path) == ["a"]


def test_what_a_killed_process_left_is_overwritten(tmp_path):
    beside = tmp_path / ".writing-a"
    beside.mkdir()
    (beside / "leftover").write_bytes(b"half")
    write_file(tmp_path / "a", b"new", beside=beside)
    assert listed(tmp_path) == ["a"]


def test_the_disk_has_the_content_before_the_name(tmp_path, monkeypatch):
    done = []
    monkeypatch.setattr(os, "fsync", lambda file: done.append(os.readlink(f"/proc/self/fd/{file}")))
    with replacing(tmp_path / "a") as beside:
        beside.write_bytes(b"content")
    assert done == [str(beside), str(tmp_path)]
