"""Arrow's files, in both formats, and Parquet with dictionaries and structs, against rows in memory."""

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from pbodl import Field, InputError, Schema
from pbodl.data.log.log_reader import open_log

SCHEMA = Schema(label="click", fields=[Field("user.device.os"), Field("ad")])
ROWS = pa.Table.from_pylist([{"click": n % 2, "ad": f"a{n % 3}", "user": {"device": {"os": n % 5}}} for n in range(30)])
ROWS = ROWS.set_column(1, "ad", ROWS.column("ad").dictionary_encode())


def stream(path):
    with pa.ipc.new_stream(path, ROWS.schema) as writer:
        writer.write_table(ROWS, max_chunksize=7)


WRITERS = {
    "a.arrow": lambda path: pa.feather.write_feather(ROWS, path, chunksize=7),
    "a.feather": lambda path: pa.feather.write_feather(ROWS, path, compression="lz4"),
    "a.arrows": stream,
    "nameless": stream,
    "a.parquet": lambda path: pa.parquet.write_table(ROWS, path, row_group_size=11),
}


def read(source, **options):
    with open_log(source, SCHEMA, batch_rows=8, **options) as reader:
        return list(reader)


@pytest.mark.parametrize("name", WRITERS)
def test_files_against_memory(tmp_path, name):
    WRITERS[name](str(tmp_path / name))
    ref, comp = read(ROWS), read(tmp_path / name)
    assert [c.batch.keys.tolist() for c in comp] == [c.batch.keys.tolist() for c in ref]
    assert [len(c.batch) for c in comp] == [8, 8, 8, 6]
    rest = read(tmp_path / name, start=comp[1].position)
    assert [c.batch.keys.tolist() for c in rest] == [c.batch.keys.tolist() for c in ref[2:]]
    assert comp[-1].bytes_read == (tmp_path / name).stat().st_size


def test_damage(tmp_path):
    stream(str(tmp_path / "a.arrows"))
    content = (tmp_path / "a.arrows").read_bytes()
    (tmp_path / "a.arrows").write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match=r"a.arrows, after row \d+, cannot be read"):
        read(tmp_path / "a.arrows")
    with pytest.raises(InputError, match=r"cannot be read"):
        (tmp_path / "b.arrow").write_bytes(b"ARROW1")
        read(tmp_path / "b.arrow")
