"""Texts split into values."""

import pyarrow as pa
import pytest

from pbodl.data.features.tokens import pieces, split_texts


@pytest.mark.parametrize("split", ["|", ", ", "words"])
def test_arrays_against_single_texts(split):
    texts = ["a|b", "Straße, ΣΑΣ", "x_1 y-2", None, "", "a, b|c, a", "!"]
    comp = split_texts(pa.array(texts), split).to_pylist()
    assert comp == [pieces(text, split) if text else None for text in texts]


def test_dictionaries():
    assert split_texts(pa.array(["a b", "a b", "c"]).dictionary_encode(), "words").to_pylist() == [["a", "b"], ["a", "b"], ["c"]]
