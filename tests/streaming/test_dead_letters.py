"""Dead letters in a file: numbered, with their reason, and once each when a run goes on."""

import json

from pbodl.streaming.dead_letters import DeadLetters
from pbodl.streaming.events import BadEvent


def write(path, sent, *events):
    letters = DeadLetters(path, "stream", sent)
    letters.write(events)
    letters.write([])
    letters.close()
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_letters_have_a_number_and_a_reason(tmp_path):
    lines = write(tmp_path / "bad.jsonl", 0, BadEvent("no id", "{}"), BadEvent("no JSON", "{"))
    assert [line["letter"] for line in lines] == [1, 2]
    assert [line["reason"] for line in lines] == ["no id", "no JSON"]
    assert [line["raw"] for line in lines] == ["{}", "{"]


def test_what_a_file_holds_beyond_the_last_snapshot_comes_again_and_stands_once(tmp_path):
    path = tmp_path / "bad.jsonl"
    first, second, third = (BadEvent(f"reason {n}", str(n)) for n in (1, 2, 3))
    write(path, 0, first, second)
    lines = write(path, 1, second, third)
    assert [(line["letter"], line["raw"]) for line in lines] == [(1, "1"), (2, "2"), (3, "3")]
