"""The logs of the comparison with other tools: generated worlds of two makes, by seed, and files.

Settings are chosen on a log of the same make with another seed (`CHOOSING`); those for a file on the first rows of the file itself,
which favours the tools that have settings to choose.
"""

from pathlib import Path
from typing import NamedTuple

import pbodl
from benchmarks.shop_world import SCHEMA, shop_log
from benchmarks.split import write_log
from pbodl.data.convert import Batch, concat, from_data
from pbodl.data.log.log_reader import open_log
from pbodl.data.synthetic import World
from pbodl.experiments.compare.lightgbm_rival import with_raw_numbers
from pbodl.training.config import read_config

CHOOSING = {"world": 7, "shop": 1}
MAKES = {"world": "Synthetic world", "shop": "Shop"}


class PeerLog(NamedTuple):
    """A log by its make and seed, or by its file."""

    make: str  # "world", "shop" or "file"
    seed: int = 0
    rows: int = 0
    path: str = ""
    config: str = ""

    @property
    def name(self) -> str:
        """A name for files."""
        return Path(self.path).name.split(".")[0] if self.make == "file" else f"{self.make}-{self.seed}-{self.rows}"

    @property
    def title(self) -> str:
        return self.name if self.make == "file" else f"{MAKES[self.make]}, seed {self.seed}, {self.rows:,} rows"

    def to_choose_by(self) -> "PeerLog":
        """The log that settings for this one are chosen on."""
        return self if self.make == "file" else self._replace(seed=CHOOSING[self.make])

    def write(self, folder: Path) -> None:
        """Make the rows, or read them, and write them to the folder, unless they are there."""
        if (folder / "raw.json").exists():
            return
        schema = World(rows=1).schema if self.make == "world" else SCHEMA
        if self.make == "file":
            schema = read_config(self.config).schema
        raw = with_raw_numbers(schema)
        batch = self._batch(schema)
        write_log(folder, schema, batch, raw, batch if raw == schema else self._batch(raw))

    def _batch(self, schema: pbodl.Schema) -> Batch:
        if self.make == "world":
            return concat([from_data(schema, part, True) for part in World(seed=self.seed, rows=self.rows).batches()])
        if self.make == "shop":
            return from_data(schema, shop_log(self.seed, self.rows), True)
        with open_log([self.path], schema) as reader:
            return concat([chunk.batch for chunk in reader])
