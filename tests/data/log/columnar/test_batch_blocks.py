"""Record batches of any size become blocks of one size."""

import pyarrow as pa

from pbodl.data.features.nested import flattened_table
from pbodl.data.log.columnar.batch_blocks import column_names, skipping
from pbodl.data.log.columnar.memory_rows import MemoryFile
from pbodl.data.log.log_sources import memory_source


def test_blocks_of_one_size():
    table = pa.table({"a": list(range(23)), "b": list(range(23))})
    for batch in (1, 4, 50):
        file = MemoryFile(memory_source(table.to_reader(batch)))
        blocks = list(file.blocks(["b"], 5, 3))
        assert [block.rows for block in blocks] == [5, 5, 5, 5]
        assert [row["b"] for block in blocks for row in block.table.to_pylist()] == list(range(3, 23))
        assert blocks[0].table.column_names == ["b"]


def test_structs_are_taken_apart():
    table = pa.Table.from_pylist([{"a": {"b": {"c": 1}, "d": 2}, "e": 3}])
    assert column_names(table.schema) == ["a.b.c", "a.d", "e"]
    assert flattened_table(table).to_pylist() == [{"a.b.c": 1, "a.d": 2, "e": 3}]


def test_skipping():
    batches = pa.table({"a": list(range(10))}).to_batches(3)
    for start in range(10):
        rest = skipping(iter(batches), start, memory_source([{}]))
        assert [row["a"] for batch in rest for row in batch.to_pylist()] == list(range(start, 10))
