"""The file of bad rows."""

import json

import pytest

from pbodl.data.log.quarantine import BadRow, Quarantine
from pbodl.errors import InputError


def bad(number: int) -> BadRow:
    return BadRow("a.csv", "line", number, "it has 1 values", 'x"é')


def test_records_and_going_on(tmp_path):
    path = tmp_path / "bad.jsonl"
    first = Quarantine(path)
    first.write([bad(2), bad(5)])
    first.write([bad(7)])
    first.close()
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert records[0] == {"file": "a.csv", "line": 2, "reason": "it has 1 values", "raw": 'x"é'}
    assert [record["line"] for record in records] == [2, 5, 7]
    # After an interruption behind the second, the third comes again.
    again = Quarantine(path, kept=2)
    again.write([bad(7), bad(9)])
    again.close()
    assert [json.loads(line)["line"] for line in path.read_text(encoding="utf-8").splitlines()] == [2, 5, 7, 9]
    Quarantine(path).close()
    assert path.read_text(encoding="utf-8") == ""
    Quarantine(tmp_path / "other.jsonl", kept=2).close()


def test_a_message_says_where_what_and_what_to_do():
    assert bad(3).message().startswith("a.csv, line 3: it has 1 values. Correct it, or")


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="bad rows cannot be written"):
        Quarantine(tmp_path / "nowhere" / "bad.jsonl")
