"""Coverage-guided fuzzing of one target, with atheris; the scanners run as plain Python, so that their branches are seen.

NUMBA_DISABLE_JIT=1 python -m tests.fuzz.guided TARGET CORPUS_FOLDER... [-runs=100000] [libFuzzer options]
"""

import sys


def main() -> None:
    import atheris  # in an environment of its own, which `make fuzz` makes

    name = sys.argv.pop(1)
    readers = [
        "pbodl.data", "pbodl.serving.web.http_messages", "pbodl.serving.scoring", "pbodl.serving.models.follower",
        "pbodl.streaming.events", "pbodl.streaming.plain_events", "pbodl.system.tensors", "pbodl.models.snapshot",
        "pbodl.publishing",
    ]  # fmt: skip
    with atheris.instrument_imports(include=readers):
        from tests.fuzz.targets import TARGETS
    atheris.Setup(sys.argv, TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
