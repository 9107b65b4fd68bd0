"""What a learner watches, for the dashboard and the doctor: RUN/watch.json, which the learner replaces every few seconds.

time         seconds since 1970
fields       for every field: its stability index (`drift`), and the shares of missing and of new values
movers       the features whose weights have changed most today: field, key, count, weight before and now
delays       by ages: the share of the clicks that have come by then, and whether impressions are judged then
martingale   by how much predictions move, over what their variance expects
reliability  groups of similar predictions: weight, mean prediction, share of clicks
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pbodl.system.atomic_files import write_file

FILE = "watch.json"


def write_watch(run: str | os.PathLike, watch: Mapping[str, Any]) -> None:
    """Replace the file."""
    write_file(Path(run) / FILE, json.dumps(watch, allow_nan=False).encode())


def read_watch(run: str | os.PathLike) -> dict[str, Any] | None:
    """The newest content; None if there is none, or if it is damaged."""
    try:
        found = json.loads((Path(run) / FILE).read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
