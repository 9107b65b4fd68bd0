"""Two starts of a new process.

`seconds_to_first_score`: wall time from the start to the first score, with kernels compiled before.

    python -m benchmarks.startup 3

prints the CPU seconds of three fresh installs: import, learn 450 rows with the default model, predict, with an empty cache of
compiled code. Run as a program with other arguments, this module is one of these processes.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time


def seconds_to_first_score(rounds: int) -> list[float]:
    """Wall time of whole processes, including the interpreter; a first, uncounted one fills the cache of compiled code."""
    seconds = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "benchmarks.startup", "score"], check=True)
        seconds.append(time.perf_counter() - start)
    return seconds[1:]


def cold_cpu_seconds(rounds: int) -> list[float]:
    """CPU time of whole processes up to the first prediction, each with an empty cache of compiled code."""
    seconds = []
    for _ in range(rounds):
        before = _cpu_of_children()
        with tempfile.TemporaryDirectory() as folder:
            environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"} | {"PBODL_CACHE": folder}
            subprocess.run([sys.executable, "-m", "benchmarks.startup", "first"], check=True, env=environment)
        seconds.append(_cpu_of_children() - before)
    return seconds


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def first_score() -> None:
    import pbodl

    schema = pbodl.Schema(label="click", fields=[pbodl.Field("user", group="user"), pbodl.Field("ad", group="ad")])
    pbodl.FMMLP(schema).predict_proba_one({"user": "anna", "ad": 17})


def first_prediction() -> None:
    import pbodl

    schema = pbodl.Schema(label="click", fields=[pbodl.Field("likes", group="user"), pbodl.Field("topic", group="ad")])
    model = pbodl.PairFM(schema)
    rows = [{"likes": n % 4, "topic": n % 5, "click": int(n % 4 == n % 5)} for n in range(450)]
    model.learn(rows)
    model.predict(rows[:3])


def main(what: str) -> None:
    starts = {"score": first_score, "first": first_prediction}
    if what in starts:
        starts[what]()
        return
    for seconds in cold_cpu_seconds(int(what)):
        print(f"{seconds:.1f} CPU seconds to the first prediction of a fresh install", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
