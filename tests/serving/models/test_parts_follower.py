"""A folder in parts: what shards publish, servers assemble; whole or in shares, and never a mixture of versions."""

import warnings
from pathlib import Path

import numpy as np
import pytest

from pbodl.errors import InputError
from pbodl.models.deep_probit import DeepProbit
from pbodl.models.sharded_state import rows_at, shard_of
from pbodl.parallel.cluster.shard_publisher import ShardPublisher
from pbodl.parallel.cluster_prior import adapt_cluster
from pbodl.parallel.simulated import Cluster
from pbodl.publishing.model_folder import DELTA, FULL, FolderEntry, ModelFolder
from pbodl.publishing.parts_manifest import KEPT, newest_parts, newest_version
from pbodl.publishing.publisher import Publisher
from pbodl.serving.models.follower import Follower, Version
from pbodl.serving.models.parts_follower import PartsFollower, RowShare
from pbodl.streaming.cluster.cluster_publisher import ClusterPublisher
from tests.publishing.published import MODELS, assert_same_bits, damage, steps
from tests.serving.services import state_of


class Shards:
    """The shards of a cluster in this process, as a publisher sees them."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.publishers = [ShardPublisher(shard) for shard in cluster.shards]

    def begin_publish(self, request: bytes) -> None:
        for publisher in self.publishers:
            publisher.begin(request)
            publisher.begin(request)  # repeated after a lost answer

    def publish(self, version: int) -> list[str]:
        return [publisher.publish(str(version).encode()).decode() for publisher in self.publishers]

    def restart(self, number: int) -> None:
        self.publishers[number] = ShardPublisher(self.cluster.shards[number])


class Trial:
    """A simulated cluster that learns and publishes."""

    def __init__(self, folder: Path, name: str = "fm", shards: int = 3, compact: bool = False) -> None:
        self.cluster = Cluster(MODELS[name](), workers=1, shards=shards)
        self.shards = Shards(self.cluster)
        self.publisher = ClusterPublisher(self.shards, str(folder), shards, 0.0, compact)
        self.folder = ModelFolder(folder)

    def learn(self, rows: list) -> None:
        self.cluster.learn(rows)

    def publish(self) -> int:
        rows = self.cluster.shards[0].model.rows_learned
        self.publisher.publish(rows, {"events": rows}, wait=True)
        return self.publisher.version

    def part(self, number: int) -> ModelFolder:
        return self.folder.part(number, len(self.cluster.shards))


def in_order(state: dict, share: RowShare | None = None) -> dict:
    """A state with its rows in the order of their keys; of a share, if one is given."""
    keys = state["embedding.keys"]
    at = np.argsort(keys)
    if share is not None:
        at = at[shard_of(keys[at], share.shares) == share.number]
    return rows_at(state, at)


def assert_is(version: Version | None, model: DeepProbit, share: RowShare | None = None) -> None:
    assert version is not None
    comp, ref = in_order(state_of(version)), in_order(model.state(), share)
    if share is not None:  # what was dropped in parts that a share does not read, it does not know
        for name in ("embedding.evicted", "embedding.expired"):
            comp[name] = ref[name]
    assert_same_bits(comp, ref)


@pytest.mark.parametrize("name", ["fm", "pairs", "eviction", "time to live"])
def test_parts_are_assembled_to_the_model_of_the_shards(tmp_path, name):
    trial, follower = Trial(tmp_path, name), PartsFollower(tmp_path)
    kinds = set()
    for number, rows in enumerate(steps(), 1):
        trial.learn(rows)
        assert trial.publish() == number
        assert follower.poll()
        assert follower.version is not None and follower.version.number == number
        assert_is(follower.version, trial.cluster.model())
        assert follower.version.counters == trial.cluster.model().metrics()
        assert_is(started(PartsFollower(tmp_path)), trial.cluster.model())
        kinds |= {(part, entry.kind) for part in range(3) for entry in trial.part(part).entries() if entry.version == number}
    assert {kind for _, kind in kinds} == {FULL, DELTA}
    assert not follower.poll() and follower.damaged == 0


def started(follower: PartsFollower) -> Version | None:
    follower.poll()
    return follower.version


@pytest.mark.parametrize("compact", [False, True])
def test_compact_parts_are_those_of_one_process(tmp_path, compact):
    """One process that publishes the same weights after the same rows serves the same rows."""
    trial, follower, plain = Trial(tmp_path / "parts", compact=compact), PartsFollower(tmp_path / "parts"), tmp_path / "one"
    for rows in steps():
        trial.learn(rows)
        trial.publish()
        assert follower.poll()
        Publisher(trial.cluster.model(), plain, compact=compact).publish(full=True)
        one = Follower(plain)
        assert one.poll() and one.version is not None and follower.version is not None
        assert_same_bits(in_order(state_of(follower.version)), in_order(state_of(one.version)))


@pytest.mark.parametrize("shares", [2, 3, 4])
@pytest.mark.parametrize("compact", [False, True])
def test_shares_hold_each_row_once(tmp_path, shares, compact):
    trial = Trial(tmp_path, "eviction", shards=4, compact=compact)
    whole = PartsFollower(tmp_path)
    followers = [PartsFollower(tmp_path, RowShare(number, shares)) for number in range(shares)]
    for rows in steps():
        trial.learn(rows)
        trial.publish()
        whole.poll()
        for follower in followers:
            assert follower.poll()
        versions = [follower.version for follower in followers]
        assert sum(version.table.size for version in versions if version) == whole.version.table.size  # type: ignore[union-attr]
        if not compact:
            for follower in followers:
                assert_is(follower.version, trial.cluster.model(), follower.share)


def test_a_share_reads_the_parts_it_needs(tmp_path):
    assert [part for part in range(8) if RowShare(1, 4).needs(part, 8)] == [0, 1, 5]
    assert [part for part in range(3) if RowShare(1, 2).needs(part, 3)] == [0, 1, 2]
    keys = np.random.default_rng(0).integers(0, 2**64, 1000, dtype=np.uint64)
    for share in (RowShare(number, 6) for number in range(6)):
        in_parts = {int(part) for part in shard_of(keys[share.holds(keys)], 4)}
        assert in_parts <= {part for part in range(4) if share.needs(part, 4)}
    for text in ("4/4", "1", "a/b", "-1/2", "0/0"):
        with pytest.raises(InputError, match="write NUMBER/SHARES"):
            RowShare.parse(text)


def test_shares_of_an_ordinary_folder_and_of_a_run(tmp_path):
    model = MODELS["fm"]()
    publisher = Publisher(model, tmp_path / "folder", compact=False)
    share = RowShare(1, 2)
    follower = PartsFollower(tmp_path / "folder", share)
    for rows in steps():
        model.learn(rows)
        publisher.publish()
        assert follower.poll()
        assert_is(follower.version, model, share)
    model.save(tmp_path / "run")
    of_run = PartsFollower(tmp_path / "run", share)
    assert of_run.poll() and of_run.version is not None
    assert 0 < of_run.version.table.size == follower.version.table.size < model.table.size  # type: ignore[union-attr]


def test_a_version_without_its_manifest_is_not_served(tmp_path):
    trial, follower = Trial(tmp_path), PartsFollower(tmp_path)
    trial.learn(steps()[0])
    trial.publish()
    follower.poll()
    before = state_of(follower.version)
    trial.learn(steps()[1])
    lost = trial.shards.publish
    trial.shards.publish = lambda version: [*lost(version)[:1], *fails()]  # type: ignore[method-assign]
    with pytest.raises(OSError, match="restarted while it published"):
        trial.publish()
    assert trial.part(0).has(FolderEntry(2, DELTA))  # all parts are there, and no manifest
    assert not follower.poll()
    assert_same_bits(state_of(follower.version), before)
    trial.shards.publish = lost  # type: ignore[method-assign]
    trial.learn(steps()[2])
    assert trial.publish() == 3
    assert follower.poll()
    assert_is(follower.version, trial.cluster.model())


def fails() -> list[str]:
    raise InputError("the shard was restarted while it published")


def test_a_shard_that_was_restarted_publishes_all_its_rows_and_the_others_go_on(tmp_path):
    trial, follower = Trial(tmp_path), PartsFollower(tmp_path)
    shards = trial.cluster.shards
    for number, rows in enumerate(steps(), 1):
        trial.learn(rows)
        if number == 4:
            trial.shards.restart(1)
        if number == 6:  # all rows change
            adapt_cluster(shards[0].model, lambda: [shard.evidence() for shard in shards], trial.cluster.push, 0)
        trial.publish()
        assert follower.poll()
        assert_is(follower.version, trial.cluster.model())
        if number == 4:
            assert trial.part(1).entries()[-1] == FolderEntry(4, FULL)
            assert FolderEntry(4, DELTA) in trial.part(0).entries()
        if number == 6:
            assert all(FolderEntry(6, DELTA) not in trial.part(part).entries() for part in range(3))


@pytest.mark.parametrize("bad", ["part", "manifest", "lineage"])
def test_what_is_damaged_waits_for_the_next_sound_version(tmp_path, bad):
    trial, follower = Trial(tmp_path), PartsFollower(tmp_path)
    trial.learn(steps()[0])
    trial.publish()
    follower.poll()
    before = state_of(follower.version)
    trial.learn(steps()[1])
    trial.publish()
    if bad == "part":
        damage(trial.part(1), FolderEntry(2, DELTA))
    elif bad == "manifest":
        damage(trial.folder, FolderEntry(2, "parts"), at=20)
    else:  # a zombie has written over a part
        other = Publisher(trial.cluster.shards[1].model, trial.part(1), alone=False)
        other.begin(2)()
        trial.part(1).remove(FolderEntry(2, DELTA))
    with pytest.warns(UserWarning, match="2.parts .*is not served"):
        assert not follower.poll()
    assert_same_bits(state_of(follower.version), before)
    with warnings.catch_warnings(action="error"):
        assert not follower.poll()  # told once
    for number in range(3):
        trial.shards.restart(number)
    trial.learn(steps()[2])
    trial.publish()
    assert follower.poll()
    assert_is(follower.version, trial.cluster.model())
    assert follower.damaged == 1


def test_versions_that_requests_hold_never_change(tmp_path):
    trial, follower, seen = Trial(tmp_path), PartsFollower(tmp_path), []
    for rows in steps():
        trial.learn(rows)
        trial.publish()
        follower.poll()
        seen.append((follower.version, trial.cluster.model()))
    for version, model in seen:
        assert_is(version, model)


def test_another_number_of_shards_takes_over_and_old_parts_go(tmp_path):
    first = Trial(tmp_path, shards=3)
    follower = PartsFollower(tmp_path)
    first.learn(steps()[0])
    first.publish()
    follower.poll()
    with pytest.raises(InputError, match="is in use"):
        _other_process_publishes(tmp_path)
    first.publisher.close()
    second = Trial(tmp_path, shards=2)
    assert second.publisher.version == newest_version(second.folder, 2) == 1
    for rows in steps()[:5]:
        second.learn(rows)
        second.publish()
        assert follower.poll()
        assert_is(follower.version, second.cluster.model())
    assert len(second.folder.manifests()) == KEPT
    assert {path.name for path in tmp_path.glob("part-*")} == {"part-0-of-2", "part-1-of-2"}
    newest = newest_parts(second.folder)
    assert newest is not None and (newest.version, len(newest.lineages)) == (6, 2)


def _other_process_publishes(folder: Path) -> None:
    import subprocess
    import sys

    code = f"from pbodl.system.folder_lock import FolderLock; FolderLock({str(folder)!r}, 'publishing a model')"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stderr
    raise InputError(told)


def test_nothing_new_is_not_published(tmp_path):
    trial = Trial(tmp_path)
    trial.learn(steps()[0])
    assert trial.publish() == 1
    assert trial.publish() == 1
    trial.learn(steps()[1])
    assert trial.publish() == 2
