"""Vowpal Wabbit's linear learners: one learning pass over the cache of the training days, then the last day without learning."""

from pathlib import Path

import numpy as np

from benchmarks.rivals import vw_linear
from benchmarks.split import Outcome, Split
from benchmarks.stopwatch import Stopwatch
from benchmarks.workload import Workload


def run(split: Split, options: str, bits: int = vw_linear.BITS) -> Outcome:
    rows = len(split.train.batch)
    model, scores = split.folder / "vw.model", split.folder / "vw.scores"
    common = f"-b {bits} --loss_function logistic --quiet --no_stdin"
    learn = f"{_cached(split.train, f'train{rows}', split.folder)} {common} {options} -f {model}"
    learning = vw_linear._pass_over_cache(learn.split())
    with Stopwatch() as watch:
        driver = learning()
    progressive = vw_linear._log_loss(driver)
    driver.finish()
    predicted = np.zeros(0, dtype=np.float32)
    if len(split.test.batch):
        score = f"{_cached(split.test, 'test', split.folder)} --quiet --no_stdin -t -i {model} --link logistic -p {scores}"
        vw_linear._pass_over_cache(score.split())().finish()
        predicted = np.loadtxt(scores, dtype=np.float32)
    return Outcome(rows, watch.seconds, watch.cpu_seconds, progressive, predicted)


def prepare(split: Split) -> None:
    """Make the caches in a separate process, outside the measurement."""
    _cached(split.train, f"train{len(split.train.batch)}", split.folder)
    if len(split.test.batch):
        _cached(split.test, "test", split.folder)


def _cached(workload: Workload, name: str, folder: Path) -> str:
    """The arguments that name the cache of these rows; it is made on the way, once."""
    text, cache = folder / f"{name}.vw", folder / f"{name}.cache"
    arguments = f"-d {text} --cache_file {cache}"
    if not text.exists():
        vw_linear._write_text(workload, len(workload.batch), text)
        making = f"{arguments} -b {vw_linear.BITS} --loss_function logistic --quiet --no_stdin"
        vw_linear._pass_over_cache(making.split())().finish()
    return arguments
