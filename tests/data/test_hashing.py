"""The vectorised hash against its twin in Python integers, golden values, and every Arrow type."""

import datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pbodl.data.hashing import canonical_text, field_seed, hash_array, hash_integers, hash_strings, hash_value
from pbodl.errors import InputError
from tests.oracles import hashing as oracle

pytestmark = pytest.mark.nojit

SEED = field_seed("site_id")
GOLDEN = {
    ("ad_id", None): 0xA373159F715E3CF1,
    ("ad_id", "123"): 0x5BEA652D30D1144B,
    ("ad_id", "85f751fd"): 0x6689F815AB5A2A6F,
    ("user_id", "85f751fd"): 0x32FED94822BD0979,
    ("site_id", "a text of more than one word"): 0x1785865A9410AFD0,
    ("größe", "ü"): 0x510D2CB5C00B2157,
    ("price", -12): 0x120B6254FA311BCB,
}


def keys_of(values: list) -> list[int]:
    return [hash_value("site_id", value) for value in values]


def test_golden_values():
    # These keys stand in every saved model: they never change.
    comp = [hash_value(*pair) for pair in GOLDEN]
    assert comp == list(GOLDEN.values())


@given(st.binary(max_size=40), st.text(min_size=1, max_size=20))
def test_equals_the_twin(text, name):
    ref = oracle.key(name, text)
    comp = hash_value(name, text)
    assert comp == ref


@given(st.lists(st.one_of(st.none(), st.text(max_size=20))))
def test_arrow_strings_equal_single_values(values):
    ref = keys_of(values)
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        comp = hash_array(pa.array(values, kind), SEED)
        assert comp.tolist() == ref
    comp = hash_array(pa.array(values, pa.string()).dictionary_encode(), SEED)
    assert comp.tolist() == ref


@given(st.lists(st.integers(-(2**63), 2**63 - 1)), st.integers(1, 3))
def test_integers_hash_as_their_decimal_text(values, repeats):
    values = values * repeats
    ref = keys_of([str(value) for value in values])
    assert keys_of(values) == ref
    comp = hash_integers(np.array(values, dtype=np.int64), SEED)
    assert comp.tolist() == ref


def test_few_distinct_integers_take_the_short_cut():
    values = [-3, 5, 0, 5, -3, 7, 5, 5, 5, 5] * 10
    ref = keys_of(values)
    comp = hash_integers(np.array(values, dtype=np.int64), SEED)
    assert comp.tolist() == ref


@pytest.mark.parametrize(
    "array",
    [
        pa.array([1, None, 255], pa.uint8()),
        pa.array([2**64 - 1, None, 0], pa.uint64()),
        pa.array([-5, None, 7], pa.int16()),
        pa.array([1.0, None, 2.5, float("nan"), -0.0, 1e300, 2.0**63, -(2.0**63), 1e15, float("inf")]),
        pa.array([1.0, None, 0.1], pa.float32()),
        pa.array([True, None, False]),
        pa.array([b"a", None, b"", b"\xff\x00"], pa.binary()),
        pa.array([b"a", None, b""], pa.large_binary()),
        pa.array([b"a", None, b""], pa.binary_view()),
        pa.array([b"ab", None], pa.binary(2)),
        pa.array([None, None], pa.null()),
        pa.array([datetime.date(2014, 10, 21), None]),
        pa.array([datetime.datetime(2014, 10, 21, 3), None]),
        pa.array([1, None, 3, 1], pa.int64()).dictionary_encode(),
        pa.array(["x", None, "longer than eight bytes", ""]).dictionary_encode(),
        pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array(["x", None])),
    ],
    ids=lambda array: str(array.type),
)
def test_every_type_hashes_as_its_python_values(array):
    ref = keys_of(array.to_pylist())
    comp = hash_array(array, SEED)
    assert comp.dtype == np.uint64
    assert comp.tolist() == ref
    for start in (0, 1, len(array)):
        assert hash_array(array.slice(start), SEED).tolist() == ref[start:]


def test_short_slice_of_a_long_dictionary():
    array = pa.array([f"ad {i}" for i in range(100)]).dictionary_encode().slice(40, 3)
    ref = keys_of(["ad 40", "ad 41", "ad 42"])
    comp = hash_array(array, SEED)
    assert comp.tolist() == ref


def test_a_value_at_the_end_of_the_buffer_is_read_within_bounds():
    # Arrow pads its buffers, others do not: wrap exactly the bytes of the text.
    data = b"abcdefghijk"
    offsets = np.array([0, 3, 11], dtype=np.int32)
    strings = pa.StringArray.from_buffers(2, pa.py_buffer(offsets), pa.py_buffer(data))
    comp = hash_strings(strings, SEED)
    assert comp.tolist() == keys_of(["abc", "defghijk"])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("123", b"123"),
        (123, b"123"),
        (123.0, b"123"),
        (np.int8(123), b"123"),
        (np.float32(123), b"123"),
        (-0.0, b"0"),
        (0.5, b"0.5"),
        (1e22, b"1e+22"),
        (10**30, b"1000000000000000000000000000000"),
        (True, b"true"),
        (np.bool_(False), b"false"),
        (None, b""),
        (float("nan"), b""),
        (np.float64("nan"), b""),
        ("", b""),
        (" ", b" "),
        (np.str_("é"), "é".encode()),
        (b"\x00", b"\x00"),
        (datetime.date(2014, 10, 21), b"2014-10-21"),
    ],
)
def test_canonical_text(value, text):
    assert canonical_text(value) == text


def test_values_without_canonical_text_are_refused():
    with pytest.raises(InputError, match="type list"):
        hash_value("a", [1])
    with pytest.raises(InputError, match="cannot be a feature"):
        hash_array(pa.array([[1]]), SEED)


def test_fields_do_not_share_keys():
    names = [f"field {i}" for i in range(200)]
    keys = {hash_value(name, value) for name in names for value in ("", "a", 1, "scale")}
    assert len(keys) == 800


def test_no_collisions_and_even_bits():
    keys = hash_integers(np.arange(2**16, dtype=np.int64) * 257, SEED)
    assert len(np.unique(keys)) == len(keys)
    bits = (keys[:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)
    # Every bit is set in half of the keys, within 5 standard errors.
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 5 * 0.5 / np.sqrt(len(keys))


def test_one_bit_of_the_text_changes_half_of_the_bits_of_the_key():
    rng = np.random.default_rng(0)
    changed = []
    for length in (1, 7, 8, 9, 16, 33):
        for _ in range(50):
            text = bytearray(rng.bytes(length))
            before = hash_value("a", bytes(text))
            text[rng.integers(length)] ^= 1 << rng.integers(8)
            changed.append((before ^ hash_value("a", bytes(text))).bit_count())
    assert abs(np.mean(changed) - 32) < 5 * 4 / np.sqrt(len(changed))
