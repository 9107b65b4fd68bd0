"""The corpus: a few small inputs for each target, seeds and findings. `python -m tests.fuzz.corpus` writes the seeds anew."""

import hashlib
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"


def stored(target: str) -> dict[str, bytes]:
    """The inputs of a target, by name."""
    return {path.name: path.read_bytes() for path in sorted((CORPUS / target).iterdir())}


def keep(target: str, data: bytes) -> str:
    """Add a finding; returns its name."""
    name = f"finding-{hashlib.blake2b(data, digest_size=6).hexdigest()}"
    (CORPUS / target / name).write_bytes(data)
    return name


def main() -> None:
    from tests.fuzz.targets import seeds

    for target, inputs in seeds().items():
        (CORPUS / target).mkdir(parents=True, exist_ok=True)
        for name, data in inputs.items():
            (CORPUS / target / name).write_bytes(data)


if __name__ == "__main__":
    main()
