"""Models that learn in steps, for tests of publishing and following: every operation, and all that a delta must carry."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import pbodl
from pbodl.models.contract import State
from pbodl.models.deep_probit import DeepProbit
from pbodl.publishing.model_folder import FolderEntry, ModelFolder
from tests.click_log import RICH, click_log, without

MODELS: dict[str, Callable[[], DeepProbit]] = {
    "concat": lambda: pbodl.DeepProbit(RICH, dim=3, hidden=(5, 4)),
    "sum": lambda: pbodl.SparseMLP(RICH, dim=3, hidden=(5,)),
    "fm": lambda: pbodl.FMMLP(RICH, dim=3, hidden=(5, 4), shortcut=True),
    "pairs": lambda: pbodl.PairFM(RICH, dim=2),
    "ffm": lambda: pbodl.FFMMLP(RICH, dim=2, hidden=(5,)),
    "no linear term, no layers": lambda: pbodl.FMMLP(RICH, dim=3, hidden=(), linear=False),
    "decay": lambda: pbodl.FMMLP(RICH, dim=3, hidden=(4,), half_life="1h", decay_mean=True),
    "eviction": lambda: pbodl.FMMLP(RICH, dim=3, hidden=(4,), capacity=48),
    "time to live": lambda: pbodl.FMMLP(RICH, dim=3, hidden=(4,), time_to_live="2h"),
    "sampled": lambda: pbodl.FFMMLP(RICH, dim=2, hidden=(4,), negative_rate=0.3),
}
LOG = click_log(400)
QUESTIONS = without(click_log(20, seed=1), "click", "weight")


def steps(sizes: tuple[int, ...] = (40, 1, 25, 3, 60, 7, 30, 80, 10, 50)) -> list[list[dict[str, Any]]]:
    """The log in pieces."""
    ends = np.cumsum((0, *sizes)).tolist()
    return [LOG[start:stop] for start, stop in itertools.pairwise(ends)]


def assert_same_bits(given: State, expected: State) -> None:
    assert given.keys() == expected.keys()
    for name, array in expected.items():
        assert given[name].dtype == array.dtype
        assert given[name].shape == array.shape
        assert given[name].tobytes() == array.tobytes(), name


def damage(folder: ModelFolder, entry: FolderEntry, at: int = -5) -> None:
    """Turn a bit of a publication's last bytes."""
    path = Path(folder.location) / entry.name
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)
