"""A snapshot of a cluster: a consistent cut through all shards and all partitions, and the ledger that proves it.

All workers hold between two minibatches. Their records, and copies of the shards' processes, then belong to one moment, and the
workers go on, while records and shards are written. The snapshot is void, and a later one takes its place, if anything died
meanwhile, or if a shard has learned another number of rows of a partition than the record of the partition says.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pbodl.errors import InputError
from pbodl.models.deep_probit import DeepProbit
from pbodl.parallel.cluster.durable_shard import AboutShard
from pbodl.parallel.cluster_prior import SOURCE as PRIOR
from pbodl.parallel.shard import Shard, ShardEntry

COUNTED = ("events", "dead", "before", "repeated", "waiting", "settled", "rows", "pending")


class VoidSnapshot(Exception):
    """Something died while the snapshot was taken; the message says what does not agree."""


def check_cut(partitions: Mapping[str, Mapping[str, Any]], shards: Sequence[AboutShard]) -> dict[str, Any]:
    """The ledger of a cut, as plain data: where the events of every partition are, and the rows of it that every shard learned.

    partitions  for each the `PartitionLearner.ledger` of its record
    """
    lines, lost, twice = [], 0, 0
    for name, own in sorted(partitions.items()):
        entries = [shard.ledger.get(name, ShardEntry()) for shard in shards]
        applied = [entry.rows for entry in entries]
        lost, twice = lost + max(0, own["rows"] - min(applied)), twice + max(0, max(applied) - own["rows"])
        accounted = own["dead"] + own["before"] + own["repeated"] + own["waiting"] + own["settled"]
        lost, twice = lost + max(0, own["events"] - accounted), twice + max(0, accounted - own["events"])
        line = {"partition": name, **own, "sequence": min(entry.sequence for entry in entries), "applied": applied}
        line["precision"] = sum(entry.precision for entry in entries)
        lines.append(line | {"repeats": sum(entry.repeats for entry in entries)})
    total = {key: sum(line[key] for line in lines) for key in COUNTED}
    return {"lines": lines, **total, "lost": lost, "twice": twice, "sound": lost == 0 and twice == 0}


def check_sound(ledger: Mapping[str, Any]) -> None:
    """`VoidSnapshot`, unless records and shards agree."""
    if not ledger["sound"]:
        lines = ", ".join(f"{line['partition']}: {line['rows']} rows in its record, {line['applied']} in the shards"
                          for line in ledger["lines"] if {line["rows"]} != set(line["applied"]))  # fmt: skip
        raise VoidSnapshot(f"records and shards do not agree ({lines})")


def entries_of(shards: Sequence[AboutShard]) -> dict[str, list[Any]]:
    """What a snapshot keeps of the shards' ledgers: for every source the last sequence, the rows and the precision added."""
    sources = set().union(*(shard.ledger for shard in shards))
    kept = {}
    for source in sorted(sources):
        entries = [shard.ledger.get(source, ShardEntry()) for shard in shards]
        kept[source] = [entries[0].sequence, entries[0].rows, sum(entry.precision for entry in entries)]
    return kept


def restored_shard(part: DeepProbit, number: int, entries: Mapping[str, Sequence[Any]], variance: float) -> Shard:
    """A shard over its share of the weights of a snapshot, with the ledger of that snapshot."""
    shard = Shard(part, number)
    for source, (sequence, rows, precision) in entries.items():
        shard.ledger[source] = ShardEntry(sequence, rows, precision if number == 0 else 0.0)
    shard.predictive_variance = variance
    return shard


def priors_of(entries: Mapping[str, Sequence[Any]]) -> int:
    """How many messages with a new prior there were."""
    return int(entries.get(PRIOR, (0, 0, 0.0))[0])


def check_partitions(known: Sequence[str], now: Sequence[str]) -> list[str]:
    """The partitions of a source that a run does not know yet; InputError if one that it knows is gone."""
    gone = sorted(set(known) - set(now))
    if gone:
        raise InputError(
            f"the run learns from the partitions {', '.join(sorted(known))}, and --source lacks {', '.join(gone)}. "
            "Give all of them, even if they get no more events: impressions of theirs may still wait for a click"
        )
    return sorted(set(now) - set(known))
