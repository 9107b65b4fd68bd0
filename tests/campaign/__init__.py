"""The campaign: kills, damage, full disks and lost brokers, with fixed seeds. `make test-slow` runs it; so does, with a report,

    python -m tests.campaign

which writes docs/lab/robustness.md. Each part asserts what is promised, and returns what it did.
"""

from typing import NamedTuple


class Finding(NamedTuple):
    """A line of the report."""

    what: str
    attempts: int
    outcome: str
