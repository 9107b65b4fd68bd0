"""Named arrays as bytes, in the safetensors format: the same bytes as its own library writes, without copying the arrays.

    length of the header (8 bytes) | header: JSON, by name {"dtype", "shape", "data_offsets"} | the arrays

A reader in any language can take it apart. Nothing is ever unpickled.
"""

import itertools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pbodl.errors import InputError
from pbodl.system.atomic_files import Piece, write_file

Bytes = bytes | bytearray
Arrays = Mapping[str, NDArray]

# Names of the types here and in numpy, in the order in which the arrays stand: each then starts at a multiple of its item's size.
NUMPY = {
    "U64": "<u8", "I64": "<i8", "F64": "<f8", "F32": "<f4", "U32": "<u4", "I32": "<i4",
    "F16": "<f2", "U16": "<u2", "I16": "<i2", "I8": "|i1", "U8": "|u1", "BOOL": "|b1",
}  # fmt: skip
NAMES = {numpy_name: name for name, numpy_name in NUMPY.items()}
ORDER = {numpy_name: at for at, numpy_name in enumerate(NAMES)}


def pieces(arrays: Arrays) -> list[Piece]:
    """The bytes of the format in pieces: the header, then the memory of each array."""
    plain = {name: np.ascontiguousarray(array).reshape(array.shape) for name, array in arrays.items()}
    order = sorted(plain, key=lambda name: (ORDER[plain[name].dtype.str], name))
    ends = itertools.accumulate((plain[name].nbytes for name in order), initial=0)
    header = {
        name: {"dtype": NAMES[plain[name].dtype.str], "shape": plain[name].shape, "data_offsets": span}
        for name, span in zip(order, itertools.pairwise(ends), strict=True)
    }
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return [len(text).to_bytes(8, "little") + text, *(memoryview(plain[name].reshape(-1).view(np.uint8)) for name in order)]  # type: ignore[arg-type]


def pack(arrays: Arrays) -> bytes:
    """Named arrays as bytes.

    >>> unpack(pack({"a": np.arange(3), "b": np.array(True)}))
    {'a': array([0, 1, 2]), 'b': array(True)}
    """
    return b"".join(pieces(arrays))


def views(content: Bytes | memoryview) -> dict[str, NDArray]:
    """The arrays, as views of the bytes. Damaged bytes raise one of several errors; `unpack` makes them one."""
    start = 8 + int.from_bytes(content[:8], "little")
    header: dict[str, Any] = json.loads(str(content[8:start], "utf-8"))
    header.pop("__metadata__", None)
    data, arrays = memoryview(content)[start:], {}
    for name, about in header.items():
        first, last = about["data_offsets"]
        arrays[name] = np.frombuffer(data[first:last], NUMPY[about["dtype"]]).reshape(about["shape"])
    return arrays


def unpack(content: Bytes) -> dict[str, NDArray]:
    """The arrays, which can be written: views of a bytearray, or of a copy of bytes."""
    try:
        return views(content if isinstance(content, bytearray) else bytearray(content))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"these {len(content)} bytes are not packed arrays ({type(error).__name__}: {error})") from error


def write_arrays(path: str | os.PathLike, arrays: Arrays) -> None:
    """Write a safetensors file."""
    write_file(path, *pieces(arrays))


def read_arrays(path: str | os.PathLike) -> dict[str, NDArray]:
    """The arrays of a safetensors file."""
    return unpack(Path(path).read_bytes())
