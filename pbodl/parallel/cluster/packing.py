"""Named arrays as bytes, in the layout of safetensors, read back as views. A reader in any language can take it apart."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from pbodl.errors import InputError
from pbodl.models.snapshot import DTYPES

Bytes = bytes | bytearray

NUMPY = {name: f"<{numpy_name}" for numpy_name, name in DTYPES.items()}


def pack(arrays: Mapping[str, NDArray]) -> bytes:
    """Named arrays as bytes."""
    return safetensors.numpy.save({name: np.asarray(array, order="C") for name, array in arrays.items()})


def unpack(content: Bytes) -> dict[str, NDArray]:
    """The arrays, as views of the bytes if these can be written, else of a copy: the kernels would be compiled anew for others."""
    try:
        start = 8 + int.from_bytes(content[:8], "little")
        header: dict[str, Any] = json.loads(content[8:start])
        data = memoryview(content if isinstance(content, bytearray) else bytearray(content))[start:]
        arrays = {}
        for name, entry in header.items():
            first, last = entry["data_offsets"]
            arrays[name] = np.frombuffer(data[first:last], NUMPY[entry["dtype"]]).reshape(entry["shape"])
        return arrays
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"these {len(content)} bytes are not packed arrays ({type(error).__name__}: {error})") from error
