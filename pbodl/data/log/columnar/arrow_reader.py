"""Arrow's own files (IPC), in the file format, also known as Feather, and in the stream format."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from pbodl.data.log.columnar.batch_blocks import BatchFile, column_names, skipping
from pbodl.data.log.log_sources import LogSource, reading


class ArrowFile(BatchFile):
    """An open Arrow file."""

    def __init__(self, source: LogSource) -> None:
        self.source = source
        self._number = 0  # batches that were read
        with reading(source.name):
            self._file = source.filesystem.open_input_file(source.path)
            magic = self._file.read(6)
            self._file.seek(0)
            self._reader = pa.ipc.open_file(self._file) if magic == b"ARROW1" else pa.ipc.open_stream(self._file)
        self.columns = column_names(self._reader.schema)

    @property
    def bytes_read(self) -> int:
        if isinstance(self._reader, pa.ipc.RecordBatchFileReader):
            return round(self.source.size * min(self._number / max(self._reader.num_record_batches, 1), 1.0))
        return int(self._file.tell())

    def close(self) -> None:
        self._file.close()

    def _batches(self, columns: Sequence[str], size: int, start: int) -> Iterator[pa.RecordBatch]:
        return skipping(self._read(columns), start, self.source)

    def _read(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        tops = {name.split(".")[0] for name in columns} | set(columns)
        wanted = [place for place, name in enumerate(self._reader.schema.names) if name in tops]
        row = 0
        while True:
            with reading(f"{self.source.name}, after row {row},"):
                batch = self._next()
                if batch is None:
                    return
                batch.validate()
            yield batch.select(wanted)
            row += len(batch)

    def _next(self) -> pa.RecordBatch | None:
        if isinstance(self._reader, pa.ipc.RecordBatchFileReader):
            self._number += 1
            return self._reader.get_batch(self._number - 1) if self._number <= self._reader.num_record_batches else None
        try:
            return self._reader.read_next_batch()
        except StopIteration:
            return None
