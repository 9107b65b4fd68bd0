"""The logs of the comparison with other tools: generated worlds of three makes, by seed, and files.

Settings are chosen on a log of the same make with another seed (`CHOOSING`); those for a file on the first rows of the file itself,
which favours the tools that have settings to choose.
"""

from pathlib import Path
from typing import NamedTuple

import pbodl
from benchmarks import exchange_world, shop_world
from benchmarks.split import write_log
from pbodl.data.convert import Batch, concat, from_data
from pbodl.data.guess.schema_guess import guess
from pbodl.data.log.log_reader import open_log
from pbodl.data.synthetic import World
from pbodl.training.config import check_config, read_config
from pbodl.training.presets import PRESETS

CHOOSING = {"world": 7, "shop": 1, "exchange": 1}
MAKES = {"world": "Synthetic world", "shop": "Shop", "exchange": "Exchange"}


class PeerLog(NamedTuple):
    """A log by its make and seed, or by its file."""

    make: str  # one of MAKES, or "file"
    seed: int = 0
    rows: int = 0
    path: str = ""
    config: str = ""  # of a file: a file with its [schema], or the name of a preset; without it, the schema is guessed

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
        write_log(folder, self._schema(), self._batch)

    def _schema(self) -> pbodl.Schema:
        if self.make == "file" and not self.config:
            return guess(self.path).schema()
        if self.make == "file":
            return check_config(PRESETS[self.config]() if self.config in PRESETS else read_config(self.config)).schema
        return {"world": World(rows=1).schema, "shop": shop_world.SCHEMA, "exchange": exchange_world.SCHEMA}[self.make]

    def _batch(self, schema: pbodl.Schema) -> Batch:
        if self.make == "world":
            return concat([from_data(schema, part, True) for part in World(seed=self.seed, rows=self.rows).batches()])
        if self.make == "shop":
            return from_data(schema, shop_world.shop_log(self.seed, self.rows), True)
        if self.make == "exchange":
            return from_data(schema, exchange_world.exchange_log(self.seed, self.rows), True)
        with open_log([self.path], schema) as reader:
            return concat([chunk.batch for chunk in reader])
