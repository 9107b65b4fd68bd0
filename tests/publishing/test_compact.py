"""Compact publications: a server has exactly what the publisher thinks, close to what the trainer learned, in far fewer bytes."""

import os

import numpy as np
import pytest

from pbodl.errors import InputError
from pbodl.publishing.compact import PublishedWeights, decode
from pbodl.publishing.delta import ROWS
from pbodl.publishing.model_folder import DELTA, FULL, FolderEntry
from pbodl.publishing.publisher import Publisher
from pbodl.serving.models.follower import Follower
from tests.publishing.published import MODELS, assert_same_bits, steps


def rounded(state):
    """The lattice by its definition, number by number, without the code that it judges."""
    values = {name: np.array(array) for name, array in state.items()}
    for name in [name[:-5] for name in state if name.endswith(".mean")]:
        mean, variance = values[f"{name}.mean"], values[f"{name}.variance"]
        for at in np.ndindex(mean.shape):
            level = round(64 * float(np.log2(float(variance[at]))))
            step = 2.0 ** max(level // 128 - 6, -20)
            mean[at], variance[at] = np.float32(round(float(mean[at]) / step) * step), np.float32(2.0 ** (level / 64))
    return values


def served(follower):
    version = follower.version
    assert version is not None
    state = version.model.state() | version.table.state_of(np.arange(version.table.size))
    return {name: array for name, array in state.items() if name.endswith((".mean", ".variance", "keys", "field", "count"))}


@pytest.mark.parametrize("kind", MODELS)
def test_servers_have_the_lattice_of_the_trainer_after_every_publication(tmp_path, kind):
    model = MODELS[kind]()
    publisher, follower = Publisher(model, tmp_path, compact=True), Follower(tmp_path)
    for number, rows in enumerate(steps()):
        model.learn(rows)
        publisher.publish(full=number == 6)
        assert follower.poll() and follower.version is not None and not follower.damaged
        comp = served(follower)
        ref = rounded({name: array for name, array in model.state().items() if name in comp})
        assert_same_bits(comp, ref)
        # A server that starts now, from the newest full snapshot and the deltas since, has the same bits.
        late = Follower(tmp_path)
        assert late.poll()
        assert_same_bits(served(late), comp)
        assert np.array_equal(late.version.table.last_seen, follower.version.table.last_seen)
    half_life = model.forgetting.half_life
    near = half_life / 4096 if half_life > 0 else 1.0
    assert np.abs(follower.version.table.last_seen - model.table.last_seen).max() <= near


def test_scores_stay_within_a_small_part_of_their_uncertainty(tmp_path):
    model = MODELS["pairs"]()
    publisher, follower = Publisher(model, tmp_path, compact=True), Follower(tmp_path)
    for rows in steps():
        model.learn(rows)
        publisher.publish()
    follower.poll()
    mean, std = model.state()["embedding.mean"], np.sqrt(model.state()["embedding.variance"])
    comp = served(follower)
    assert (np.abs(comp["embedding.mean"] - mean) <= std / 127).all()
    assert np.abs(comp["embedding.variance"] / std**2 - 1).max() < 0.0055


def test_an_old_folder_is_read_and_a_newer_encoding_is_refused(tmp_path):
    model = MODELS["fm"]()
    exact = Publisher(model, tmp_path)
    model.learn(steps()[0])
    exact.publish()
    exact.close()
    follower = Follower(tmp_path)
    assert follower.poll() and exact.folder.read(FolderEntry(1, FULL)).manifest.format == 1
    compact = Publisher(model, tmp_path, compact=True)
    compact.publish()
    assert follower.poll() and follower.version.number == 2
    assert compact.folder.read(FolderEntry(2, FULL)).manifest.format == 2
    model.learn(steps()[1])
    compact.folder.write(FolderEntry(3, FULL), "x", model, model.state(), {}, "of tomorrow")
    with pytest.warns(UserWarning, match="encoding 'of tomorrow'"):
        assert not follower.poll()


def test_a_publication_that_could_not_be_written_is_sent_again(tmp_path, monkeypatch):
    model = MODELS["fm"]()
    publisher, follower = Publisher(model, tmp_path, compact=True), Follower(tmp_path)
    model.learn(steps()[0])
    publisher.publish()
    model.learn(steps()[1])
    with monkeypatch.context() as broken:
        broken.setattr(publisher.folder, "put", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
        with pytest.raises(OSError, match="disk full"):
            publisher.publish()
    model.learn(steps()[2])
    publisher.publish()
    assert follower.poll()
    comp = served(follower)
    assert_same_bits(comp, rounded({name: array for name, array in model.state().items() if name in comp}))


def test_damaged_numbers_are_refused(tmp_path):
    model = MODELS["fm"]()
    publisher, follower = Publisher(model, tmp_path, compact=True), Follower(tmp_path)
    model.learn(steps()[0])
    publisher.publish()
    follower.poll()
    before = served(follower)
    model.learn(steps()[1])
    publisher.publish()
    entry = FolderEntry(2, DELTA)
    read = publisher.folder.read(entry)
    for change in ({"compact.size": np.array(3)}, {"compact.size": np.array(-1)}, {"compact": read.arrays["compact"][:-9]}):
        arrays = dict(read.arrays) | change
        publisher.folder.write(entry, read.manifest.lineage, model, arrays, {}, "lattice")
        again = Follower(tmp_path)
        with pytest.warns(UserWarning, match="is not served"):
            again.poll()
        assert_same_bits(served(again), before)


def test_bytes(tmp_path):
    sizes = {}
    for compact in (False, True):
        model = MODELS["pairs"]()
        publisher = Publisher(model, tmp_path / str(compact), compact=compact)
        for rows in steps((200, 100, 90)):
            model.learn(rows)
            publisher.publish()
        files = os.listdir(tmp_path / str(compact))
        sizes[compact] = sum(os.path.getsize(tmp_path / str(compact) / name) for name in files)
    assert sizes[True] < sizes[False] / 2  # even in so small a model, whose manifests weigh as much as its rows


def test_rows_out_of_order_are_refused():
    model = MODELS["fm"]()
    model.learn(steps()[0])
    rows = np.arange(model.table.size)
    arrays, _ = PublishedWeights().encode(model, model.state(), rows)
    assert_same_bits({"rows": decode(model, arrays, 0, lambda rows: {})[ROWS]}, {"rows": rows})
    rows[:2] = 1, 0
    arrays, _ = PublishedWeights().encode(model, model.state(), rows)
    with pytest.raises(InputError, match="not in order"):
        decode(model, arrays, 0, lambda rows: {})
