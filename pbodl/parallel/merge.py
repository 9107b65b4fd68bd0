"""Merge rules
"""
import os
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pbodl.errors import InputError
from pbodl.parallel.server import Pulled

DEFAULT = "shared"
MERGES = (DEFAULT, "add")
SLOWNESS = float(os.environ.get('K', '4'))
ALPHA=float(os.environ.get('A','0.5'))


class Shares(NamedTuple):
    power: NDArray[np.float32]
    precision: NDArray[np.float64]  # [rows]
    mean: NDArray[np.float64]
    dense_mean: float


def check_merge(merge: str) -> str:
    if merge not in MERGES:
        raise InputError(f"merge is {merge!r}; it must be one of: {', '.join(MERGES)}")
    return merge


def shares(merge, workers, rows, features, touches, known, pulled) -> Shares:
    one = np.ones(len(touches))
    if merge == "add" or workers == 1:
        return Shares(one.astype(np.float32), one, one, 1.0)
    often = np.maximum(touches - 1.0, rows * known / max(pulled.rows_learned, 1))
    slowness = SLOWNESS * features / max(pulled.predictive_variance, 1e-12)
    c = 1.0 + (workers - 1.0) * often / (often + slowness)
    return Shares((c**ALPHA).astype(np.float32), c**-ALPHA, 1.0 / c, 1.0 / workers)
