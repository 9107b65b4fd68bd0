"""A publisher's folder: what it writes when, what it keeps, and whom it refuses."""

import os

import numpy as np
import pytest

import pbodl
from pbodl.errors import InputError
from pbodl.publishing.delta import split
from pbodl.publishing.model_folder import DELTA, FULL, FolderEntry
from pbodl.publishing.publisher import KEPT, Publisher
from tests.click_log import PLAIN
from tests.publishing.published import MODELS, assert_same_bits, steps


@pytest.fixture
def model():
    model = MODELS["fm"]()
    model.learn(steps()[0])
    return model


def kinds(publisher: Publisher) -> list[tuple[int, str]]:
    return [tuple(entry) for entry in publisher.folder.entries()]


def test_first_the_whole_then_deltas(tmp_path, model):
    publisher = Publisher(model, tmp_path / "new" / "folder")
    assert publisher.publish() == 1
    assert publisher.publish() == 1  # nothing was learned
    model.learn(steps()[1])
    assert publisher.publish({"note": "a fact"}) == 2
    assert kinds(publisher) == [(1, FULL), (2, DELTA)]
    whole, delta = publisher.folder.read(FolderEntry(1, FULL)), publisher.folder.read(FolderEntry(2, DELTA))
    assert whole.manifest.parent is None
    assert delta.manifest.parent == 1
    assert delta.manifest.lineage == whole.manifest.lineage
    assert delta.manifest.facts == {"note": "a fact"}
    assert delta.manifest.counters == model.metrics()
    assert delta.manifest.published_at >= whole.manifest.published_at
    state, rows = split(delta.arrays)
    assert_same_bits({"dense": state["dense.0.mean"]}, {"dense": model.state()["dense.0.mean"]})
    assert 0 < len(rows) < model.table.size


def test_full_snapshots_come_when_due_and_old_files_go(tmp_path, model):
    publisher = Publisher(model, tmp_path, full_every=0.0)
    for rows in steps():
        model.learn(rows)
        publisher.publish()
    # Every version is there as a delta for those who follow, and as a whole for those who start.
    fulls = [version for version, kind in kinds(publisher) if kind == FULL]
    assert fulls == [10 - KEPT + 1, 10]
    assert kinds(publisher)[-2:] == [(10, DELTA), (10, FULL)]
    moments = {publisher.folder.read(FolderEntry(10, kind)).manifest.published_at for kind in (DELTA, FULL)}
    assert len(moments) == 1  # servers that took one or the other have the same version
    assert min(kinds(publisher))[0] == fulls[0]


def test_a_full_snapshot_comes_when_the_deltas_are_as_large(tmp_path, model):
    publisher = Publisher(model, tmp_path)
    publisher.publish()
    for _ in range(40):
        model.learn(steps()[0])
        publisher.publish()
    assert sum(kind == FULL for _, kind in kinds(publisher)) == KEPT
    total = sum(path.stat().st_size for path in tmp_path.iterdir())
    largest = max(path.stat().st_size for path in tmp_path.iterdir())
    assert total < (2 * KEPT + 1) * largest  # the folder does not grow with time


def test_an_eviction_asks_for_a_full_snapshot(tmp_path):
    model = MODELS["eviction"]()
    publisher = Publisher(model, tmp_path)
    dropped, expected = 0, []
    for rows in steps():
        model.learn(rows)
        expected.append(FULL if not expected or model.table.evicted != dropped else DELTA)
        dropped = model.table.evicted
        version = publisher.publish()
        written = [kind for number, kind in kinds(publisher) if number == version]
        assert expected[-1] in written
        assert (DELTA in written) == (expected[-1] == DELTA)
    assert FULL in expected[1:]
    assert DELTA in expected


def test_a_new_publisher_goes_on_with_a_full_snapshot(tmp_path, model):
    before = Publisher(model, tmp_path)
    before.publish()
    model.learn(steps()[1])
    before.publish()
    after = Publisher(model, tmp_path)
    assert after.publish() == 3
    assert kinds(after)[-1] == (3, FULL)
    lineages = {after.folder.read(FolderEntry(*entry)).manifest.lineage for entry in kinds(after)}
    assert len(lineages) == 2


def test_publishing_is_due_now_and_then(tmp_path, model, monkeypatch):
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    publisher = Publisher(model, tmp_path, every=2.0)
    assert publisher.publish_when_due() == 1
    model.learn(steps()[1])
    now += 1.9
    assert publisher.publish_when_due() is None
    now += 0.2
    assert publisher.publish_when_due() == 2


def test_a_failed_full_snapshot_breaks_no_chain(tmp_path, model, monkeypatch):
    publisher = Publisher(model, tmp_path, full_every=0.0)
    publisher.publish()
    model.learn(steps()[1])
    write = publisher.folder.write

    def fails_for_full(entry, *rest):
        if entry.kind == FULL:
            raise OSError("the disk is full")
        return write(entry, *rest)

    monkeypatch.setattr(publisher.folder, "write", fails_for_full)
    with pytest.raises(OSError, match="disk is full"):
        publisher.publish()
    monkeypatch.undo()
    model.learn(steps()[2])
    assert publisher.publish() == 3
    assert [entry for entry in kinds(publisher) if entry[1] == DELTA] == [(2, DELTA), (3, DELTA)]


def test_nothing_half_written_is_left(tmp_path, model):
    publisher = Publisher(model, tmp_path)
    publisher.publish()
    assert sorted(os.listdir(tmp_path)) == [".lock", "000000000001.full"]


def test_baselines_are_refused(tmp_path):
    with pytest.raises(InputError, match="AdPredictor cannot be published"):
        Publisher(pbodl.AdPredictor(PLAIN), tmp_path)  # type: ignore[arg-type]


def test_an_untrained_model_can_be_published(tmp_path):
    model = MODELS["ffm"]()
    publisher = Publisher(model, tmp_path)
    publisher.publish()
    assert_same_bits(publisher.folder.read(FolderEntry(1, FULL)).arrays, {n: np.asarray(a) for n, a in model.state().items()})
