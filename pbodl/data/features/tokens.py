"""A text that is a list of values: split at a sign such as `|`, or into its words."""

import re

import pyarrow as pa
import pyarrow.compute as pc

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
    """
    return WORD.findall(text.lower()) if split == WORDS else text.split(split)


def holds_lists(kind: pa.DataType) -> bool:
    """Whether the values of an Arrow type are lists."""
    return any(is_kind(kind) for is_kind in LIST_KINDS)


def split_texts(texts: pa.Array, split: str) -> pa.Array:
    """The lists of an array of texts; an empty text is missing."""
    texts = pc.cast(texts, pa.large_string())
    there = pc.if_else(pc.equal(texts, ""), pa.nulls(len(texts), texts.type), texts)
    if split != WORDS:
        return pc.split_pattern(there, split)
    # Python splits, for the same words as from dicts; each distinct text once.
    coded = pc.dictionary_encode(there)
    lists = pa.array([pieces(text, split) for text in coded.dictionary.to_pylist()], pa.large_list(pa.large_string()))
    return lists.take(coded.indices)
