"""Vowpal Wabbit's learners: one pass over the cache of the rows to learn, then the test rows, frozen and learning on."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.rivals import vw_linear
from benchmarks.split import Outcome, Split
from benchmarks.stopwatch import Stopwatch

QUIET = "--loss_function logistic --link logistic --quiet --no_stdin"


def run(split: Split, options: str, bits: int = vw_linear.BITS) -> Outcome:
    rows = split.learned
    model, scores = split.folder / "vw.model", split.folder / "vw.scores"
    learn = f"{_cached(split, 0, rows)} -b {bits} {QUIET} {options} -f {model} -p {scores}"
    learning = vw_linear._pass_over_cache(learn.split())
    with Stopwatch() as watch:
        driver = learning()
    driver.finish()
    before, tested = _read(scores), [np.zeros(0, dtype=np.float32)] * 2
    if (n := len(split.places)) > rows:
        # A saved model does not go on as if it had never been saved (with --ftrl): to learn on, learn all rows once more.
        whole = f"{_cached(split, 0, n)} -b {bits} {QUIET} {options}"
        for place, how in enumerate((f"{_cached(split, rows, n)} {QUIET} -t -i {model}", whole)):
            vw_linear._pass_over_cache(f"{how} -p {scores}".split())().finish()
            tested[place] = _read(scores)[-(n - rows) :]
    return Outcome(rows, watch.seconds, watch.cpu_seconds, before, *tested)


def prepare(split: Split) -> None:
    """Make the caches outside the measurement."""
    _cached(split, 0, split.learned)
    if split.learned < (n := len(split.places)):
        _cached(split, split.learned, n)
        _cached(split, 0, n)


def _read(scores: Path) -> NDArray[np.float32]:
    return np.array([float(line) for line in scores.read_text().split()], dtype=np.float32)


def _cached(split: Split, start: int, stop: int) -> str:
    """The arguments that name the cache of these rows; it is made on the way, once."""
    text, cache = split.folder / f"{start}-{stop}.vw", split.folder / f"{start}-{stop}.cache"
    arguments = f"-d {text} --cache_file {cache}"
    if not cache.exists():
        with text.open("w") as file:
            for click, places in zip(split.clicks[start:stop].tolist(), split.places[start:stop].tolist(), strict=True):
                file.write(f"{1 if click else -1} | {' '.join(map(str, places))}\n")
        vw_linear._pass_over_cache(f"{arguments} -b {vw_linear.BITS} {QUIET}".split())().finish()
    return arguments
