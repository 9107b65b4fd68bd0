"""The partitions of a source: parts of a stream that are ordered by themselves, and that one worker each reads.

    kafka://host:9092/topic                      every partition of the topic
    redis://host:6379/clicks-0,clicks-1          several streams of one server
    events/                                      a folder of folders: one partition for each of them
    a.jsonl,b.jsonl                              several files or folders
Anything else is one partition. An impression and its click must be in the same one.
"""

import os
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from pbodl.errors import InputError


class Partition(NamedTuple):
    """One partition: the source of messages that come from it has its name."""

    name: str  # without the host or the folder, which may change between two runs
    address: str  # for `open_source`


def partitions_of(source: str) -> list[Partition]:
    """The partitions of a source, by name."""
    scheme, separator, rest = source.partition("://")
    if scheme in ("redis", "rediss") and separator:
        found = _streams(scheme, rest)
    elif scheme == "kafka" and separator:
        from pbodl.streaming.sources.kafka_topic import topic_partitions

        found = [Partition(str(number), address) for number, address in topic_partitions(source)]
    else:
        found = _files(source)
    twice = [name for name, times in Counter(partition.name for partition in found).items() if times > 1]
    if twice:
        raise InputError(f"--source {source!r} names {twice[0]!r} twice; partitions must have different names")
    if not found:
        raise InputError(f"--source {source!r} has no partitions; create its folders first")
    return sorted(found)


def _streams(scheme: str, rest: str) -> list[Partition]:
    place, question, options = rest.partition("?")
    host, slash, names = place.rpartition("/")
    if "group=" in options:
        raise InputError("--engine ray divides a source among its workers by itself; leave `group` out of the address")
    return [Partition(name, f"{scheme}://{host}{slash}{name}{question}{options}") for name in names.split(",")]


def _files(source: str) -> list[Partition]:
    paths = [source] if os.path.exists(source) else source.split(",")
    found = []
    for path in paths:
        inside = sorted(entry.name for entry in os.scandir(path) if entry.is_dir()) if os.path.isdir(path) else []
        here = [Partition(name, os.path.join(path, name)) for name in inside if not name.startswith(".")]
        found += here or [Partition(Path(path).resolve().name, path)]
    return found
