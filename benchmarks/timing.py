"""Times several contestants in turns, so that a busy minute of the machine affects all of them alike."""

import gc
import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple


class Contestant(NamedTuple):
    """`fresh` prepares one run, untimed; the function it returns is timed; `log_loss` evaluates its result."""

    name: str
    rows: int
    fresh: Callable[[], Callable[[], Any]]
    log_loss: Callable[[Any], float] | None = None


class Timing(NamedTuple):
    rows: int
    seconds: list[float]  # one per round
    cpu_seconds: list[float]  # of all threads of this process
    log_loss: float | None

    @property
    def rows_per_second(self) -> float:
        return self.rows / statistics.median(self.seconds)


def interleaved(contestants: Iterable[Contestant], rounds: int, tell: Callable[[str], None]) -> dict[str, Timing]:
    """Run every contestant once per round, after an uncounted round that compiles and fills caches."""
    contestants = list(contestants)
    timings = {c.name: Timing(c.rows, [], [], None) for c in contestants}
    for lap in range(rounds + 1):
        for contestant in contestants:
            tell(f"round {lap} of {rounds}: {contestant.name}")
            seconds, cpu_seconds, outcome = _timed(contestant.fresh())
            if lap == 0:
                judged = contestant.log_loss(outcome) if contestant.log_loss else None
                timings[contestant.name] = timings[contestant.name]._replace(log_loss=judged)
            else:
                timings[contestant.name].seconds.append(seconds)
                timings[contestant.name].cpu_seconds.append(cpu_seconds)
    return timings


def _timed(run: Callable[[], Any]) -> tuple[float, float, Any]:
    gc.collect()
    gc.disable()
    try:
        start, cpu_start = time.perf_counter(), time.process_time()
        outcome = run()
        return time.perf_counter() - start, time.process_time() - cpu_start, outcome
    finally:
        gc.enable()
