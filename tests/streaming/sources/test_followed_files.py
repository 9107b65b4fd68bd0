"""Files and folders that grow: every row once, whatever moment it is read at."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pbodl.errors import InputError
from pbodl.streaming.events import EventDecoder
from pbodl.streaming.sources.event_source import Pack, StreamPosition
from pbodl.streaming.sources.file_order import sortable
from pbodl.streaming.sources.followed_files import FollowedFiles
from tests.streaming.traffic import SCHEMA, impression


def times(pack: Pack) -> list[float]:
    return EventDecoder(SCHEMA).decode(pack.contents).times.tolist()


def rest(source: FollowedFiles, after: StreamPosition) -> tuple[list[float], StreamPosition]:
    found: list[float] = []
    while pack := source.read(after, 0.0):
        found, after = found + times(pack), pack.position
    return found, after


def line(number: int) -> str:
    return json.dumps(impression(f"i{number}", number)) + "\n"


def test_json_lines_grow_and_half_a_line_waits(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(line(0) + line(1) + line(2)[:20])
    source = FollowedFiles(str(path))
    found, after = rest(source, source.start("start"))
    assert found == [0, 1] and source.ended(after) and source.lag(after) == 20
    with path.open("a") as file:
        file.write(line(2)[20:] + line(3))
    assert rest(FollowedFiles(str(path)), StreamPosition.of(after.plain()))[0] == [2, 3]
    assert rest(source, source.start("end"))[0] == []


def test_small_pieces_are_the_same(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text("".join(map(line, range(50))) + "\n\n" + line(50))
    assert rest(FollowedFiles(str(path), piece=30), StreamPosition())[0] == list(range(51))


def test_a_csv_file_grows_and_its_odd_lines_are_told(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("time,user,ad,click\n1,u,a,0\n2,u\n3,u,a,1\n")
    source = FollowedFiles(str(path))
    pack = source.read(StreamPosition(), 0.0)
    events = EventDecoder(SCHEMA).decode(pack.contents)
    assert events.times.tolist() == [1, 3] and [bad.raw for bad in events.bad] == ["2,u"]
    assert events.rows.clicks.tolist() == [0, 1]
    with path.open("a") as file:
        file.write("4,u,a,1\n")
    assert rest(source, pack.position)[0] == [4]


def test_a_folder_gets_new_files_in_the_order_of_their_names(tmp_path: Path) -> None:
    source = FollowedFiles(str(tmp_path))
    assert source.start("end") == StreamPosition() and not source.read(StreamPosition(), 0.0)
    (tmp_path / "part2.jsonl").write_text(line(1) + line(2)[:-1])  # its last line has no end
    found, middle = rest(source, StreamPosition())
    assert found == [1]
    pq.write_table(pa.Table.from_pylist([impression(f"i{n}", n) for n in (3, 4)]), tmp_path / "part10.parquet")
    found, after = rest(source, middle)
    assert found == [2, 3, 4] and middle <= after and not after <= middle
    assert source.start("end") == after
    (tmp_path / "part2.jsonl").unlink()
    (tmp_path / "part11.jsonl").write_text(line(5))
    assert rest(source, after)[0] == [5]


def test_a_file_that_was_cut_or_never_was_is_told(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(line(0) + line(1))
    source = FollowedFiles(str(path))
    _, after = rest(source, StreamPosition())
    assert source.read(after, 0.0).gap is None
    path.write_text(line(5))
    pack = source.read(after, 0.0)
    assert "it was cut or replaced" in str(pack.gap) and rest(source, pack.position)[0] == [5]
    with pytest.raises(InputError, match="there is no file or folder"):
        FollowedFiles(str(tmp_path / "nothing"))


def test_a_file_replaced_by_a_larger_one_is_told(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text("".join(map(line, range(10))))
    source = FollowedFiles(str(path))
    _, after = rest(source, StreamPosition())
    path.write_text("".join(map(line, range(100, 300))))  # cut and grown again, between two looks
    for reader in (source, FollowedFiles(str(path))):
        pack = reader.read(after, 0.0)
        assert "it was cut or replaced" in str(pack.gap)
        assert rest(reader, pack.position)[0] == list(range(100, 300))


@pytest.mark.parametrize("restarted", [False, True])
def test_a_rotated_file_is_followed_to_its_end(tmp_path: Path, restarted: bool) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(line(0) + line(1))
    source = FollowedFiles(str(path), piece=80)
    after = source.read(StreamPosition(), 0.0).position
    with path.open("a") as old:
        path.rename(tmp_path / "events.jsonl.1")
        old.write(line(2))
        old.flush()
        path.write_text("")
        if restarted:
            source = FollowedFiles(str(path), piece=80)
        found, after = rest(source, after)
        old.write(line(3) + line(4)[:-1])
        old.flush()
        more, after = rest(source, after)
    assert found + more == [1, 2, 3]
    # Two more rotations before the next look: the generations follow one another by their numbers; one is gzipped already.
    path.write_text(line(5))
    (tmp_path / "events.jsonl.1").rename(tmp_path / "events.jsonl.3")
    (tmp_path / "events.jsonl.2.gz").write_bytes(gzip.compress(path.read_bytes() + line(6).encode()))
    (tmp_path / "events.jsonl.1").write_text(line(7))
    path.unlink()
    path.write_text(line(8))
    found, after = rest(source, after)
    assert found == [4, 5, 6, 7, 8] and source.ended(after)


def test_a_rotated_file_may_be_removed_while_it_is_read_but_not_before(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(line(0) + line(1))
    source = FollowedFiles(str(path), piece=80)
    after = source.read(StreamPosition(), 0.0).position
    path.unlink()
    path.write_text(line(2))
    gap = FollowedFiles(str(path)).read(after, 0.0)
    assert gap.gap is not None
    assert rest(source, after)[0] == [1, 2]


def test_a_late_or_grown_file_of_a_folder_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "part1.jsonl").write_text(line(1))
    (tmp_path / "part3.jsonl").write_text(line(3))
    source = FollowedFiles(str(tmp_path))
    found, after = rest(source, StreamPosition())
    assert found == [1, 3]
    (tmp_path / "part2.jsonl").write_text(line(2))
    with (tmp_path / "part1.jsonl").open("a") as file:
        file.write(line(1))
    pack = FollowedFiles(str(tmp_path)).read(StreamPosition.of(after.plain()), 0.0)
    assert "names must be in the order of time" in str(pack.gap)
    assert not source.read(pack.position, 0.0)
    (tmp_path / "part1.jsonl").unlink()
    assert not source.read(pack.position, 0.0)


def test_a_file_of_a_folder_that_goes_before_its_end_is_told(tmp_path: Path) -> None:
    (tmp_path / "part1.jsonl").write_text(line(1) + line(2))
    source = FollowedFiles(str(tmp_path), piece=80)
    after = source.read(StreamPosition(), 0.0).position
    (tmp_path / "part1.jsonl").unlink()
    (tmp_path / "part2.jsonl").write_text(line(3))
    pack = FollowedFiles(str(tmp_path)).read(after, 0.0)
    assert "it is not known whether all of it was read" in str(pack.gap)
    assert rest(FollowedFiles(str(tmp_path)), pack.position)[0] == [3]
    assert rest(source, after)[0] == [2, 3]


def test_positions_of_older_releases_are_read(tmp_path: Path) -> None:
    (tmp_path / "part1.jsonl").write_text(line(0))
    (tmp_path / "part2.jsonl").write_text(line(1) + line(2))
    key = sortable(str(tmp_path / "part2.jsonl"))
    for path in (tmp_path, tmp_path / "part2.jsonl"):
        old = StreamPosition({"files": (key, len(line(1)))})
        found, after = rest(FollowedFiles(str(path)), old)
        assert found == [2] and FollowedFiles(str(path)).ended(after)


def test_a_line_without_end_is_a_bad_event_and_the_next_ones_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pbodl.streaming.sources.text_tail.LONGEST", 300)
    path = tmp_path / "events.jsonl"
    path.write_text(line(0) + "x" * 250)
    source = FollowedFiles(str(path), piece=100)
    found, after = rest(source, StreamPosition())
    assert found == [0]
    with path.open("a") as file:
        file.write("y" * 1000)
    bad = source.read(after, 0.0)
    events = EventDecoder(SCHEMA).decode(bad.contents)
    assert not len(events) and "its line is longer than" in events.bad[0].reason
    with path.open("a") as file:
        file.write("\n" + line(1))
    assert rest(source, bad.position)[0] == [1]


def test_a_csv_file_that_was_cut_has_its_new_header(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("time,user,ad,click\n1,u,a,0\n2,u,a,0\n")
    source = FollowedFiles(str(path))
    _, after = rest(source, StreamPosition())
    path.write_text("click,time,user\n1,7,u\n")
    gap = source.read(after, 0.0)
    assert gap.gap is not None and rest(source, gap.position)[0] == [7]
