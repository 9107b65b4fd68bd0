"""Feature keys: a stable 64-bit hash of (field, value), equal for `123` and `"123"`, on every machine and in every release.

A value is hashed as its canonical text: a string as it is; an integer in decimal; a float without fraction as that integer, any
other float by `repr`; a bool as "true" or "false"; bytes as they are; dates and times in ISO 8601. None, NaN and "" are all the
empty text, whose key means *missing*.

The hash reads the text in 8-byte little-endian words (the last one padded with zeros), in 64-bit integer arithmetic alone:

    state = seed + GOLDEN * length
    for each word:  state = C2 * rotate(state ^ (C1 * word ^ (C1 * word) >> 32), 29)
    key = mix(state)                       # two multiplications between three xor-shifts

where the seed is the key of the field's name. For texts of one word and one length the map is one to one. It does not resist an
attacker who *chooses* values that collide. Golden values in the tests keep it from changing.
"""

import datetime
import functools
from contextlib import AbstractContextManager, nullcontext
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pbodl._jit import inlined, jit
from pbodl.errors import InputError
from pbodl.mixing import GOLDEN, mix

C1 = np.uint64(0xD6E8FEB86659FD93)
C2 = np.uint64(0xA0761D6478BD642F)
NAME_SEED = 0x5042_4F44_4C00_0001
U1, U2, U3, U4, U5, U6, U7 = (np.uint64(n) for n in range(1, 8))
U8, U10, U16, U24, U27, U29 = (np.uint64(n) for n in (8, 10, 16, 24, 27, 29))
U30, U31, U32, U35, U48, U64 = (np.uint64(n) for n in (30, 31, 32, 35, 48, 64))
ZERO = np.uint64(0)
ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
# Numbers with transform="scale" have one feature, whatever the number: its key is that of this text.
SCALE_TEXT = "scale"
# Floats up to here are exact as 64-bit integers.
INTEGER_LIMIT = 2.0**63


@inlined
def _stir(state, word):
    word = word * C1
    word = word ^ (word >> U32)
    state = state ^ word
    return ((state << U29) | (state >> U35)) * C2


@inlined
def word_at(data, place):
    """The eight bytes from an offset on, little-endian. It is written out, with unsigned offsets that cannot count from the end, so
    that the compiler makes it one load."""
    i = np.uint64(place)
    low = np.uint64(data[i]) | np.uint64(data[i + U1]) << U8 | np.uint64(data[i + U2]) << U16 | np.uint64(data[i + U3]) << U24
    high = np.uint64(data[i + U4]) | np.uint64(data[i + U5]) << U8 | np.uint64(data[i + U6]) << U16 | np.uint64(data[i + U7]) << U24
    return low | high << U32


@inlined
def hash_span(data, start, end, seed):
    """The key of the text data[start:end]."""
    state = seed + GOLDEN * np.uint64(end - start)
    i = start
    while i + 8 <= end:
        state = _stir(state, word_at(data, i))
        i += 8
    if i < end:
        left = np.uint64(8 * (end - i))
        if i + 8 <= data.shape[0]:
            word = word_at(data, i) & (ALL >> (U64 - left))
        else:
            word = ZERO
            for j in range(end - 1, i - 1, -1):
                word = word << U8 | np.uint64(data[j])
        state = _stir(state, word)
    return mix(state)


@inlined
def hash_keys(keys, seed):
    """The key of several keys together, in their order: that of a text of their bytes."""
    state = seed + GOLDEN * np.uint64(8 * len(keys))
    for i in range(len(keys)):
        state = _stir(state, keys[i])
    return mix(state)


@jit
def _hash_spans(data, offsets, seed, keys):
    for i in range(keys.shape[0]):
        keys[i] = hash_span(data, np.int64(offsets[i]), np.int64(offsets[i + 1]), seed)


@jit
def _hash_fields(data, offsets, seeds, fields, keys):
    for i in range(keys.shape[0]):
        keys[i] = hash_span(data, offsets[i], offsets[i + 1], seeds[fields[i]])


