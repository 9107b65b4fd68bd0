"""Which partitions a source has."""

import pytest

from pbodl.errors import InputError
from pbodl.streaming.cluster.partition_list import Partition, partitions_of


def test_redis_streams_of_one_server():
    assert partitions_of("redis://127.0.0.1:6379/b,a?db=2") == [
        Partition("a", "redis://127.0.0.1:6379/a?db=2"),
        Partition("b", "redis://127.0.0.1:6379/b?db=2"),
    ]


def test_a_folder_of_folders_and_lists_of_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("events/one", "events/two", "events/.hidden", "plain"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "a.jsonl").touch()
    assert partitions_of("events") == [Partition("one", "events/one"), Partition("two", "events/two")]
    assert partitions_of("plain") == [Partition("plain", "plain")]
    assert partitions_of("a.jsonl,plain") == [Partition("a.jsonl", "a.jsonl"), Partition("plain", "plain")]


@pytest.mark.parametrize(
    "source, said",
    [
        ("redis://127.0.0.1/a,a", "names 'a' twice"),
        ("redis://127.0.0.1/a?group=g&consumer=c", "leave `group` out"),
        ("x/a.jsonl,y/a.jsonl", "names 'a.jsonl' twice"),
    ],
)
def test_what_cannot_be_told_apart_is_refused(source, said):
    with pytest.raises(InputError, match=said):
        partitions_of(source)
