"""A text that is a list of values: split at a sign such as `|`, into its words, or read as JSON if it is a list there."""

import re

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from pbodl.data.hashing import canonical_text

LIST_KINDS = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
)
WORDS = "words"
WORD = re.compile(r"\w+")


def pieces(text: str, split: str) -> list[str]:
    """The values of a text.

    >>> pieces("a|b", "|"), pieces("Red shoes, size 42!", "words")
    (['a', 'b'], ['red', 'shoes', 'size', '42'])
    >>> pieces('["a|b", 7]', "|")
    ['a|b', '7']
    """
    if text.startswith("[") and (values := list_of(text)) is not None:
        return values
    return WORD.findall(text.lower()) if split == WORDS else text.split(split)


def list_of(text: str) -> list[str] | None:
    """The values of a list that a text holds as JSON, as texts; None if it holds none, or lists and objects inside of one."""
    try:
        values = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(values, list) or any(isinstance(value, (list, dict)) for value in values):
        return None
    return [canonical_text(value).decode() for value in values]


def holds_lists(kind: pa.DataType) -> bool:
    """Whether the values of an Arrow type are lists."""
    return any(is_kind(kind) for is_kind in LIST_KINDS)


def split_texts(texts: pa.Array, split: str) -> pa.Array:
    """The lists of an array of texts; an empty text is missing."""
    texts = pc.cast(texts, pa.large_string())
    there = pc.if_else(pc.equal(texts, ""), pa.nulls(len(texts), texts.type), texts)
    if split != WORDS and not pc.any(pc.starts_with(there, "[")).as_py():
        return pc.split_pattern(there, split)
    # Python splits, for the same values as from dicts; each distinct text once.
    coded = pc.dictionary_encode(there)
    lists = pa.array([pieces(text, split) for text in coded.dictionary.to_pylist()], pa.large_list(pa.large_string()))
    return lists.take(coded.indices)
