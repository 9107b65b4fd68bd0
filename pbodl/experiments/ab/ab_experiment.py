"""The online experiment with one command: all arms of both tests in several worlds, and the report.

Every arm's outcome is written as soon as it exists, so a repeated command continues where it was interrupted. Arms run in separate
processes: an arm that is updated every few seconds spends as much time in Python as in its kernels.
"""

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pbodl.baselines.batch_training import require_jax
from pbodl.errors import InputError
from pbodl.experiments.ab.ab_arms import ArmOutcome, Setting, run_arms
from pbodl.experiments.ab.ab_report import write_report
from pbodl.experiments.ab.ab_summary import summary
from pbodl.experiments.ab.lineup import PASSES, TESTS, TUNED, ABTest, Arm
from pbodl.experiments.outcomes import key_of, read_outcome, write_json
from pbodl.system.tensors import read_arrays, write_arrays
from pbodl.training.display import bar

__all__ = ["ab"]


class ArmTask(NamedTuple):
    """Arms of a test that are simulated together in one world."""

    test: ABTest
    arms: tuple[int, ...]
    seed: int

    def paths(self, out: Path) -> list[Path]:
        return [out / "arms" / f"{self.test.name}-{arm}-{self.seed}.json" for arm in self.arms]


def ab(
    out: Path, setting: Setting, seeds: int = 3, workers: int = 2, tests: Sequence[ABTest] | None = None, first_seed: int = 0,
    only: str | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Simulate what is not done yet and write ab.md, ab.json and report.html; returns the content of ab.json."""
    setting.check()
    tests = TESTS[setting.market] if tests is None else tests
    setting = setting.settled(max(len(test.arms) for test in tests))
    if only is not None:
        names = [test.name for test in tests]
        if only not in names:
            raise InputError(f"the {setting.market} market has no test {only!r}; allowed: {', '.join(names)}")
        tests = [test for test in tests if test.name == only]
    worlds = range(first_seed, first_seed + seeds)
    if seeds < 1 or workers < 1:
        raise InputError(f"seeds is {seeds} and workers is {workers}; both must be at least 1")
    if any(arm.kind in ("fm-batch", "dnn-batch") for test in tests for arm in test.arms):
        require_jax()
    tasks = [
        ArmTask(test, arms, seed)
        for seed in worlds
        for test in tests
        for arms in ([tuple(range(len(test.arms)))] if setting.share else [(arm,) for arm in range(len(test.arms))])
    ]
    missing = [task for task in tasks if not all(_done(path, _key(task, setting)) for path in task.paths(out))]
    # In each world the longest first, so that no process waits for a last long one.
    missing.sort(key=lambda task: (task.seed, -max(_effort(task.test.arms[arm]) for arm in task.arms)))
    with bar() as progress:
        bar_task = progress.add_task("online experiment", total=len(tasks), completed=len(tasks) - len(missing), text="")
        for task in _finished(missing, out, setting, workers):
            what = task.test.arms[task.arms[0]].name if len(task.arms) == 1 else "all arms"
            progress.update(bar_task, advance=1, text=f"{task.test.name}, seed {task.seed}: {what}")
    found = {test.name: [_outcomes(test, seed, out, setting) for seed in worlds] for test in tests}
    provenance = {
        "version": version("pbodl"),
        "seeds": seeds,
        "first_seed": first_seed,
        **setting._asdict(),
        "settings": TUNED,
        "passes": PASSES,
    }
    result = {"provenance": provenance, "tests": {test.name: summary(test, found[test.name]) for test in tests}}
    write_json(out / "ab.json", result)
    write_report(out, result)
    return result


def _finished(tasks: Sequence[ArmTask], out: Path, setting: Setting, workers: int) -> Iterator[ArmTask]:
    """Run the tasks; yields each when it is done."""
    if workers == 1 or len(tasks) < 2:
        for task in tasks:
            _simulate(task, out, setting)
            yield task
        return
    # Spawned processes: JAX has threads and does not survive a fork.
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        futures = {pool.submit(_simulate, task, out, setting): task for task in tasks}
        try:
            for future in as_completed(futures):
                future.result()
                yield futures[future]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _simulate(task: ArmTask, out: Path, setting: Setting) -> None:
    for path, outcome in zip(task.paths(out), run_arms(task.test, task.arms, task.seed, setting), strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_arrays(path.with_suffix(".safetensors"), {"users": outcome.users, "days": outcome.days})
        write_json(path, {"key": _key(task, setting), **outcome.facts})


def _done(path: Path, key: str) -> bool:
    return read_outcome(path, key) is not None and path.with_suffix(".safetensors").exists()


def _outcomes(test: ABTest, seed: int, out: Path, setting: Setting) -> list[ArmOutcome]:
    found = []
    for arm in range(len(test.arms)):
        path = ArmTask(test, (arm,), seed).paths(out)[0]
        arrays = read_arrays(path.with_suffix(".safetensors"))
        facts = read_outcome(path, _key(ArmTask(test, (arm,), seed), setting))
        found.append(ArmOutcome(np.asarray(arrays["users"]), np.asarray(arrays["days"]), facts or {}))
    return found


def _key(task: ArmTask, setting: Setting) -> str:
    arms = [arm._asdict() for arm in task.test.arms]
    return key_of(setting._asdict(), task.test.name, task.seed, arms, TUNED, PASSES, version("pbodl"))


def _effort(arm: Arm) -> float:
    """A rough duration of an arm: frequently fitted networks take longest, then frequently updated models."""
    return (1e4 if arm.kind == "dnn-batch" else 1.0) / arm.every
