"""The configuration of a run: the tables `[schema]`, `[model]` and `[training]` of a TOML file, with changes from the command line.

Every key is checked; the error for an unknown key names the nearest valid one.
"""

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import tomli_w

import pbodl.baselines  # noqa: F401  registers its kinds of models
from pbodl.data.sampling import NegativeSets
from pbodl.data.schema import Field, Schema, nearest
from pbodl.errors import InputError
from pbodl.models.clock import Duration, parse_duration
from pbodl.models.contract import Model
from pbodl.models.deep_probit import DeepProbit
from pbodl.models.spec import AS_PRINTED, DeepSpec, FieldPrior, PairSpec, Prior
from pbodl.training.visits.reinforcement import check_sets, reinforced
from pbodl.training.visits.worker_rules import DEFAULT as DEFAULT_MERGE
from pbodl.training.visits.worker_rules import burn_in_of, check_merge

FROM_TRAINING = ("half_life", "negative_rate")  # keys of a model's spec that belong to [training]
DEFAULT_KIND = "pair-fm"
DEFAULT_NETWORK = "fm-mlp"  # where a configuration has keys of hidden layers, and names no kind


class TrainingSpec(msgspec.Struct, frozen=True):
    """The `[training]` table.

    passes          visits to every minibatch of 256 rows (§4.5 of the paper); 1 learns each row once
    ep              make the visits by expectation propagation: at most `passes` of them, until they change nothing
    sets            sets of workers with the same clicks, and each its own sample of the non-clicks (`negative_rate`)
    power           "once": all visits and sets together count a row once; "paper": each counts it, as in the paper
    merge           rule for merging the updates of several workers: "shared", or "add" (the paper's)
    burn_in         amount that one worker learns before the others join: "100k" rows, "2d"
    negative_rate   share of the non-clicks to learn from, above 0 and at most 1; "auto" keeps about ten for each click
    half_life       time to forget half of the evidence: "7d", "12h", or "1M rows"; absent: never forget
    every           period of one line of figures: "1d", "1h", "100k rows"
    snapshot_every  seconds between snapshots while learning
    """

    passes: int = 1
    ep: bool = False
    sets: int = 1
    power: str = "once"
    merge: str = DEFAULT_MERGE
    burn_in: str | int | None = None
    negative_rate: float | str = 1.0
    half_life: str | None = None
    every: str | None = None
    snapshot_every: float = 60.0

    @property
    def negatives(self) -> NegativeSets:
        """Which non-clicks are learned, and how much they count."""
        return NegativeSets(self.sets, self.power == "paper")

    def period(self, schema: Schema) -> Duration:
        """The period of one line of figures: `every` if given, else a day, or 100,000 rows if there is no time column."""
        period = parse_duration(self.every or ("1d" if schema.time else "100k rows"), "every")
        if not period.in_rows and schema.time is None:
            raise InputError(f"every is {self.every!r}, but the schema has no time column; give rows: '100k rows'")
        return period


class Config(NamedTuple):
    schema: Schema
    kind: str
    model: dict[str, Any]
    training: TrainingSpec

    def build(self, negative_rate: float = 1.0) -> Model:
        """A new model of this configuration."""
        kind = Model.kinds[self.kind]
        fields = kind.Spec.__struct_fields__
        given = {"half_life": self.training.half_life, "negative_rate": negative_rate}
        if self.training.half_life is not None and "half_life" not in fields:
            raise InputError(f"[training] half_life: the model {self.kind!r} does not forget; remove it")
        values = _as_printed(self.kind, self.model) | {name: value for name, value in given.items() if name in fields}
        return self.prepare(kind.from_spec(self.schema, _convert(values, kind.Spec, "model")))

    def prepare(self, model: Model) -> Model:
        """The model, which learns as [training] says from now on; one that was loaded needs this too."""
        training = self.training
        model.negatives = training.negatives
        if (learning := reinforced(training.passes, training.ep, training.power, training.sets)) is not None:
            if not isinstance(model, DeepProbit):
                raise InputError(f"[training] passes and ep are for the deep probit models; {self.kind!r} learns each row once")
            model.learn_with(learning)
        return model