@inlined
def hash_integer(value, seed, digits):
    """The key of an integer: that of its decimal text. MODIFIES: digits, scratch for 32 of them."""
    # The digits are written from the right and end at index 20; behind them, there is room to read a whole word at any digit.
    left = np.uint64(-value) if value < 0 else np.uint64(value)
    start = 20
    while True:
        start -= 1
        digits[start] = np.uint8(U48 + left % U10)
        left = left // U10
        if left == ZERO:
            break
    if value < 0:
        start -= 1
        digits[start] = 45
    return hash_span(digits, start, 20, seed)


@jit
def _hash_integers(values, seed, keys):
    digits = np.zeros(32, dtype=np.uint8)
    for i in range(values.shape[0]):
        keys[i] = hash_integer(values[i], seed, digits)


def wrapping() -> AbstractContextManager:
    """For calls of kernels that count modulo 2⁶⁴: as plain Python, NumPy would warn about every overflow."""
    return nullcontext() if hasattr(mix, "py_func") else np.errstate(over="ignore")


def _bytes(buffer: Any) -> NDArray[np.uint8]:
    """A read-only view of a buffer: always of one Numba type, so that the kernels are compiled once."""
    view = np.frombuffer(buffer, dtype=np.uint8) if buffer is not None else np.empty(0, dtype=np.uint8)
    view.flags.writeable = False
    return view


@functools.lru_cache(maxsize=4096)
def field_seed(name: str) -> np.uint64:
    """The seed of a field's keys: the key of its name."""
    return np.uint64(hash_texts([name.encode()], np.array([NAME_SEED], dtype=np.uint64), np.zeros(1, dtype=np.int32))[0])


def canonical_text(value: Any) -> bytes:
    """The text under which a Python value is hashed; empty for a missing one.

    >>> [canonical_text(value) for value in (123, 123.0, "123", True, None)]
    [b'123', b'123', b'123', b'true', b'']
    """
    kind = type(value)
    if kind is str:
        return value.encode("utf-8", "surrogatepass")
    if kind is int:
        return b"%d" % value
    if value is None:
        return b""
    if isinstance(value, (bool, np.bool_)):
        return b"true" if value else b"false"
    if isinstance(value, (int, np.integer)):
        return b"%d" % int(value)
    if isinstance(value, (float, np.floating)):
        value = float(value)
        if value != value:
            return b""
        return b"%d" % int(value) if value.is_integer() and abs(value) < INTEGER_LIMIT else repr(value).encode()
    if isinstance(value, str):
        return str(value).encode("utf-8", "surrogatepass")
    if isinstance(value, bytes):
        return value
    if isinstance(value, (datetime.datetime, datetime.date)):
        return value.isoformat().encode()
    raise InputError(
        f"a value of type {type(value).__name__} ({value!r:.60}) cannot be a feature; "
        "give a string, a number, a bool, bytes, a date or None (and for a list declare kind='multi')"
    )


def hash_texts(texts: list[bytes], seeds: NDArray[np.uint64], fields: NDArray[np.int32]) -> NDArray[np.uint64]:
    """The key of each text, with the seed of its field."""
    offsets = np.array(list(accumulate(map(len, texts), initial=0)), dtype=np.int64)
    keys = np.empty(len(texts), dtype=np.uint64)
    with wrapping():
        _hash_fields(np.frombuffer(b"".join(texts), dtype=np.uint8), offsets, seeds, fields, keys)
    return keys


def hash_value(name: str, value: Any) -> int:
    """The key of `value` in the field `name`.

    >>> hash_value("ad_id", 123) == hash_value("ad_id", "123") != hash_value("user_id", "123")
    True
    """
    seeds = np.array([field_seed(name)], dtype=np.uint64)
    return int(hash_texts([canonical_text(value)], seeds, np.zeros(1, dtype=np.int32))[0])


def hash_strings(strings: pa.Array, seed: np.uint64) -> NDArray[np.uint64]:
    """The keys of an Arrow array of (large) strings or binaries, read straight from its buffers."""
    wide = pa.types.is_large_string(strings.type) or pa.types.is_large_binary(strings.type)
    _, offset_buffer, data_buffer = strings.buffers()
    offset_type = np.dtype(np.int64 if wide else np.int32)
    offsets = _bytes(offset_buffer).view(offset_type)[strings.offset : strings.offset + len(strings) + 1]
    keys = np.empty(len(strings), dtype=np.uint64)
    with wrapping():
        _hash_spans(_bytes(data_buffer), offsets, seed, keys)
    return keys


