"""States in shards: joined they are the whole, and any number of shards can be made of any other."""

import numpy as np
import pytest

from pbodl.errors import InputError
from pbodl.models.sharded_state import joined, shard_of, share_of
from pbodl.models.snapshot import (
    WrittenShards,
    load,
    load_share,
    load_snapshot,
    load_without_weights,
    save,
    save_written,
    shard_part,
    snapshots,
    write_part,
)
from tests.contract import assert_same_state
from tests.parallel.logs import by_key, fm, plain_log


def model_of(rows: int = 2000):
    model = fm(capacity=40)
    model.learn(plain_log(rows))
    assert model.metrics()["evicted"] > 0
    return model


def like(model, state):
    other = type(model).from_spec(model.schema, model.spec)
    other.load_state(state)
    return other


def same_by_key(a, b) -> bool:
    ref, comp = by_key(a), by_key(b)
    return a.metrics() == b.metrics() and all(np.array_equal(ref[name], comp[name]) for name in ref)


@pytest.mark.parametrize("before, after", [(1, 3), (3, 1), (2, 5), (4, 2)])
def test_any_number_of_shards_from_any_other(before, after):
    model = model_of()
    first = [share_of([model.state()], number, before) for number in range(before)]
    second = [share_of(first, number, after) for number in range(after)]
    for number, state in enumerate(second):
        assert (shard_of(state["embedding.keys"], after) == number).all()
    assert same_by_key(model, like(model, joined(second)))


def sharded(model, run, shards: int):
    def write(folder):
        states = [share_of([model.state()], number, shards) for number in range(shards)]
        files = {
            shard_part(n): write_part(folder, shard_part(n), state | {"server.own": np.ones(2)}) for n, state in enumerate(states)
        }
        files["more"] = write_part(folder, "more", {"numbers": np.arange(7)})
        return WrittenShards(shards, model.metrics(), {"rows": 5}, files)

    return save_written(model, run, write)


def test_a_snapshot_in_shards_is_read_as_a_whole(tmp_path):
    model = model_of()
    sharded(model, tmp_path, 3)
    found = load_snapshot(tmp_path)
    assert same_by_key(model, found.model)
    assert (found.shards, found.facts["rows"], found.counters) == (3, 5, model.metrics())
    np.testing.assert_array_equal(found.parts["more"]["numbers"], np.arange(7))
    empty = load_without_weights(found.path)
    assert (empty.model.table.size, empty.counters, empty.model.spec) == (0, model.metrics(), model.spec)
    assert set(empty.parts) == {"more"}


@pytest.mark.parametrize("whole", [True, False])
def test_a_shard_loads_its_share_alone(tmp_path, whole):
    model = model_of()
    path = save(model, tmp_path) if whole else sharded(model, tmp_path, 3)
    assert same_by_key(model, like(model, joined([load_share(path, number, 2) for number in range(2)])))
    assert_same_state(load(path) if whole else model, model)


def test_a_damaged_or_missing_shard_is_refused(tmp_path):
    model = fm()
    model.learn(plain_log(400))
    save(model, tmp_path)
    path = sharded(model, tmp_path, 2)
    (path / "shard-1.safetensors").write_bytes(b"x")
    with pytest.raises(InputError, match=r"is refused: shard-1.safetensors does not match its checksum"):
        load_share(path, 0, 2)
    with pytest.warns(UserWarning, match="using the snapshot before it"):
        load(tmp_path)
    (path / "shard-1.safetensors").unlink()
    with pytest.raises(InputError, match="is damaged"):
        load(path)


def test_a_failure_while_shards_write_leaves_nothing(tmp_path):
    model = fm()

    def write(folder):
        write_part(folder, "shard-0", model.state())
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space"):
        save_written(model, tmp_path, write)
    assert snapshots(tmp_path) == []
