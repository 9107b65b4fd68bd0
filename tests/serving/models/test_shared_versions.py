"""From the follower to a worker: the rows stay where they are, in shared memory, and are left alone until the worker lets go."""

import gc
import multiprocessing
import os

import numpy as np
import pytest

from pbodl.publishing.publisher import Publisher
from pbodl.serving.models import shared_versions as sharing
from pbodl.serving.models.follower import Follower
from pbodl.serving.models.shared_versions import Announced, ServingWorker
from pbodl.serving.scoring.packed_rows import PackedTable
from tests.patience import until
from tests.publishing.published import MODELS, assert_same_bits, steps
from tests.serving.services import CANDIDATES, CONTEXT, REQUEST, USER, rows_of, state_of, trained


@pytest.fixture
def pair(tmp_path):
    """A worker as the follower sees it, and its own end."""
    ours, theirs = multiprocessing.Pipe()
    os.mkdir(tmp_path / "memory")
    yield ServingWorker(ours), Announced(theirs)
    ours.close()


def told(worker: ServingWorker, announced: Announced, version, memory: str) -> None:

    def taken() -> bool:
        worker.tell(version, memory, {"damaged": 1, "missing": 2})
        worker.hear()
        return worker.newest == version.number and not worker.waiting

    until(taken, "taking a version")
    assert announced.predictor is not None
    assert announced.predictor.version.number == version.number


@pytest.mark.parametrize("name", ["concat", "sum", "fm", "ffm", "sampled", "eviction"])
def test_a_worker_has_the_same_version(tmp_path, pair, name):
    worker, announced = pair
    model, memory = MODELS[name](), str(tmp_path / "memory")
    publisher, follower = Publisher(model, tmp_path / "model"), Follower(tmp_path / "model")
    for rows in steps():
        model.learn(rows)
        publisher.publish({"a": "fact"})
        follower.poll()
        told(worker, announced, follower.version, memory)
        version = announced.predictor.version
        assert_same_bits(state_of(version), model.state())
        assert version.facts == {"a": "fact"}
        assert version.counters == model.metrics()
        assert version.published_at == follower.version.published_at
        scores = announced.predictor.score(USER, CONTEXT, CANDIDATES)
        np.testing.assert_allclose(scores.ctr, model.predict(rows_of(REQUEST)).ctr, rtol=1e-5)
    assert announced.troubles == {"damaged": 1, "missing": 2}


def test_the_rows_are_files_in_memory_and_not_copies(tmp_path, pair):
    worker, announced = pair
    model, memory = trained(), str(tmp_path / "memory")
    publisher, follower = Publisher(model, tmp_path / "model"), Follower(tmp_path / "model")
    publisher.publish()
    follower.poll()
    told(worker, announced, follower.version, memory)
    ours, theirs = follower.version.table.packed().weights, announced.predictor.version.table.packed().weights
    ours[0, 0] = 7.5  # the follower alone may do so, and the worker sees it at once
    assert theirs[0, 0] == 7.5
    theirs[0, 0] = 3.0  # what a worker should never do reaches nobody else
    assert ours[0, 0] == 7.5
    assert len(os.listdir(memory)) >= 5


def test_shared_rows_stay_what_they_became_when_the_table_grows(tmp_path):
    model = MODELS["fm"]()
    for rows in steps():
        model.learn(rows)
    table = PackedTable.of(model)
    table.share(str(tmp_path))
    table.column("weights")[:] += 1.0
    table.count[:] += np.uint32(1)
    before, size = table.state(), table.size
    new = np.arange(2 * size, dtype=np.uint64) + np.uint64(1 << 40)
    table.insert(new)
    assert table.size == 3 * size
    for name in ("keys", "field", "last_seen", "count", "weights"):
        np.testing.assert_array_equal(table.state()[name][:size], before[name])
    np.testing.assert_array_equal(table.find(new), size + np.arange(2 * size))


def test_a_version_in_use_is_left_alone(tmp_path, pair):
    worker, announced = pair
    model, memory = trained(), str(tmp_path / "memory")
    publisher, follower = Publisher(model, tmp_path / "model"), Follower(tmp_path / "model")
    publisher.publish()
    follower.poll()
    told(worker, announced, follower.version, memory)
    in_use, before = announced.predictor, state_of(announced.predictor.version)  # a request that takes its time
    for rows in steps()[:5]:
        model.learn(rows)
        publisher.publish()
        follower.poll()
        told(worker, announced, follower.version, memory)
        assert_same_bits(state_of(in_use.version), before)
        assert in_use.version.number in worker.held
    number = in_use.version.number
    del in_use
    gc.collect()
    until(lambda: worker.hear() or number not in worker.held, "letting go")
    # Two tables take turns; the files of all others are gone.
    assert len(worker.held) <= 2


def test_a_version_that_cannot_be_taken_ends_the_worker(tmp_path, pair, monkeypatch, caplog):
    worker, announced = pair
    trained().save(tmp_path / "run")
    follower = Follower(tmp_path / "run")
    follower.poll()

    def fails(version):
        raise MemoryError("no room")

    monkeypatch.setattr(sharing, "predictor_of", fails)
    worker.tell(follower.version, str(tmp_path / "memory"), {})
    until(announced.gone.is_set, "the end")
    assert "no room" in caplog.text
    assert announced.predictor is None


def test_a_follower_that_is_gone_is_noticed(pair):
    worker, announced = pair
    worker.connection.close()
    until(announced.gone.is_set, "noticing")
    assert announced.changed.is_set()
