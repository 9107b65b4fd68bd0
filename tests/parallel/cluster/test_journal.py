"""The journal: what `append` returned for is there again, and nothing else."""

import os
from pathlib import Path

import pytest

from pbodl.errors import InputError
from pbodl.parallel.cluster.journal import Journal, Superseded

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
    journal.begin(b"second")
    journal.append(b"four")
    state, records = Journal(tmp_path).restore()
    assert (state, list(records)) == (b"second", [b"four"])


def test_killed_between_restoring_and_going_on(tmp_path):
    written(tmp_path)
    for _ in range(3):
        state, records = Journal(tmp_path).restore()
        assert (state, list(records)) == (b"state", RECORDS)


def test_one_that_was_taken_for_dead_learns_that_it_has_a_successor(tmp_path):
    zombie, successor = written(tmp_path), Journal(tmp_path)
    successor.restore()
    with pytest.raises(Superseded):
        zombie.append(b"too late")
    successor.begin(b"second")
    successor.append(b"four")
    for late in (zombie.append, zombie.begin):
        with pytest.raises(Superseded):
            late(b"too late")
    third = Journal(tmp_path)
    state, records = third.restore()
    assert (state, list(records)) == (b"second", [b"four"])
    third.begin(b"third")  # its logs are gone, and those that followed it, too
    with pytest.raises(Superseded):
        zombie.append(b"too late")


def test_one_that_has_a_successor_answers_no_questions(tmp_path):
    first = Journal(tmp_path)
    first.begin(b"state")
    first.check_owned()
    first.append(b"a")
    first.roll()
    first.check_owned()  # its own next log is no successor
    second = Journal(tmp_path)
    second.restore()
    with pytest.raises(Superseded):
        first.check_owned()
    second.begin(b"newer")
    second.check_owned()
    with pytest.raises(Superseded):  # also when the files that it knew are gone
        first.check_owned()


def test_a_snapshot_of_the_one_before_does_not_come_between(tmp_path, monkeypatch):
    """It was about to rename its snapshot when it was taken for dead, and goes on afterwards."""
    zombie, successor = written(tmp_path), Journal(tmp_path)
    rename, found = Path.replace, []

    def meanwhile(path: Path, target: Path) -> Path:
        monkeypatch.undo()
        found.append(successor.restore())
        return rename(path, target)

    monkeypatch.setattr(Path, "replace", meanwhile)
    zombie.begin(b"late")
    state, records = found[0]
    assert (state, list(records)) == (b"state", RECORDS)
    with pytest.raises(Superseded):
        zombie.append(b"too late")
    successor.begin(b"second")
    assert Journal(tmp_path).restore()[0] == b"second"


@pytest.mark.parametrize("cut", range(1, 5008, 500))
def test_a_record_cut_off_is_cut_away(tmp_path, cut):
    size = written(tmp_path).size
    log = tmp_path / "00000001.log"
    os.truncate(log, size - cut)
    journal = Journal(tmp_path)
    kept = list(journal.restore()[1])
    assert kept == RECORDS[: len(kept)] and len(kept) < len(RECORDS)


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
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00000002.log", "00000002.state"]
    state, records = Journal(tmp_path).restore()
    assert (state, list(records)) == (b"later", [b"x"])


def test_killed_while_the_snapshot_is_written_the_old_one_holds(tmp_path):
    written(tmp_path)
    (tmp_path / "00000002.0123.writing").write_bytes(b"half of a")
    (tmp_path / "00000002.log").write_bytes(b"")
    state, records = Journal(tmp_path).restore()
    assert (state, list(records)) == (b"state", RECORDS)


def test_a_damaged_snapshot_is_refused(tmp_path):
    written(tmp_path)
    path = tmp_path / "00000001.state"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match="does not match its checksum"):
        Journal(tmp_path).restore()


def test_a_snapshot_without_its_log_is_refused(tmp_path):
    written(tmp_path)
    (tmp_path / "00000001.log").unlink()
    with pytest.raises(InputError, match="has lost its log"):
        Journal(tmp_path).restore()


@pytest.mark.parametrize("folder", [".", "missing"])
def test_a_folder_without_one_is_refused(tmp_path, folder):
    with pytest.raises(InputError, match="on a disk that all nodes share"):
        Journal(tmp_path / folder).restore()


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


def test_until_its_snapshot_is_written_both_logs_hold(tmp_path):
    journal = written(tmp_path)
    number = journal.roll()
    journal.append(b"four")
    state, records = Journal(tmp_path).restore()
    assert (state, list(records)) == (b"state", [*RECORDS, b"four"])
    assert number == 2


def test_a_snapshot_that_is_written_later_replaces_what_was_before_it(tmp_path):
    journal = written(tmp_path)
    number = journal.roll()
    journal.append(b"four")
    journal.write_state(number, b"later")
    journal.append(b"five")
    journal.drop_before(number, 5)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00000002.log", "00000002.state"]
    state, records = Journal(tmp_path).restore()
    assert (state, list(records)) == (b"later", [b"four", b"five"])


def test_a_successor_reads_both_logs_and_goes_on(tmp_path):
    zombie = written(tmp_path)
    number = zombie.roll()
    zombie.append(b"four")
    successor = Journal(tmp_path)
    state, records = successor.restore()
    zombie.write_state(number, b"later")  # of a copy that outlived its process
    successor.begin(state + b"".join(records))
    successor.append(b"five")
    for late in (zombie.roll, lambda: zombie.append(b"too late")):
        with pytest.raises(Superseded):
            late()
    state, records = Journal(tmp_path).restore()
    assert (state, list(records)) == (b"state" + b"".join(RECORDS) + b"four", [b"five"])
