"""Lines of plain and gzipped files, whatever the pieces they are read in."""

import gzip

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pbodl.data.log import lines
from pbodl.data.log.lines import Lines
from pbodl.data.log.log_sources import find_sources
from pbodl.errors import InputError

LINES = st.lists(st.sampled_from([b"", b"a,b", b"\r", b"x" * 90, "é".encode()]), max_size=30)


def read(path, n: int) -> list[bytes]:
    file = Lines(find_sources(path)[0])
    found = []
    while (block := file.take(n)) is not None:
        assert 0 < len(block) <= n
        found += [block.line(i) for i in range(len(block))]
    file.close()
    return found


@given(LINES, st.booleans(), st.integers(1, 40), st.sampled_from([1, 7, 1000]), st.integers(0, 60))
def test_all_lines_come_back(tmp_path_factory, texts, ended, n, piece, cut):
    data = b"\n".join(texts) + (b"\n" if ended else b"")
    ref = [line + b"\n" for line in data.split(b"\n")]
    ref = ref[:-1] if data.endswith(b"\n") or not data else ref
    folder = tmp_path_factory.mktemp("lines")
    (folder / "a.csv").write_bytes(data)
    # A gzip file may have several members, with zeros behind each.
    (folder / "a.csv.gz").write_bytes(gzip.compress(data[:cut]) + b"\0\0" + gzip.compress(data[cut:]) + b"\0")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "PIECE", piece)
        patch.setattr(lines, "ZIPPED", piece)
        assert read(folder / "a.csv", n) == ref
        assert read(folder / "a.csv.gz", n) == ref


def test_skipping(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"".join(b"%d\n" % i for i in range(100)))
    file = Lines(find_sources(path)[0])
    assert file.skip(97) == 97
    assert file.take(2).data == b"97\n98\n"
    assert file.skip(5) == 1
    assert file.bytes_read == path.stat().st_size


def test_blank_lines_and_text_for_people(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"a\n\n\r\nb\nab\n\xff\r\n")
    block = Lines(find_sources(path)[0]).take(10)
    assert block.blank.tolist() == [False, True, True, False, False, False]
    assert block.text(5) == "\\xff"


def test_whole_lines_before_a_truncation_are_handed_out(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "ZIPPED", 16)
    whole = gzip.compress(b"".join(b"line %d\n" % i for i in range(1000)))
    path = tmp_path / "a.csv.gz"
    for kept in (5, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:kept])
        file = Lines(find_sources(path)[0])
        found = []
        with pytest.raises(InputError, match=r"a.csv.gz is truncated: its gzip data ends after"):
            while (block := file.take(100)) is not None:
                found += [block.line(i) for i in range(len(block))]
        assert found == [b"line %d\n" % i for i in range(len(found))]
        assert len(found) > 300 or kept == 5


@pytest.mark.parametrize("place", [0, 40, -6])
def test_damage_is_told(tmp_path, place):
    whole = bytearray(gzip.compress(b"".join(b"line %d\n" % i for i in range(1000))))
    whole[place] ^= 0xFF
    path = tmp_path / "a.csv.gz"
    path.write_bytes(whole)
    file = Lines(find_sources(path)[0])
    with pytest.raises(InputError, match="damaged"):
        while file.take(100) is not None:
            pass


def test_endless_lines_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "PIECE", 100)
    monkeypatch.setattr(lines, "LONGEST", 1000)
    path = tmp_path / "a.csv"
    path.write_bytes(b"x" * 5000)
    with pytest.raises(InputError, match="Is it a text file"):
        Lines(find_sources(path)[0]).take(1)


@pytest.mark.parametrize("packed", ["zstd", "bz2"])
def test_other_compressions(tmp_path, packed):
    text = b"\xef\xbb\xbf" + b"".join(b"%d,line %d\n" % (i, i * i) for i in range(200_000))
    path = tmp_path / {"zstd": "a.csv.zst", "bz2": "a.csv.bz2"}[packed]
    with pa.CompressedOutputStream(str(path), packed) as file:
        file.write(text)
    file = Lines(find_sources(path)[0])
    found = []
    while (block := file.take(30_000)) is not None:
        found.append(block.data)
    assert b"".join(found) == text[3:]
    assert file.bytes_read == path.stat().st_size
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(InputError, match=f"truncated, or not a {packed} file"):
        read(path, 30_000)


def test_a_look_ahead_takes_nothing(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"a\nb\nc\n")
    file = Lines(find_sources(tmp_path / "a.csv")[0])
    assert file.peek(2).data == file.peek(2).data == b"a\nb\n"
    assert file.take(9).data == b"a\nb\nc\n"
    assert file.peek(1) is None
