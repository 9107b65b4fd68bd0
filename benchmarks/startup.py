"""Starts of new processes.

`seconds_to_first_score`: wall time from the start to the first score, with kernels compiled before.

    python -m benchmarks.startup 3

prints the CPU seconds of three fresh installs: import, learn 450 rows with the default model, predict, with an empty cache of
compiled code.

    python -m benchmarks.startup up

starts `pbodl up` with an empty cache, asks its server for a score until one is answered, and prints the wall time, and the CPU
seconds of its processes up to then. The server's worker and the trainer compile, each in one thread: on two idle cores, the larger
one is about the wall time. Run as a program with other arguments, this module is one of these processes.
"""

import http.client
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path


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


def first_score_of_up(port: int = 18099) -> None:
    """Print how long `pbodl up` of a fresh install takes to its first score."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"} | {"PBODL_CACHE": folder}
        command = [sys.executable, "-m", "pbodl.cli", "up", "--out", f"{folder}/live", "--port", str(port)]
        start = time.perf_counter()
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        try:
            while not _answers(port):
                if process.poll() is not None:
                    raise SystemExit(f"`pbodl up` ended with code {process.returncode}")
                time.sleep(0.2)
            seconds, cpu = time.perf_counter() - start, sorted(map(_cpu_of, _descendants_of(process.pid)), reverse=True)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()
    print(f"{seconds:.1f} s to the first score of `pbodl up`; CPU seconds of its processes: {', '.join(f'{n:.1f}' for n in cpu)}")


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    try:
        connection.request("POST", "/v1/score", json.dumps({"candidates": [{"C14": "1"}]}), {"Content-Type": "application/json"})
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def _descendants_of(pid: int) -> list[int]:
    children = [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]
    return children + [descendant for child in children for descendant in _descendants_of(child)]


def _cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


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
    starts = {"score": first_score, "first": first_prediction, "up": first_score_of_up}
    if what in starts:
        starts[what]()
        return
    for seconds in cold_cpu_seconds(int(what)):
        print(f"{seconds:.1f} CPU seconds to the first prediction of a fresh install", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
