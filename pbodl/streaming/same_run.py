"""Whether a run that is continued is given what it was started with; what may differ, and what may not."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from pbodl.errors import InputError
from pbodl.models.clock import parse_duration
from pbodl.models.contract import Model
from pbodl.training.config import FROM_TRAINING, Config


class StreamOptions(NamedTuple):
    """How events are joined and watched; saved with the run, since other options would give other rows."""

    window: str = "10m"
    late: str = "1h"
    capacity: int = 1_000_000  # impressions to remember
    skew: str = "1h"  # by which an event may be ahead of the others
    outcome: str = "click"  # of an impression; or "conversion", of a click
    ages: str = ""  # at which impressions are judged, such as "1m,10m,70m"; by the delays if there are none


OPTIONS = {"window": "--window", "late": "--late", "skew": "--skew", "outcome": "--outcome", "ages": "--ages"}
SPANS = ("window", "late", "skew")


def check_same(
    folder: Any, config: Config, model: Model, options: dict[str, Any], saved: dict[str, Any], given: Iterable[str],
    negatives: list[int] | None = None,
) -> None:  # fmt: skip
    """InputError that names all `given` options and all keys of the configuration that differ from those of the run.

    The join's capacity may change: it is how many impressions are remembered, and not what is made of them. `negatives` are the
    sets of the run, if it is known: which non-clicks are learned, at every age, depends on them.
    """
    if model.schema != config.schema:
        raise InputError(
            f"{folder} was started with another schema; continue it with the schema that it was started with, or change that with "
            "`pbodl migrate`"
        )
    differ = [f"model.kind is {config.kind!r}, and was {model.kind!r}"] if config.kind != model.kind else _keys(config, model)
    if negatives is not None:
        differ += differing_sets(config, negatives)
    for name in given:
        if name in OPTIONS and not _same(name, options[name], saved[name]):
            differ.append(f"{OPTIONS[name]} is {options[name]!r}, and was {saved[name]!r}")
    if differ:
        raise InputError(
            f"{folder} was started with other options: {'; '.join(differ)}. Continue it without these changes, or start a new run "
            "in another --out"
        )


def _keys(config: Config, model: Model) -> list[str]:
    """The keys of the model's configuration that differ."""
    rate = config.training.negative_rate
    asked, has = config.build(model.negative_rate if rate == "auto" else float(rate)).spec, model.spec
    names = [name for name in asked.__struct_fields__ if getattr(asked, name) != getattr(has, name)]
    return [
        f"{'training' if name in FROM_TRAINING else 'model'}.{name} is {getattr(asked, name)!r}, and was {getattr(has, name)!r}"
        for name in names
    ]


def differing_sets(config: Config, negatives: list[int]) -> list[str]:
    """The keys of the sets of negatives that differ from those of a run."""
    keys = zip(("sets", "power"), config.training.negatives.plain(), negatives, strict=True)
    return [f"training.{key} is {_shown(key, one)}, and was {_shown(key, other)}" for key, one, other in keys if one != other]


def _shown(key: str, value: int) -> str:
    return str(value) if key == "sets" else repr("paper" if value else "once")


def _same(name: str, one: Any, other: Any) -> bool:
    if name in SPANS:
        return parse_duration(one, OPTIONS[name]) == parse_duration(other, OPTIONS[name])
    return bool(one == other)


def saved_options(saved: dict[str, Any]) -> StreamOptions:
    """The options of a run that continues; InputError if it was written when non-clicks were still taken back."""
    if "settle" in saved:
        raise InputError(
            "the run was written by a version of PBODL that learned non-clicks early and took them back (--settle); it cannot "
            "continue. Start a new run in another --out with its model: --start-from"
        )
    return StreamOptions(**saved)
