"""What a router and the servers of shares say to each other, in msgpack. Arrays travel as bytes, low byte first.

GET  /v1/share?using=VERSION      `ShareState`: which share this is, and which versions it has
GET  /v1/share/model?version=V    `Announcement`: the model of a version without its rows
POST /v1/share/rows               `RowsAsked` -> `RowsFound`: the rows of some keys in a version
"""

from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from pbodl.errors import InputError
from pbodl.serving.scoring.packed_rows import COLUMN, PackedTable

STATE, MODEL, ROWS = "/v1/share", "/v1/share/model", "/v1/share/rows"
GONE = 409  # the status of an answer about a version that the server does not have


class ShareState(msgspec.Struct):
    number: int
    shares: int
    versions: list[tuple[int, float]]  # number and time of publication; newest first
    features: int  # rows of the newest


class RowsAsked(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    version: int
    keys: bytes


class RowsFound(msgspec.Struct, array_like=True):
    version: int
    places: bytes  # int32: which of the keys have rows; the others are at their prior
    weights: bytes  # float32, packed (`packed_rows`)
    last_seen: bytes  # float64


class FoundRows(NamedTuple):
    """Rows as arrays."""

    keys: NDArray[np.uint64]  # all that were asked for
    places: NDArray[np.int32]  # which of them have rows
    weights: NDArray[np.float32]
    last_seen: NDArray[np.float64]


def rows_found(version: int, table: PackedTable, keys: NDArray[np.uint64]) -> bytes:
    """The answer of a server that holds a table."""
    rows = table.find(keys)
    places = np.flatnonzero(rows >= 0).astype("<i4")
    at = rows[places]
    found = RowsFound(version, places.tobytes(), table.column(COLUMN)[at].astype("<f4", copy=False).tobytes(), b"")
    found.last_seen = table.last_seen[at].astype("<f8", copy=False).tobytes()
    return msgspec.msgpack.encode(found)


def found_rows(answer: bytes, version: int, keys: NDArray[np.uint64], width: int) -> FoundRows:
    """The rows in an answer; InputError if it is not one to this question."""
    try:
        told = msgspec.msgpack.decode(answer, type=RowsFound)
        places, last_seen = np.frombuffer(told.places, "<i4"), np.frombuffer(told.last_seen, "<f8")
        weights = np.frombuffer(told.weights, "<f4").reshape(len(places), width)
    except (msgspec.MsgspecError, ValueError) as error:
        raise InputError(f"the shard's answer cannot be read ({error})") from error
    sound = told.version == version and len(last_seen) == len(places)
    if not sound or (len(places) and (places[0] < 0 or places[-1] >= len(keys) or (np.diff(places) <= 0).any())):
        raise InputError("the shard's answer belongs to another question")
    return FoundRows(keys, places, weights, last_seen)
