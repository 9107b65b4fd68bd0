"""Fuzzing at speed: the compiled readers on mutations of the corpus, with a fixed seed.

    python -m tests.fuzz.mutated --runs 1000000 [TARGET...]

It sees no coverage, but it runs the machine code that serves. A finding is written into the corpus, and the run ends.
"""

import argparse
import random
import time

from tests.fuzz.corpus import CORPUS, keep, stored
from tests.fuzz.targets import TARGETS

MARKS = [
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\\",
    b"\n",
    b"null",
    b"true",
    b"-1",
    b"0.5",
    b"\xff",
    b"\x90",
    b"\xc3",
    b"\xdd",
]


def mutated(rng: random.Random, pool: list[bytes]) -> bytes:
    """One input of the pool with some changes, or the parts of two joined."""
    data = bytearray(rng.choice(pool))
    for _ in range(rng.randint(1, 4)):
        at, until = sorted(rng.randint(0, len(data)) for _ in range(2))
        what = rng.randrange(7)
        if what == 0 and data:
            data[at % len(data)] ^= 1 << rng.randrange(8)
        elif what == 1 and data:
            data[at % len(data)] = rng.randrange(256)
        elif what == 2:
            data[at : at + rng.randint(0, 3)] = rng.choice(MARKS)
        elif what == 3:
            del data[at : min(until, at + rng.choice((1, 2, 8, 64)))]
        elif what == 4:
            data[at:at] = data[at : min(until, at + 64)]
        elif what == 5:
            other = rng.choice(pool)
            first, last = sorted(rng.randint(0, len(other)) for _ in range(2))
            data[at : min(until, at + 32)] = other[first : min(last, first + 64)]
        else:
            del data[until:]
    return bytes(data)


def fuzz(name: str, runs: int, seed: int = 0) -> int:
    """Run a target on mutations; returns how many per second."""
    rng, pool, target = random.Random(f"{name} {seed}"), list(stored(name).values()), TARGETS[name]
    began = time.perf_counter()
    for _ in range(runs):
        data = mutated(rng, pool)
        try:
            target(data)
        except Exception:
            print(f"{name}: finding kept as {keep(name, data)} in {CORPUS}", flush=True)
            raise
    return round(runs / (time.perf_counter() - began))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", default=list(TARGETS))
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    for name in given.targets:
        print(f"{name}: {given.runs:,} runs, {fuzz(name, given.runs, given.seed):,} a second", flush=True)


if __name__ == "__main__":
    main()
