"""Small logs as the trainer sees them, and runs trained on them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet

from pbodl.data.convert import from_data
from pbodl.data.log.log_reader import Chunk, LogPosition
from pbodl.data.schema import Schema
from pbodl.training.config import Config, check_config
from pbodl.training.session import train
from tests.click_log import RICH, click_log


def chunks(rows: Sequence[dict[str, Any]], schema: Schema = RICH, size: int = 100, labelled: bool = True) -> list[Chunk]:
    """The rows as a reader hands them over."""
    table = pa.Table.from_pylist(list(rows))
    pieces = [table.slice(start, size) for start in range(0, len(rows), size)]
    return [Chunk(from_data(schema, piece, labelled), LogPosition(), piece) for piece in pieces]


def small_config(schema: dict[str, Any] | None = None, training: dict[str, Any] | None = None, **model: Any) -> Config:
    """A configuration of a model that is small enough for tests; RICH is its schema by default."""
    shape = {"dim": 3, "hidden": [4]} if "mlp" in model.get("kind", "fm-mlp") else {}
    return check_config({"schema": schema or msgspec.to_builtins(RICH), "model": {**shape, **model}, "training": training or {}})


def write_log(path: Path, rows: int, seed: int = 0) -> str:
    """A click log as a Parquet file; its path."""
    pa.parquet.write_table(pa.Table.from_pylist(click_log(rows, seed)), path)
    return str(path)


def trained_run(folder: Path, rows: int = 600, keep_names: bool = True, config: Config | None = None) -> Path:
    """A run folder, trained on a small log."""
    train(config or small_config(), [write_log(folder / "log.parquet", rows)], folder / "run", keep_names=keep_names)
    return folder / "run"
