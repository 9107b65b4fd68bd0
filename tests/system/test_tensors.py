"""Arrays come back as they were; the bytes are those of the safetensors library."""

import numpy as np
import pytest
import safetensors.numpy

from pbodl.errors import InputError
from pbodl.system.tensors import NUMPY, pack, read_arrays, unpack, views, write_arrays

ARRAYS = {
    'a é "quoted" name\n': np.arange(6, dtype=np.float32).reshape(2, 3),
    "no dimension": np.array(7),
    "nothing": np.zeros((0, 3), np.float16),
    "not contiguous": np.arange(12.0).reshape(3, 4).T,
    **{f"all {name}": np.arange(5).astype(dtype) for name, dtype in NUMPY.items()},
}


@pytest.mark.parametrize("arrays", [ARRAYS, {}, dict(reversed(ARRAYS.items()))])
def test_the_bytes_are_the_library_s(arrays):
    ref = safetensors.numpy.save({name: np.asarray(array, order="C") for name, array in arrays.items()})
    assert pack(arrays) == ref


@pytest.mark.parametrize("read", [unpack, views, lambda content: unpack(bytearray(content)), safetensors.numpy.load])
def test_arrays_come_back(read):
    comp = read(pack(ARRAYS))
    assert comp.keys() == ARRAYS.keys()
    for name, ref in ARRAYS.items():
        assert comp[name].dtype == ref.dtype and comp[name].shape == ref.shape and np.array_equal(comp[name], ref), name


def test_what_the_library_adds_is_left_out():
    content = safetensors.numpy.save({"a": np.arange(3)}, metadata={"by": "somebody"})
    assert list(unpack(content)) == ["a"]


def test_arrays_can_be_written_and_are_not_copied_twice():
    content = bytearray(pack({"a": np.zeros(3)}))
    unpack(content)["a"][:] = 1.0
    assert unpack(content)["a"].tolist() == [1.0, 1.0, 1.0]
    assert unpack(bytes(content))["a"].flags.writeable


def test_a_file(tmp_path):
    write_arrays(tmp_path / "a.safetensors", ARRAYS)
    assert (tmp_path / "a.safetensors").read_bytes() == pack(ARRAYS)
    assert read_arrays(tmp_path / "a.safetensors")["no dimension"] == 7


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\x02\0\0\0\0\0\0\0[]", pack({"a": np.zeros(9)})[:-8]])
def test_damaged_bytes_are_refused(content):
    with pytest.raises(InputError, match="are not packed arrays"):
        unpack(content)
