"""What travels comes back as it was."""

import numpy as np
import pytest

from pbodl.errors import InputError
from pbodl.parallel.cluster.work_format import (
    Done,
    Work,
    decode_done,
    decode_pulled,
    decode_work,
    encode_done,
    encode_pulled,
    encode_work,
)
from pbodl.parallel.shard import Shard
from pbodl.system.tensors import pack, unpack
from tests.parallel.logs import fm, plain_log, rich_log
from tests.stages import in_stages


@pytest.mark.parametrize("log", [plain_log, rich_log, lambda rows: in_stages(rich_log(rows)).batch])
def test_work(log):
    batch = log(30)
    comp = decode_work(encode_work(Work(7, 16, batch)))
    assert comp[:2] == (7, 16)
    for name, array in batch._asdict().items():
        other = getattr(comp.batch, name)
        if array is None:
            assert other is None, name
        else:
            assert other.dtype == array.dtype and np.array_equal(other, array), name


def test_weights():
    shard = Shard(fm())
    shard.model.learn(plain_log(40))
    ref = shard.pull(plain_log(60, seed=1).keys)
    comp, sequence = decode_pulled(encode_pulled(ref, 5))
    assert sequence == 5
    assert comp.rows_learned == 40 and comp.clock == ref.clock and comp.version == ref.version
    for a, b in ((ref.places, comp.places), (ref.counts, comp.counts), *zip(ref.weights, comp.weights, strict=True)):
        assert a.dtype == b.dtype and np.array_equal(a, b)


def test_results():
    ref = Done(np.array([0.25, np.nan]), 0.125, 3)
    comp = decode_done(encode_done(ref))
    np.testing.assert_array_equal(ref.ctr, comp.ctr)
    assert comp[1:] == ref[1:]


def test_a_whole_state_with_numbers_of_no_dimension():
    ref = Shard(fm()).state()
    comp = unpack(pack(ref))
    assert all(np.array_equal(ref[name], comp[name]) and ref[name].shape == comp[name].shape for name in ref)


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\x02\0\0\0\0\0\0\0[]", pack({"a": np.zeros(9)})[:-8]])
def test_other_bytes_are_refused(content):
    with pytest.raises(InputError, match="bytes are not packed arrays"):
        decode_done(content)
