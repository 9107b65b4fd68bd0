"""Vowpal Wabbit's linear learner: its native driver reading its own binary cache, as its users run it on a large file.

The driver parses in one thread and learns in a second one; we leave it both. The features are our keys as numbers, in one
namespace, so that it need not hash texts. What is timed is the pass over the cache: not making the cache, nor the weights.
"""

from collections.abc import Callable
from pathlib import Path

import pylibvw

from benchmarks.timing import Contestant
from benchmarks.workload import Workload

BITS = 22


def learner(name: str, workload: Workload, rows: int, folder: Path, options: str = "") -> Contestant:
    """One learning pass over the cache: by the default learner, or by what the options name (`--ftrl`, `--sgd`)."""
    arguments = _arguments(workload, rows, folder) + options.split()
    return Contestant(name, rows, lambda: _pass_over_cache(arguments), _log_loss)


def scorer(name: str, workload: Workload, rows: int, folder: Path) -> Contestant:
    """One pass over the cache that scores alone, by a model that has learned these rows."""
    arguments, model = _arguments(workload, rows, folder), folder / f"{rows}.model"
    _pass_over_cache([*arguments, "-f", str(model)])().finish()
    arguments += ["-t", "-i", str(model)]
    return Contestant(name, rows, lambda: _pass_over_cache(arguments), _log_loss)


def _arguments(workload: Workload, rows: int, folder: Path) -> list[str]:
    """The driver's command line for the first rows; their text and their cache are made on the way, once."""
    text, cache = folder / f"{rows}.vw", folder / f"{rows}.cache"
    arguments = f"-d {text} --cache_file {cache} -b {BITS} --loss_function logistic --quiet --no_stdin".split()
    if not text.exists():
        _write_text(workload, rows, text)
        _pass_over_cache(arguments)().finish()
    return arguments


def _write_text(workload: Workload, rows: int, path: Path) -> None:
    """The first rows in Vowpal Wabbit's text format; a name that is a number stands for its own hash, below 2^31."""
    with path.open("w") as file:
        for click, keys in zip(workload.clicks[:rows].tolist(), workload.keys()[:rows].tolist(), strict=True):
            file.write(f"{1 if click else -1} | {' '.join(str(key & 0x7FFFFFFF) for key in keys)}\n")


def _pass_over_cache(arguments: list[str]) -> Callable[[], pylibvw.vw]:
    driver = pylibvw.vw(arguments)

    def run() -> pylibvw.vw:
        driver.run_parser()
        return driver

    return run


def _log_loss(driver: pylibvw.vw) -> float:
    return driver.get_sum_loss() / driver.get_weighted_examples()
