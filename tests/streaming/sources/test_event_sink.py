"""Addresses of sinks, and a file that grows."""

import json

import pytest

from pbodl.errors import InputError
from pbodl.streaming.sources.event_sink import open_sink


def test_a_file_grows_line_by_line(tmp_path):
    path = tmp_path / "folder" / "events.jsonl"
    for events in ([{"id": "1"}, {"id": "2"}], [{"id": "3"}]):
        sink = open_sink(str(path))
        sink.send(events)
        assert path.read_text().count("\n") == int(events[-1]["id"])  # already there
        sink.close()
    assert [json.loads(line)["id"] for line in path.read_text().splitlines()] == ["1", "2", "3"]


@pytest.mark.parametrize("address", ["ftp://host/stream", "events.csv", "events"])
def test_an_address_that_nothing_can_be_sent_to(address):
    with pytest.raises(InputError, match="cannot send to"):
        open_sink(address)


def test_a_pack_has_at_least_one_event(tmp_path):
    with pytest.raises(InputError, match="the pack is 0"):
        open_sink(str(tmp_path / "events.jsonl"), 0)
