"""The campaign of kills, damage, full disks and lost brokers; `python -m tests.campaign` also writes docs/lab/robustness.md."""

import pytest

from tests.campaign.parts import SECTIONS
from tests.streaming.redis_server import needs_redis

PARTS = {f"{title}: {part.__name__}": part for title, parts in SECTIONS.items() for part in parts}
MARKS = {name: [needs_redis] if name.startswith("Brokers") else [] for name in PARTS}


@pytest.mark.slow
@pytest.mark.parametrize("part", [pytest.param(part, id=name, marks=MARKS[name]) for name, part in PARTS.items()])
def test_it_holds(part, tmp_path):
    assert part(tmp_path).attempts > 0
