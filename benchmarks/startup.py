"""The time of a new process from its start to its first score; run as a program, this module is that process."""

import subprocess
import sys
import time


def seconds_to_first_score(rounds: int) -> list[float]:
    """Wall time of whole processes, including the interpreter; a first, uncounted one fills the cache of compiled code."""
    seconds = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "benchmarks.startup"], check=True)
        seconds.append(time.perf_counter() - start)
    return seconds[1:]


def main() -> None:
    import pbodl

    schema = pbodl.Schema(label="click", fields=[pbodl.Field("user", group="user"), pbodl.Field("ad", group="ad")])
    pbodl.FMMLP(schema).predict_proba_one({"user": "anna", "ad": 17})


if __name__ == "__main__":
    main()
