"""The proof at the end of a run: compares what was sent to the workers with what the shards applied."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rich.table import Table

from pbodl.parallel.cluster.coordinator import Account
from pbodl.parallel.shard import ShardEntry

MOST_LINES = 40


class Ledger(NamedTuple):
    """One line per source, and how many rows were lost or applied twice; both must be 0."""

    lines: list[dict[str, Any]]
    rows: int  # read
    lost: int
    twice: int

    def asdict(self) -> dict[str, Any]:
        """As plain data for JSON; `sound` says that no row is missing or was applied twice."""
        return {**self._asdict(), "sound": self.lost == 0 and self.twice == 0}


def check(dealt: Mapping[str, Account], shards: Sequence[Mapping[str, ShardEntry]], read: int) -> Ledger:
    """Compare every shard's ledger with what was sent, and that with the rows `read`.

    A row is lost if its part is missing in any shard. Rows that any shard counts beyond what was sent were applied twice.
    """
    lines, lost, twice = [], 0, 0
    for source in sorted(set(dealt).union(*shards), key=lambda name: (len(name), name)):
        account = dealt.get(source, Account())
        entries = [shard.get(source, ShardEntry()) for shard in shards]
        rows = [entry.rows for entry in entries]
        lost += max(0, account.rows - min(rows))
        twice += max(0, max(rows) - account.rows)
        lines.append({
            "source": source, "dealt": account.sequence, "sequence": min(entry.sequence for entry in entries), "rows": min(rows),
            "precision": sum(entry.precision for entry in entries), "repeats": sum(entry.repeats for entry in entries),
        })  # fmt: skip
    total = sum(account.rows for account in dealt.values())
    return Ledger(lines, read, lost + max(0, read - total), twice + max(0, total - read))


def ledger_table(ledger: Mapping[str, Any]) -> Table:
    """The ledger (from `asdict`) as a table to print."""
    table = Table(title=f"ledger: {ledger['rows']:,} rows read, {ledger['lost']:,} lost, {ledger['twice']:,} applied twice")
    for name in ("source", "last sequence", "rows", "precision added", "repeats dropped"):
        table.add_column(name, justify="left" if name == "source" else "right")
    for line in ledger["lines"][:MOST_LINES]:
        numbers = f"{line['sequence']:,}", f"{line['rows']:,}", f"{line['precision']:,.0f}", f"{line['repeats']:,}"
        table.add_row(line["source"], *numbers)
    if len(ledger["lines"]) > MOST_LINES:
        table.add_row(f"... {len(ledger['lines']) - MOST_LINES} more", "", "", "", "")
    return table