def read_config(path: str | Path) -> dict[str, Any]:
    """The tables of a TOML file, not yet checked."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"the configuration {path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"the configuration {path} is not TOML: {error}") from error


def with_changes(tables: Mapping[str, Any], changes: Iterable[str]) -> dict[str, Any]:
    """The tables after changes such as "model.dim=16".

    >>> with_changes({"model": {"dim": 8}}, ["model.dim=16", "training.half_life=7d"])
    {'model': {'dim': 16}, 'training': {'half_life': '7d'}}
    """
    values: dict[str, Any] = {}
    for change in changes:
        path, equals, text = change.partition("=")
        if not equals or "." not in path:
            raise InputError(f"--set {change!r} is not of the form table.key=value, such as model.dim=16")
        values[path.strip()] = _value(text)
    return with_values(tables, values, "--set")


def with_values(tables: Mapping[str, Any], values: Mapping[str, Any], what: str = "the setting") -> dict[str, Any]:
    """The tables after other values for keys such as "model.dim"; errors call them `what`."""
    result = msgspec.convert(msgspec.to_builtins(tables), dict[str, Any])
    for path, value in values.items():
        *parents, last = str(path).split(".")
        if not parents:
            raise InputError(f"{what} {path!r} is not of the form table.key, such as model.dim")
        table = result
        for name in parents:
            table = table.setdefault(name, {})
            if not isinstance(table, dict):
                raise InputError(f"{what} {path!r}: {name!r} is a value, not a table")
        table[last] = value
    return result


def check_config(tables: Mapping[str, Any]) -> Config:
    """The configuration in the tables; an InputError names what is wrong."""
    _refuse_unknown("the configuration", tables, ("schema", "model", "training"))
    for name in ("schema", "model", "training"):
        if not isinstance(tables.get(name, {}), dict):
            raise InputError(f"[{name}] must be a table")
    if "schema" not in tables:
        raise InputError("the configuration has no [schema]; `pbodl data inspect FILE` prints one to start from")
    _refuse_unknown("[schema]", tables["schema"], Schema.__struct_fields__)
    for field in tables["schema"].get("fields", []):
        _refuse_unknown("[[schema.fields]]", field, Field.__struct_fields__)
    schema = _convert(tables["schema"], Schema, "schema")
    model = dict(tables.get("model", {}))
    of_network = set(DeepSpec.__struct_fields__) - set(PairSpec.__struct_fields__)
    kind = model.pop("kind", DEFAULT_NETWORK if of_network & set(model) else DEFAULT_KIND)
    if kind not in Model.kinds:
        raise InputError(f"unknown model kind {kind!r}{nearest(str(kind), Model.kinds)}; kinds are: {', '.join(Model.kinds)}")
    _as_printed(kind, model)
    names = ["paper", *(name for name in Model.kinds[kind].Spec.__struct_fields__ if name not in FROM_TRAINING)]
    for name in FROM_TRAINING:
        if name in model:
            raise InputError(f"[model] {name} belongs in [training]")
    _refuse_unknown("[model]", model, names)
    if isinstance(model.get("prior"), dict) and "prior" in names:
        _refuse_unknown("[model.prior]", model["prior"], Prior.__struct_fields__)
        for name, prior in model["prior"].get("fields", {}).items():
            _refuse_unknown(f"[model.prior.fields.{name}]", prior, FieldPrior.__struct_fields__)
    training = tables.get("training", {})
    _refuse_unknown("[training]", training, TrainingSpec.__struct_fields__)
    config = Config(schema, kind, model, _convert(training, TrainingSpec, "training"))
    rate = config.training.negative_rate
    if isinstance(rate, str) and rate != "auto":
        raise InputError(f'[training] negative_rate is {rate!r}; it must be a number above 0 and at most 1, or "auto"')
    check_sets(config.training.sets, rate)
    check_merge(config.training.merge)
    burn_in = burn_in_of(config.training.burn_in)
    if burn_in is not None and not burn_in.in_rows and schema.time is None:
        raise InputError(f"[training] burn_in is {config.training.burn_in!r}, and the schema has no time column; give rows: '100k'")
    config.build()
    config.training.period(schema)
    return config


def _as_printed(kind: str, model: Mapping[str, Any]) -> dict[str, Any]:
    """The [model] table with what `paper = true` stands for in its place; InputError if another key says otherwise."""
    model = dict(model)
    paper = model.pop("paper", False)
    if not isinstance(paper, bool):
        raise InputError(f"[model] paper is {paper!r}; it must be true or false")
    if not paper:
        return model
    if not issubclass(Model.kinds[kind].Spec, DeepSpec):
        kinds = [name for name, one in Model.kinds.items() if issubclass(one.Spec, DeepSpec)]
        raise InputError(f"[model] paper = true: {kind!r} is not a model of the paper; those are: {', '.join(kinds)}")
    fixed = msgspec.to_builtins(AS_PRINTED)
    other = [name for name, value in fixed.items() if name in model and msgspec.to_builtins(model[name]) != value]
    if other:
        told = "; ".join(f"{name} is {model[name]!r}, and the paper has {fixed[name]!r}" for name in other)
        raise InputError(f"[model] paper = true contradicts other keys: {told}. Remove them, or `paper`")
    return model | fixed


def to_tables(config: Config) -> dict[str, Any]:
    """The tables as in a TOML file."""
    return {
        "schema": msgspec.to_builtins(config.schema),
        "model": {"kind": config.kind, **config.model},
        "training": msgspec.to_builtins(config.training),
    }


def to_toml(config: Config) -> str:
    """The text of a TOML file with this configuration."""
    return tomli_w.dumps(_present(to_tables(config)))


def _present(table: Mapping[str, Any]) -> dict[str, Any]:
    """The table without what is absent (None), which TOML cannot write."""
    return {key: _present(value) if isinstance(value, Mapping) else value for key, value in table.items() if value is not None}


def _value(text: str) -> Any:
    """A value as TOML writes it; what is not TOML is a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text.strip()


def _refuse_unknown(where: str, table: Any, names: Iterable[str]) -> None:
    if not isinstance(table, Mapping):
        raise InputError(f"{where} must be a table, not {table!r}")
    names = list(names)
    for key in table:
        if key not in names:
            raise InputError(f"{where} has an unknown key {key!r}{nearest(key, names)}; valid keys: {', '.join(names)}")


def _convert(values: Any, kind: type, where: str) -> Any:
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        if str(error) == "Object missing required field `label`":  # as in a guess that leaves it to a person
            raise InputError(f'[{where}] has no label; name the column with the clicks, such as label = "click"') from error
        raise InputError(f"[{where}] is not valid: {error}") from error
