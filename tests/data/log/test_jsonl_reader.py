"""JSON lines: values of one type and of several, and lines that are bad."""

import json

import pytest

from pbodl.data.log.jsonl_reader import JsonlFile
from pbodl.data.log.log_sources import find_sources
from pbodl.errors import InputError


def blocks(path, columns, size=100, start=0, lists=None):
    file = JsonlFile(find_sources(path)[0])
    try:
        return list(file.blocks(columns, size, start, lists))
    finally:
        file.close()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.jsonl"


def write(path, rows) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def test_columns_are_the_names_of_all_rows(path):
    write(path, [{"a": 1}, {"b": "x", "a": None}, {"c": [1, 2]}])
    file = JsonlFile(find_sources(path)[0])
    assert file.columns == ["a", "b", "c"]
    (block,) = file.blocks(["c", "a"], 10, 0)
    assert block.table.to_pylist() == [{"c": None, "a": 1}, {"c": None, "a": None}, {"c": [1, 2], "a": None}]
    file.close()


def test_values_of_several_types_become_texts(path):
    write(path, [{"a": 1, "b": [1]}, {"a": "x", "b": ["y", True]}, {"a": 1.5, "b": None}, {"a": 2**70, "b": []}])
    (block,) = blocks(path, ["a", "b"])
    assert block.table.column("a").to_pylist() == ["1", "x", "1.5", str(2**70)]
    assert block.table.column("b").to_pylist() == [["1"], ["y", "true"], None, []]


BAD = {
    b'{"a": ': "it is not JSON",
    b'{"a": ' + b"[" * 5000: "it is not JSON",
    b"[1]": "it holds '[1]'; it must hold a JSON object",
    b'{"a": "\xff"}': "it is not valid UTF-8",
    b'{"a": {"b": 1}}': "column 'a': a value of type dict",
    b'{"a": [1]}': "column 'a': a value of type list",
    b'{"a": 2} {"a": 3}': "it is not JSON",
    b'{"a": 5, "l": 5}': "column 'l': a value of type int (5) is given instead of a list",
    b'{"a": 5, "l": [[1]]}': "column 'l': a value of type list",
}


@pytest.mark.parametrize("size", [1, 3, 100])
def test_bad_lines(path, size):
    path.write_bytes(b"\n".join([b'{"a": 1}', b"", *BAD, b'{"a": 4, "l": ["x"]}']))
    faults, rows, before = {}, [], 0
    for block in blocks(path, ["a", "l"], size, lists={"l"}):
        faults |= {before + place: fault for place, fault in block.faults.items()}
        rows += block.table.to_pylist()
        before += block.rows
    assert rows == [{"a": 1, "l": None}, {"a": 4, "l": ["x"]}]
    assert list(faults) == list(range(2, 2 + len(BAD)))
    for fault, words in zip(faults.values(), BAD.values(), strict=True):
        assert fault.startswith(words)


def test_going_on_anywhere(path):
    write(path, [{"a": i} for i in range(7)])
    for start in range(8):
        found = [row["a"] for block in blocks(path, ["a"], 3, start) for row in block.table.to_pylist()]
        assert found == list(range(start, 7))
    with pytest.raises(InputError, match="fewer than the 8 rows"):
        blocks(path, ["a"], 3, 8)


@pytest.mark.parametrize(("content", "words"), [(b"", "is empty"), (b"click,ad\n1,2\n", "holds no JSON lines")])
def test_refusals(path, content, words):
    path.write_bytes(content)
    with pytest.raises(InputError, match=words):
        blocks(path, ["a"])
