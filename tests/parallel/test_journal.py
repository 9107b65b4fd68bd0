"""The journal: what `append` returned for is there again, and nothing else."""

import os

import pytest

from pbodl.errors import InputError
from pbodl.parallel.journal import Journal

RECORDS = [b"one", b"", b"three" * 1000]


def written(folder, sync=False) -> Journal:
    journal = Journal(folder, sync)
    journal.begin(b"state")
    for record in RECORDS:
        journal.append(record)
    return journal


@pytest.mark.parametrize("sync", [False, True])
def test_what_was_appended_comes_back_in_order(tmp_path, sync):
    written(tmp_path, sync)  # never closed: as if it had been killed
    state, records = Journal(tmp_path).restore()
    assert (state, list(records)) == (b"state", RECORDS)


def test_it_goes_on_behind_what_it_restored(tmp_path):
    written(tmp_path)
    journal = Journal(tmp_path)
    journal.restore()
    journal.append(b"four")
    assert list(Journal(tmp_path).restore()[1]) == [*RECORDS, b"four"]


@pytest.mark.parametrize("cut", range(1, 5008, 500))
def test_a_record_cut_off_is_cut_away(tmp_path, cut):
    size = written(tmp_path).size
    log = tmp_path / "00000001.log"
    os.truncate(log, size - cut)
    journal = Journal(tmp_path)
    kept = list(journal.restore()[1])
    assert kept == RECORDS[: len(kept)] and len(kept) < len(RECORDS)
    journal.append(b"anew")
    assert list(Journal(tmp_path).restore()[1]) == [*kept, b"anew"]


def test_a_record_that_was_changed_ends_the_log(tmp_path):
    written(tmp_path)
    log = tmp_path / "00000001.log"
    content = bytearray(log.read_bytes())
    content[-1] ^= 1
    log.write_bytes(content)
    assert list(Journal(tmp_path).restore()[1]) == RECORDS[:2]


def test_a_new_snapshot_takes_the_place_of_the_log(tmp_path):
    journal = written(tmp_path)
    journal.begin(b"later")
    journal.append(b"x")
    state, records = Journal(tmp_path).restore()
    assert (state, list(records)) == (b"later", [b"x"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00000002.log", "00000002.state"]


def test_killed_while_the_snapshot_is_written_the_old_one_holds(tmp_path):
    written(tmp_path)
    (tmp_path / ".writing").write_bytes(b"half of a")
    (tmp_path / "00000002.log").write_bytes(b"")
    state, records = Journal(tmp_path).restore()
    assert (state, list(records)) == (b"state", RECORDS)


def test_a_damaged_snapshot_is_refused(tmp_path):
    written(tmp_path)
    path = tmp_path / "00000001.state"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match="does not match its checksum"):
        Journal(tmp_path).restore()


def test_a_folder_without_one_is_refused(tmp_path):
    with pytest.raises(InputError, match="on a disk that all nodes share"):
        Journal(tmp_path).restore()


def test_a_write_in_pieces_is_whole(tmp_path, monkeypatch):
    journal = written(tmp_path)
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, content: write(descriptor, bytes(content[:3])))
    journal.append(b"in pieces")
    monkeypatch.undo()
    assert list(Journal(tmp_path).restore()[1]) == [*RECORDS, b"in pieces"]


def test_a_write_that_fails_leaves_no_trace(tmp_path, monkeypatch):
    journal = written(tmp_path)
    real = os.write

    def half(descriptor: int, content) -> int:
        real(descriptor, bytes(content[:4]))
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(OSError, match="No space"):
        journal.append(b"lost")
    monkeypatch.undo()
    journal.append(b"kept")
    assert list(Journal(tmp_path).restore()[1]) == [*RECORDS, b"kept"]
