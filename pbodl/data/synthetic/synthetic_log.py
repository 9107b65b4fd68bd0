"""A click log with known truth, in the shape of Avazu's: `World(...).batches()` and `World(...).write(path)`.

Every row is a function of the seed, the row's number, and the world's `rows` and `days`: rows are drawn in
fixed blocks, whatever the size of the batches they are handed out in. Beside Avazu's columns (all but `id`) a
row has `time`, epoch seconds, finer than `hour`, and `p_true`, the probability its click was drawn with: so
the best possible log loss and AUC are known.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from isal import igzip
from numpy.typing import NDArray

from pbodl.data.schema import Field, Schema
from pbodl.data.synthetic import world
from pbodl.data.synthetic.world import Floats, Impressions, zipf
from pbodl.data.synthetic.world_columns import GROUPS, ORDER, Columns
from pbodl.errors import InputError
from pbodl.system.atomic_files import replacing

BLOCK = 1 << 15
SAMPLE = 4 * BLOCK  # impressions that a world is calibrated on
DRAWS = 14  # uniform numbers a row takes
APP_SHARE, KNOWN_SHARE = 0.37, 0.2  # of the impressions: inside apps; by devices that give an id
SUFFIXES = (".parquet", ".csv", ".csv.gz")


class World:
    """A market of ads over some days, seen through `rows` impressions in time order.

    When you would want it: to try a model, a setting or a pipeline on data of which the best possible result
    is known. Who exists, and what draws clicks, depends on `seed` and `days` alone; `rows` says how densely
    it is observed.

    >>> batch = next(World(seed=0, days=2, rows=1000).batches(100))
    >>> batch.num_rows, batch.column_names[:4]
    (100, ['click', 'time', 'hour', 'C1'])
    """

    def __init__(self, seed: int = 0, days: int = 10, rows: int = 1_000_000) -> None:
        for name, value, least in (("seed", seed, 0), ("days", days, 1), ("rows", rows, 1)):
            if value < least:
                raise InputError(f"{name} is {value}; it must be a whole number of at least {least}")
        self.seed, self.days, self.rows = seed, days, rows
        ads = world.market(seed, days)
        self._geo = world.geography(seed)
        self._columns = Columns(seed, self._geo, ads)
        self._effects = world.Effects(seed, days, self._geo, ads)
        # Ranked by traffic on sites and in apps apart: an ad that is everywhere on sites may be rare in apps.
        ranking = world.rng(seed, "ranking")
        self._ranking = np.stack([ranking.permutation(world.SLOTS) for _ in range(2)]).astype(np.int32)
        sample = world.rng(seed, "sample").random((DRAWS, SAMPLE))
        self._effects.calibrate(self._impressions(sample, np.arange(SAMPLE), SAMPLE))

    @property
    def schema(self) -> Schema:
        """The 22 fields; `hour` stands for the hour of the day."""
        fields = [
            Field(name, group=group, derive="hour_of_day" if name == "hour" else None)
            for group, names in GROUPS.items()
            for name in names
        ]
        return Schema(label="click", time="time", fields=fields)

    def batches(self, batch_rows: int = BLOCK, start: int = 0) -> Iterator[pa.RecordBatch]:
        """All rows from number `start` on, in time order, `batch_rows` at a time (the last batch may be shorter)."""
        if batch_rows < 1:
            raise InputError(f"batch_rows is {batch_rows}; it must be a whole number of at least 1")
        pieces: list[pa.RecordBatch] = []
        wanted = batch_rows
        for first in range(start - start % BLOCK, self.rows, BLOCK):
            block = self._block(first).slice(max(0, start - first))
            while len(block):
                pieces.append(block.slice(0, wanted))
                block = block.slice(len(pieces[-1]))
                wanted -= len(pieces[-1])
                if wanted == 0:
                    yield _joined(pieces)
                    pieces, wanted = [], batch_rows
        if pieces:
            yield _joined(pieces)

    def write(self, path: str | Path, progress: Callable[[int], None] | None = None) -> None:
        """Write all rows to a .parquet, .csv or .csv.gz file; `progress` is told the rows of each batch."""
        path = Path(path)
        check_suffix(path)
        batches = self.batches(4 * BLOCK)
        batch = next(batches)
        with replacing(path, sync=False) as beside, _writer(path.name, beside, batch.schema) as writer:
            while batch is not None:
                writer.write_batch(batch)
                if progress is not None:
                    progress(len(batch))
                batch = next(batches, None)

    def _block(self, first: int) -> pa.RecordBatch:
        """The rows of one block, from row number `first` (a multiple of BLOCK) on."""
        n = min(BLOCK, self.rows - first)
        draws = np.random.Generator(np.random.SFC64([self.seed, first // BLOCK]))
        uniform = draws.random((DRAWS, BLOCK))[:, :n]
        rows = self._impressions(uniform, np.arange(first, first + n), self.rows)
        p_true = world.probability(self._effects.log_odds(rows))
        columns = self._columns.arrow(rows)
        columns["click"] = pa.array((uniform[-1] < p_true).astype(np.int8))
        columns["p_true"] = pa.array(p_true)
        return pa.record_batch({name: columns[name] for name in ORDER})

    def _impressions(self, uniform: Floats, number: NDArray[np.int64], count: int) -> Impressions:
        """Rows `number` of `count` spread over the days; their last uniform number is left for the click."""
        u = iter(uniform)
        time = _time((number + next(u)) / count, self.days)
        in_app, rank = next(u) < APP_SHARE, next(u)
        place = np.where(in_app, world.SITES + zipf(rank, world.APPS, 0.9), zipf(rank, world.SITES, 1.1))
        chance = next(u)
        banner = np.where(chance < 0.08, (chance < 0.04).astype(np.int32), self._geo.banner[place])
        device = np.where(next(u) < KNOWN_SHARE, 1 + zipf(next(u), world.DEVICES - 1, 0.7), 0)
        model = np.where(device > 0, self._geo.device_model[device], zipf(next(u), world.MODELS, 0.9))
        at_home = (device > 0) & (next(u) < 0.7)
        address = np.where(at_home, self._geo.device_address[device], zipf(next(u), world.ADDRESSES, 0.8))
        # The rarest kind of connection occurs in apps alone.
        connection = np.searchsorted([0.82, 0.93, 0.98], next(u) * np.where(in_app, 1.0, 0.98))
        slot = self._ranking[in_app.astype(np.int32), zipf(next(u), world.SLOTS, 0.8)]
        return Impressions(
            time=time, day=time // 86400, hour=time // 3600 % 24, place=place, banner=banner, model=model,
            device=device, address=address, connection=connection, slot=slot, direct=next(u) < 0.5,
        )  # fmt: skip


def write_rows(path: Path, table: pa.Table) -> None:
    """Write a table to a .parquet, .csv or .csv.gz file."""
    check_suffix(path)
    lists = [field.name for field in table.schema if pa.types.is_nested(field.type)]
    if lists and not path.name.endswith(".parquet"):
        raise InputError(f"the column {lists[0]!r} holds lists or structs, which CSV cannot; write a .parquet file instead")
    with replacing(path, sync=False) as beside, _writer(path.name, beside, table.schema, quoting="needed") as writer:
        writer.write_table(table)


def check_suffix(path: Path) -> None:
    """Refuse a name whose format cannot be written."""
    if not path.name.endswith(SUFFIXES):
        raise InputError(f"cannot tell the format of {path.name!r}: it must end in one of {', '.join(SUFFIXES)}")


def _time(share: Floats, days: int) -> NDArray[np.int64]:
    """Seconds since the first midnight when this share of the traffic has passed: thin at night."""
    hourly = np.tile(1.0 + 0.6 * np.sin(2 * np.pi * (np.arange(24) - 9) / 24), days)
    passed = np.concatenate([[0.0], np.cumsum(hourly)]) / hourly.sum()
    seconds = np.interp(share, passed, np.arange(passed.size) * 3600.0)
    return np.minimum(seconds.astype(np.int64), days * 86400 - 1)


def _joined(pieces: list[pa.RecordBatch]) -> pa.RecordBatch:
    return pieces[0] if len(pieces) == 1 else pa.Table.from_batches(pieces).combine_chunks().to_batches()[0]


@contextmanager
def _writer(name: str, path: Path, schema: pa.Schema, quoting: str = "none") -> Iterator[Any]:
    """A Parquet or CSV writer onto `path`, of the format that `name` asks for."""
    if name.endswith(".parquet"):
        # Columns of nearly as many values as rows: a dictionary of them costs time and saves no space.
        repeating = [name for name in schema.names if name not in ("time", "device_ip", "p_true")]
        with pa.parquet.ParquetWriter(path, schema, compression="zstd", use_dictionary=repeating) as writer:
            yield writer
        return
    options = pa.csv.WriteOptions(include_header=False, quoting_style=quoting)
    with path.open("wb") as raw, ExitStack() as stack:
        # Without a name and a time in its header, so that the same world gives the same bytes.
        file = stack.enter_context(igzip.IGzipFile("", "wb", 1, raw, 0)) if name.endswith(".gz") else raw
        file.write(f"{','.join(schema.names)}\n".encode())
        yield stack.enter_context(pa.csv.CSVWriter(file, schema, write_options=options))
