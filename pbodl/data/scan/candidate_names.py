"""What a scan of a request's body looks for: the list of candidates, and the names of their fields."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl._jit import inlined
from pbodl.data.hashing import field_seed, hash_span, hash_value, word_at
from pbodl.data.scan.values import NIL, NO, TEXT, WHOLE, YES, whole_key

LISTED = "candidates"
ELSEWHERE, NO_ROOM = -1, -2  # in place of a number of candidates: this is no plain case; there are more than there is room for
HEAD = 4  # eights of bytes
U0 = np.uint64(0)


class CandidateNames(NamedTuple):
    """What a scan looks for: the name of the list, and then those of the fields."""

    text: NDArray[np.uint8]  # all names in a row
    begins: NDArray[np.int64]  # of each in it, and where the last ends
    seeds: NDArray[np.uint64]  # of the values' keys, by field
    missing: NDArray[np.uint64]  # key of a missing value, by field
    words: NDArray[np.uint8]  # "truefalse"
    heads: NDArray[np.uint64]  # (fields, HEAD): how a field mostly begins, up to its value, eight bytes to a number
    masks: NDArray[np.uint64]  # (fields, HEAD): which of these bytes count
    lengths: NDArray[np.int64]  # of the heads; 0 where there is none


def names_of(fields: Sequence[str], encoding: Any, between: bytes) -> CandidateNames:
    """The names of the candidates' fields; `between` stands between a name and its value, if that is a text."""
    texts = [name.encode() for name in (LISTED, *fields)]
    heads = [encoding.encode(name) + between for name in fields]
    heads = [head if len(head) <= 8 * HEAD else b"" for head in heads]
    padded = b"".join(head.ljust(8 * HEAD, b"\0") for head in heads)
    masks = b"".join((b"\xff" * len(head)).ljust(8 * HEAD, b"\0") for head in heads)
    return CandidateNames(
        np.frombuffer(b"".join(texts), np.uint8), np.cumsum([0, *map(len, texts)]),
        np.array([field_seed(name) for name in fields], np.uint64),
        np.array([hash_value(name, None) for name in fields], np.uint64), np.frombuffer(b"truefalse", np.uint8),
        np.frombuffer(padded, "<u8").reshape(-1, HEAD), np.frombuffer(masks, "<u8").reshape(-1, HEAD),
        np.array(list(map(len, heads))),
    )  # fmt: skip


@inlined
def is_name(data, first, second, names, which):
    """Whether data[first:second] is a name."""
    begin = names.begins[which]
    if names.begins[which + 1] - begin != second - first:
        return False
    differ = 0
    for i in range(second - first):
        differ += data[first + i] != names.text[begin + i]
    return differ == 0


@inlined
def field_at(data, first, second, names, expected):
    """The field of a name, -1 if it is none; candidates mostly name their fields in the same order."""
    count = len(names.seeds)
    if expected < count and is_name(data, first, second, names, expected + 1):
        return expected
    for field in range(count):
        if is_name(data, first, second, names, field + 1):
            return field
    return -1


@inlined
def key_of(data, what, first, second, seed, words, digits):
    """The key of a value, and whether this is a plain case. MODIFIES: digits, which is scratch."""
    if what == TEXT:
        return hash_span(data, first, second, seed), True
    if what == WHOLE:
        return whole_key(first, seed, digits), True
    if what == YES:
        return hash_span(words, 0, 4, seed), True
    if what == NO:
        return hash_span(words, 4, 9, seed), True
    return hash_span(words, 0, 0, seed), what == NIL


@inlined
def behind_head(data, place, end, names, field):
    """The place behind a field's head, if it stands here as it mostly does; else -1."""
    if field >= len(names.lengths) or place + 8 * HEAD > end:
        return -1
    differ = U0
    for i in range(HEAD):
        differ |= (word_at(data, place + 8 * i) ^ names.heads[field, i]) & names.masks[field, i]
    return place + names.lengths[field] if differ == U0 and names.lengths[field] > 0 else -1
