"""The ledger of a snapshot: what does not agree is found."""

import pytest

from pbodl.errors import InputError
from pbodl.parallel.cluster.durable_shard import AboutShard
from pbodl.parallel.shard import ShardEntry
from pbodl.streaming.cluster.cluster_snapshot import (
    VoidSnapshot,
    check_cut,
    check_partitions,
    check_sound,
    entries_of,
    priors_of,
    restored_shard,
)
from tests.parallel.logs import fm

OWN = {"events": 10, "dead": 1, "before": 0, "repeated": 2, "waiting": 3, "settled": 4, "rows": 5, "pending": 0}


def shards(*rows: int) -> list[AboutShard]:
    return [AboutShard({}, {"a": ShardEntry(7, own, 2.0), "prior": ShardEntry(3)}, 0.5) for own in rows]


def test_a_sound_cut():
    ledger = check_cut({"a": OWN}, shards(5, 5))
    check_sound(ledger)
    assert (ledger["sound"], ledger["events"], ledger["rows"], ledger["lines"][0]["applied"]) == (True, 10, 5, [5, 5])


@pytest.mark.parametrize("rows, own, lost, twice", [((5, 4), OWN, 1, 0), ((5, 6), OWN, 0, 1), ((5, 5), OWN | {"settled": 3}, 1, 0)])
def test_what_does_not_agree_makes_it_void(rows, own, lost, twice):
    ledger = check_cut({"a": own}, shards(*rows))
    assert (ledger["lost"], ledger["twice"], ledger["sound"]) == (lost, twice, False)
    with pytest.raises(VoidSnapshot, match="do not agree"):
        check_sound(ledger)


def test_another_number_of_shards_has_the_same_ledger():
    entries = entries_of(shards(5, 5))
    assert entries["a"] == [7, 5, 4.0] and priors_of(entries) == 3
    found = [restored_shard(fm(), number, entries, 0.25) for number in range(3)]
    assert {(shard.ledger["a"].sequence, shard.ledger["a"].rows) for shard in found} == {(7, 5)}
    assert sum(shard.ledger["a"].precision for shard in found) == 4.0
    assert found[1].predictive_variance == 0.25


def test_partitions_may_come_and_not_go():
    assert check_partitions(["a", "b"], ["a", "b", "c"]) == ["c"]
    with pytest.raises(InputError, match="--source lacks a"):
        check_partitions(["a", "b"], ["b", "c"])
