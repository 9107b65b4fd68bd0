"""The engines, and the options that belong to them."""

from typing import Any

from pbodl.errors import InputError

ENGINES = ("threads", "ray")
SHARD_TIMEOUT = 120.0  # seconds after which a shard that does not answer is replaced
OF_RAY: dict[str, Any] = {"address": None, "shards": 1, "minibatch": None, "wire_bits": 16, "shard_timeout": SHARD_TIMEOUT}


def check_engine(engine: str, **options: Any) -> None:
    """Refuse an unknown engine, and options that the one chosen would ignore."""
    if engine not in ENGINES:
        raise InputError(f"engine is {engine!r}; it must be one of: {', '.join(ENGINES)}")
    if options["wire_bits"] not in (16, 32):
        raise InputError(f"wire_bits is {options['wire_bits']}; it must be 16 or 32")
    given = [name for name, usual in OF_RAY.items() if options[name] != usual]
    if engine != "ray" and given:
        raise InputError(f"--{given[0].replace('_', '-')} is an option of --engine ray; threads have no use for it")
