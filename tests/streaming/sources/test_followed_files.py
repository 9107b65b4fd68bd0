"""Files and folders that grow: every row once, whatever moment it is read at."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pbodl.errors import InputError
from pbodl.streaming.events import EventDecoder
from pbodl.streaming.sources.event_source import Pack, StreamPosition
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
    assert times(pack) == [1, 3] and [bad.raw for bad in pack.bad] == ["2,u"]
    assert EventDecoder(SCHEMA).decode(pack.contents).rows.clicks.tolist() == [0, 1]
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
    source.check(after)
    path.write_text(line(0))
    with pytest.raises(InputError, match="replaced or cut"):
        source.check(after)
    with pytest.raises(InputError, match="there is no file or folder"):
        FollowedFiles(str(tmp_path / "nothing"))
