"""The fast way from a request's body to its candidates' keys: one compiled pass reads JSON or msgpack and hashes the values.

It handles the plain case alone: one list `candidates` of objects whose values are texts, integers, true, false or null in known
fields. It leaves everything else (escapes, fractions, nested values, unknown fields, any fault) to `http_messages`, which knows all
cases and explains errors. `http_messages` always reads the rest of the body, with an empty list in place of the candidates, so both
ways refuse a body that is not a valid request. Both ways give the same keys; tests compare them.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl.data.hashing import field_seed, wrapping
from pbodl.data.scan.object_walk import NO_ROOM, names_of, scan_body
from pbodl.data.schema import Field

USUAL_BYTES = 64  # of a candidate; most have more
MOST = 100_000  # candidates that are read here, if no number is given; longer lists take the general way


class Listed(NamedTuple):
    """The candidates' keys; their list is body[begin:end]."""

    keys: NDArray[np.uint64]  # (candidates, fields)
    begin: int
    end: int


class Scanner:
    """Reads the candidates of JSON bodies, or of msgpack bodies.

    >>> from pbodl.data.hashing import hash_value
    >>> body = b'{"candidates": [{"ad": 7}, {"ad": "7"}], "detail": true}'
    >>> listed = Scanner([Field("ad")], is_json=True).read(body)
    >>> listed.keys.tolist() == 2 * [[hash_value("ad", 7)]], body[listed.begin : listed.end]
    (True, b'[{"ad": 7}, {"ad": "7"}]')
    """

    def __init__(self, fields: Sequence[Field], is_json: bool, retired: Sequence[str] = ()) -> None:
        self._names, self._is_json = names_of((), fields, is_json, retired), is_json
        self._width = len(fields)
        self._listed = field_seed("candidates")  # a field's seed is the hash of its name

    def read(self, body: bytes, most: int = MOST) -> Listed | None:
        """The candidates of a body; None if it is not a plain case, or if there are more than one over `most`."""
        data = np.frombuffer(body, np.uint8)
        for room in (min(len(data) // USUAL_BYTES, most) + 1, min(len(data), most + 1)):
            keys = np.empty((room, self._width), np.uint64)
            with wrapping():
                n, begin, end = scan_body(data, self._names, self._listed, keys, np.zeros(32, np.uint8), self._is_json)
            if n != NO_ROOM:
                break
        return Listed(keys[:n], begin, end) if n > 0 else None
