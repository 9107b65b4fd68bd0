"""The file of decisions: whole lines from several writers, and rotation that a learner follows."""

import json
import threading

import pytest

from pbodl.errors import InputError
from pbodl.serving.ranking.decision_log import RotatingFile, open_file_only
from pbodl.streaming.sources.file_order import generations


def test_several_writers_rotate_one_file_and_lose_nothing(tmp_path):
    path = tmp_path / "decisions.jsonl"

    def write(writer: int) -> None:
        file = RotatingFile(str(path), most=2000)
        for number in range(40):
            file.send([{"writer": writer, "number": number, "text": "x" * 20}] * 2)
        file.close()

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    files = [found.source.path for found in generations(str(path))]
    assert len(files) > 3
    assert files[-1] == str(path)
    rows = [json.loads(line) for file in files for line in open(file)]  # noqa: SIM115
    assert len(rows) == 3 * 40 * 2
    for writer in range(3):  # and each in its order, the oldest file first
        assert [row["number"] for row in rows if row["writer"] == writer] == sorted(2 * list(range(40)))


def test_targets_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("")
    for address, words in (
        ("x.csv", ".jsonl"),
        ("redis://h/s", ".jsonl"),
        (str(tmp_path / "file" / "x.jsonl"), "cannot be logged"),
    ):
        with pytest.raises(InputError, match=words):
            open_file_only(address)
