"""CSV files: against Python's csv module, and every way a line can be bad."""

import csv
import gzip
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pbodl.data.log.csv_reader import CsvFile
from pbodl.data.log.log_sources import find_sources
from pbodl.data.log.row_blocks import RowBlock
from pbodl.errors import InputError


def read(path, columns=("b", "a"), size=3, start=0) -> list[RowBlock]:
    file = CsvFile(find_sources(path)[0])
    try:
        return list(file.blocks(list(columns), size, start))
    finally:
        file.close()


def rows(blocks: list[RowBlock]) -> list[dict]:
    return [row for block in blocks for row in block.table.to_pylist()]


def faults(blocks: list[RowBlock]) -> dict[int, str]:
    """By the row's place in the file."""
    found, before = {}, 0
    for block in blocks:
        found |= {before + place: fault for place, fault in block.faults.items()}
        before += block.rows
    return found


TEXT = st.text(st.sampled_from('aé",0|; '), max_size=4)


@given(st.lists(st.tuples(TEXT, TEXT, TEXT), min_size=1, max_size=12), st.sampled_from(["\n", "\r\n"]), st.integers(1, 5))
def test_against_pythons_reader(tmp_path_factory, table, line_end, size):
    text = io.StringIO()
    csv.writer(text, lineterminator=line_end).writerows([("a", "b", "c"), *table])
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    path.write_bytes(text.getvalue().encode())
    ref = [{"b": b, "a": a} for a, b, _ in table]
    comp = read(path, size=size)
    assert rows(comp) == ref
    assert not faults(comp)
    assert [block.rows for block in comp] == [min(size, len(table) - i) for i in range(0, len(table), size)]


def test_gzip_byte_order_mark_and_a_last_line_without_end(tmp_path):
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b'\xef\xbb\xbf"a",b\r\n1,2\r\n3,4'))
    assert rows(read(path)) == [{"b": "2", "a": "1"}, {"b": "4", "a": "3"}]


BAD = {
    b"1": "it has 1 values, but the header has 3 columns",
    b"1,2,3,4": "it has 4 values, but the header has 3 columns",
    b'1,"2,3': "it has 2 values, but the header has 3 columns; one of its quotes may not be closed",
    b'1,2,"3': "a quoted value is not closed, or",
    b"1,\xff\xfe,3": r"column 'b' holds b'\xff\xfe', which is not valid UTF-8",
    b'1,"\xff,",3': r"column 'b' holds b'\xff,', which is not valid UTF-8",
    b"1,2\r,3": "it has a carriage return inside",
    b"1,2,3\r1,2,3": "it has a carriage return inside",
}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("size", [1, 2, 100])
def test_bad_lines_are_named_and_spoil_no_others(tmp_path, bad, size):
    path = tmp_path / "a.csv"
    path.write_bytes(b"a,b,c\n1,2,3\n" + bad + b"\n4,5,6\n\n" + bad + b'\n7,"8",9\n' + bad)
    blocks = read(path, size=size)
    assert rows(blocks) == [{"b": "2", "a": "1"}, {"b": "5", "a": "4"}, {"b": "8", "a": "7"}]
    found = faults(blocks)
    assert list(found) == [1, 4, 6]
    assert all(fault.startswith(BAD[bad]) for fault in found.values())
    assert blocks[0].raw(0) == "1,2,3"
    places = [place for block in blocks for place in block.places.tolist()]
    assert len(places) == 3
    if size == 100:
        assert places == [0, 2, 5]


def test_columns_that_are_not_wanted_may_hold_anything(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"a,b,c,c\n1,2,\xff,x\n1,2\n")
    blocks = read(path)
    assert rows(blocks) == [{"b": "2", "a": "1"}]
    assert list(faults(blocks)) == [1]


def test_going_on_anywhere(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"a,b\n" + b"".join(b"%d,x\n" % i for i in range(10)))
    for start in range(11):
        assert [row["a"] for row in rows(read(path, start=start))] == [str(i) for i in range(start, 10)]
    with pytest.raises(InputError, match="fewer than the 11 rows"):
        read(path, start=11)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"\n1,2\n", "the first line of .* is blank"),
        (b"x" * 200_000 + b",b\n1,2\n", "field larger"),
        (b"\xff\xfea\0,\0b\0\n\0", "not UTF-8"),
    ],
)
def test_headers_that_are_refused(tmp_path, content, words):
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    with pytest.raises(InputError, match=words):
        read(path)