def hash_integers(integers: NDArray[np.int64], seed: np.uint64) -> NDArray[np.uint64]:
    """The keys of integers, equal to those of their decimal text."""
    if len(integers) > 1:
        low, high = int(integers.min()), int(integers.max())
        if high - low < len(integers) // 2:
            # Few integers, often repeated: hash each once.
            return hash_integers(np.arange(low, high + 1, dtype=np.int64), seed)[integers - low]
    keys = np.empty(len(integers), dtype=np.uint64)
    with wrapping():
        _hash_integers(integers, seed, keys)
    return keys


def hash_array(values: pa.Array, seed: np.uint64) -> NDArray[np.uint64]:
    """The keys of an Arrow array of any type that has a canonical text; nulls get the key of missing."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        keys, codes = hash_coded(values, seed)
        return keys if codes is None else keys[codes]
    if len(values) == 0 or pa.types.is_null(kind):
        return np.full(len(values), _hash_missing(seed))
    if pa.types.is_string_view(kind) or pa.types.is_boolean(kind) or pa.types.is_uint64(kind):
        values = pc.cast(values, pa.large_string())
    elif pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        values = pc.cast(values, pa.large_binary())
    if pa.types.is_integer(kind) and not pa.types.is_uint64(kind):
        integers = pc.cast(pc.fill_null(values, 0), pa.int64())
        keys = hash_integers(integers.to_numpy(), seed)
    elif pa.types.is_floating(kind):
        keys = _hash_floats(values, seed)
    elif values.type in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary()):
        keys = hash_strings(values, seed)
    else:
        return _hash_objects(values, seed)
    if values.null_count:
        keys[pc.is_null(values).to_numpy(zero_copy_only=False)] = _hash_missing(seed)
    return keys


def _hash_missing(seed: np.uint64) -> np.uint64:
    return hash_texts([b""], np.array([seed], dtype=np.uint64), np.zeros(1, dtype=np.int32))[0]


def hash_coded(values: pa.Array, seed: np.uint64) -> tuple[NDArray[np.uint64], NDArray[np.int32] | None]:
    """As `hash_array`, but for a dictionary only its entries: the keys, and the index of each value's key (None: in order)."""
    if not pa.types.is_dictionary(values.type):
        return hash_array(values, seed), None
    # A short slice of a column with a long dictionary uses few of its entries.
    if len(values.dictionary) > 2 * len(values):
        return hash_array(values.dictionary_decode(), seed), None
    codes = pc.cast(values.indices, pa.int32())
    if codes.null_count:
        codes = pc.fill_null(codes, len(values.dictionary))
    return np.append(hash_array(values.dictionary, seed), _hash_missing(seed)), codes.to_numpy()


def _hash_floats(values: pa.Array, seed: np.uint64) -> NDArray[np.uint64]:
    floats = pc.fill_null(pc.cast(values, pa.float64()), np.nan).to_numpy()
    whole = (np.abs(floats) < INTEGER_LIMIT) & (np.floor(floats) == floats)
    keys = hash_integers(np.where(whole, floats, 0.0).astype(np.int64), seed)
    if not whole.all():
        keys[~whole] = _hash_objects(pa.array(floats[~whole]), seed)
    return keys


def _hash_objects(values: pa.Array, seed: np.uint64) -> NDArray[np.uint64]:
    """Through Python, but each distinct value once."""
    if pa.types.is_nested(values.type):
        raise InputError(f"values of type {values.type} cannot be a feature; give strings, numbers, bools, bytes or dates")
    coded = pc.dictionary_encode(values, null_encoding="encode")
    texts = [canonical_text(value) for value in coded.dictionary.to_pylist()]
    seeds = np.array([seed], dtype=np.uint64)
    return hash_texts(texts, seeds, np.zeros(len(texts), dtype=np.int32))[coded.indices.to_numpy()]
