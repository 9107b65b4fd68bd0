"""The ledger tells a row that is missing from one that counts twice."""

import io

from rich.console import Console

from pbodl.parallel.cluster.coordinator import Account
from pbodl.parallel.cluster.ledger import check, ledger_table
from pbodl.parallel.shard import ShardEntry

DEALT = {"worker-0": Account(2, 100), "worker-1": Account(1, 50)}
SOUND = {"worker-0": ShardEntry(2, 100, 8.0, 1), "worker-1": ShardEntry(1, 50, 2.0)}


def test_all_is_well():
    ledger = check(DEALT, [SOUND, SOUND], 150).asdict()
    assert ledger["sound"] and (ledger["lost"], ledger["twice"]) == (0, 0)
    assert ledger["lines"][0] == {"source": "worker-0", "dealt": 2, "sequence": 2, "rows": 100, "precision": 16.0, "repeats": 2}


def test_a_part_that_one_shard_misses_is_lost():
    ledger = check(DEALT, [SOUND, SOUND | {"worker-0": ShardEntry(1, 60)}], 150).asdict()
    assert not ledger["sound"] and (ledger["lost"], ledger["twice"]) == (40, 0)


def test_a_source_that_a_shard_does_not_know_is_lost():
    assert check(DEALT, [{"worker-0": SOUND["worker-0"]}], 150).lost == 50


def test_what_was_applied_beyond_what_was_dealt_counts_twice():
    ledger = check(DEALT, [SOUND, SOUND | {"worker-1": ShardEntry(2, 90)}], 150).asdict()
    assert not ledger["sound"] and (ledger["lost"], ledger["twice"]) == (0, 40)
    assert check(DEALT, [SOUND | {"stranger": ShardEntry(1, 7)}], 150).twice == 7


def test_what_was_read_and_not_dealt_is_lost():
    assert check(DEALT, [SOUND], 160).lost == 10
    assert check(DEALT, [SOUND], 140).twice == 10


def test_all_lines_are_printed_if_there_is_room_for_them():
    table = ledger_table(check({f"worker-{n}": Account() for n in range(40)}, [{}], 0).asdict())
    assert table.row_count == 40
    assert [column.justify for column in table.columns] == ["left", *["right"] * 4]


def test_it_is_printed():
    console = Console(file=io.StringIO(), width=120)
    console.print(ledger_table(check({f"worker-{n}": Account() for n in range(60)}, [{}], 3).asdict()))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "3 rows read, 3 lost, 0 applied twice" in text and "worker-39" in text and "... 20 more" in text
