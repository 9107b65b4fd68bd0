"""The fast way from a request's body to its candidates' keys: JSON and msgpack are read, and values hashed, in one compiled pass.

It handles the plain case alone: one list `candidates`, of objects whose values are texts, integers, true, false or null in known
fields. Whatever else it meets (escapes, fractions, nested values, unknown fields, any fault) it leaves to `http_messages`, which
knows all cases and explains errors. `http_messages` always reads the rest of the body, with an empty list in place of the
candidates, so a body that is no valid request is refused either way. Both ways give the same keys; tests compare them.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from pbodl.data.hashing import wrapping
from pbodl.data.scan.candidate_names import NO_ROOM, names_of
from pbodl.data.scan.candidates_json import scan_json
from pbodl.data.scan.candidates_msgpack import scan_msgpack

USUAL_BYTES = 64  # of a candidate in a body, and more as a rule
MOST = 100_000  # candidates that are read here


class Listed(NamedTuple):
    """The candidates' keys, and the list's place in the body."""

    keys: NDArray[np.uint64]  # (candidates, fields)
    begin: int
    end: int


class Scanner:
    """Reads the candidates of JSON bodies, or of msgpack bodies.

    >>> from pbodl.data.hashing import hash_value
    >>> body = b'{"candidates": [{"ad": 7}, {"ad": "7"}], "detail": true}'
    >>> listed = Scanner(["ad"], is_json=True).read(body)
    >>> listed.keys.tolist() == 2 * [[hash_value("ad", 7)]], body[listed.begin : listed.end]
    (True, b'[{"ad": 7}, {"ad": "7"}]')
    """

    def __init__(self, fields: Sequence[str], is_json: bool) -> None:
        self._scan = scan_json if is_json else scan_msgpack
        self._names = names_of(fields, msgspec.json if is_json else msgspec.msgpack, b':"' if is_json else b"")

    def read(self, body: bytes) -> Listed | None:
        """The candidates of a body; None: it is no plain case."""
        data = np.frombuffer(body, np.uint8)
        for room in (len(data) // USUAL_BYTES + 1, min(len(data), MOST)):
            keys = np.empty((room, len(self._names.seeds)), np.uint64)
            with wrapping():
                n, begin, end = self._scan(data, self._names, keys, np.zeros(32, np.uint8))
            if n != NO_ROOM:
                break
        return Listed(keys[:n], begin, end) if n > 0 else None
