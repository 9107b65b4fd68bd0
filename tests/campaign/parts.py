"""All parts of the campaign, by section of the report."""

from collections.abc import Callable
from pathlib import Path

from tests.campaign import Finding, brokers, damage, full_disks, kills

SECTIONS: dict[str, tuple[Callable[[Path], Finding], ...]] = {
    "Killed while writing": kills.PARTS,
    "Damaged files": damage.PARTS,
    "Full disks": full_disks.PARTS,
    "Brokers": brokers.PARTS,
}
