"""Which files a path, a glob, a folder or an address stands for."""

import bz2
import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from pbodl.data.log.log_sources import find_sources
from pbodl.errors import InputError


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    logs = ("day10/a.csv", "day2/b.csv", "day2/a.csv.gz", "day2/c[1].jsonl")
    for name in (*logs, "day2/notes.txt", "day2/_SUCCESS", "_tmp/x.csv", "day2/.b.csv", ".old/day2/b.csv"):
        path = tmp_path / "logs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names(*paths: str) -> list[str]:
    return [source.name for source in find_sources(paths)]


def test_folders_are_read_in_natural_order_without_what_tools_left(tree):
    ref = ["logs/day2/a.csv.gz", "logs/day2/b.csv", "logs/day2/c[1].jsonl", "logs/day10/a.csv"]
    assert names("logs") == ref
    assert [name.removeprefix(f"{tree}/") for name in names(f"file://{tree}/logs")] == ref


@pytest.mark.parametrize(
    ("pattern", "ref"),
    [
        ("logs/*/*.csv", ["logs/_tmp/x.csv", "logs/day2/b.csv", "logs/day10/a.csv"]),
        ("logs/day?/*.csv*", ["logs/day2/a.csv.gz", "logs/day2/b.csv"]),
        ("logs/day[0-9]*/a.*", ["logs/day2/a.csv.gz", "logs/day10/a.csv"]),
        ("logs/**/b.csv", ["logs/day2/b.csv"]),
        ("logs/day1*", ["logs/day10/a.csv"]),
        ("log*/day2/c[1].jsonl", []),
        ("logs/day2/c[1].jsonl", ["logs/day2/c[1].jsonl"]),
        ("**/a.csv", ["./logs/day10/a.csv"]),
    ],
)
def test_globs(tree, pattern, ref):
    if not ref:
        with pytest.raises(InputError, match="no file matches"):
            names(pattern)
        return
    assert names(pattern) == ref


def test_globs_in_addresses(tree):
    assert names(f"file://{tree}/logs/day*/a*") == [f"{tree}/logs/day2/a.csv.gz", f"{tree}/logs/day10/a.csv"]


def test_what_is_given_keeps_its_order(tree):
    assert names("logs/day10/a.csv", "logs/day2/b.csv") == ["logs/day10/a.csv", "logs/day2/b.csv"]
    assert [source.name for source in find_sources(Path("logs/day2/b.csv"))] == ["logs/day2/b.csv"]


@pytest.mark.parametrize(
    ("name", "content", "ref"),
    [
        ("a.csv", b"", ("csv", "")),
        ("A.CSV.GZ", b"", ("csv", "gzip")),
        ("train.gz", b"", ("csv", "gzip")),
        ("a.jsonl.gz", b"", ("jsonl", "gzip")),
        ("a.ndjson", b"", ("jsonl", "")),
        ("a.parquet", b"", ("parquet", "")),
        ("a.tsv", b"", ("csv", "")),
        ("a.csv.zst", b"", ("csv", "zstd")),
        ("a.jsonl.bz2", b"", ("jsonl", "bz2")),
        ("a.feather", b"", ("arrow", "")),
        ("rows", bz2.compress(b"click,ad\n1,2\n"), ("csv", "bz2")),
        ("rows", b"\xef\xbb\xbf" + b'{"click": 1}', ("jsonl", "")),
        ("rows", b"click,ad\n1,2\n", ("csv", "")),
        ("rows", b'{"click": 1}\n', ("jsonl", "")),
        ("rows", gzip.compress(b'{"click": 1}\n', mtime=0), ("jsonl", "gzip")),
    ],
)
def test_formats(tmp_path, name, content, ref):
    (tmp_path / name).write_bytes(content)
    source = find_sources(str(tmp_path / name))[0]
    assert (source.format, source.compression, source.size) == (*ref, len(content))


def test_parquet_is_known_by_its_first_bytes(tmp_path):
    pa.parquet.write_table(pa.table({"click": [1]}), tmp_path / "rows")
    assert find_sources(tmp_path / "rows")[0].format == "parquet"


@pytest.mark.parametrize(
    ("paths", "words"),
    [
        ([], "no log is given"),
        (["nowhere.csv"], "there is no file or folder 'nowhere.csv'"),
        (["logs/*.parquet"], "no file matches 'logs/*.parquet'"),
        (["empty"], "the folder 'empty' contains no log; a log is read from .csv"),
        (["teapot://logs"], "teapot://logs cannot be read"),
        (["/dev/null"], "neither a file nor a folder"),
        (["picture"], "the format of picture is not known"),
        (["broken"], "broken is not a valid gzip file"),
    ],
)
def test_refusals(tree, paths, words):
    (tree / "empty").mkdir()
    (tree / "picture").write_bytes(b"\x89PNG\0\0")
    (tree / "broken").write_bytes(b"\x1f\x8b" + b"?" * 30)
    with pytest.raises(InputError) as error:
        find_sources(paths)
    assert words in str(error.value)
