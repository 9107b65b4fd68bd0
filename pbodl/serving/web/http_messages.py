"""Requests and answers as typed structures, made from a model's schema, in JSON or msgpack.

The OpenAPI document is made from the same structures, so that it always agrees with the code.
"""

import contextlib
import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import numpy as np
import orjson
from msgspec import Meta

from pbodl.data.features.former_names import renamed_row
from pbodl.data.features.nested import flattened
from pbodl.data.numbers import LARGEST
from pbodl.data.scan.structure import count_values
from pbodl.data.schema import Field, Schema, nearest
from pbodl.data.times import EARLIEST, LATEST, UNIT_NAMES, UNITS
from pbodl.errors import InputError
from pbodl.serving.scoring.body_scan import MOST, Scanner
from pbodl.serving.scoring.exploration import Exploration
from pbodl.serving.scoring.predictor import Scores
from pbodl.serving.scoring.request_encoding import OWN_GROUP, Encoded, encoder_of

JSON = "application/json"
MSGPACK = ("application/msgpack", "application/x-msgpack", "application/vnd.msgpack")
ECHO = 200  # characters of a request that an error repeats, at most
SMALL = 2**16  # bytes: a smaller body cannot hold so many values that reading them takes long
SPARE_VALUES = 10_000  # values that a body may hold beside those of its candidates
LIST_VALUES = 16  # values of a list that count as usual
# Headers of every answer, unless it has its own: nothing of it is ever framed, guessed at, passed on, or kept.
SECURITY = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}

UNKNOWN = "Object contains unknown field `"

YEARS = "^(19|20|21)[0-9]{2}-"  # the start of a time in the years that are accepted
RANKS = {"category": 0, "position": 0, "multi": 1, "number": 2, "vector": 3}
Value = str | int | float | bool | None
# In JSON Schema, 7.0 is a whole number. Integers and floats are both exact up to here.
LARGEST_SEED = 2**53 - 1
Seed = Annotated[int, Meta(ge=0, le=LARGEST_SEED)] | Annotated[float, Meta(ge=0, le=LARGEST_SEED, multiple_of=1)]
Width = Annotated[float, Meta(ge=0.0, le=100.0)]
Explore = Literal["none", "thompson", "ucb"]
ExploreKey = (
    Annotated[str, Meta(max_length=ECHO)]
    | Annotated[int, Meta(ge=-LARGEST_SEED, le=LARGEST_SEED)]
    | Annotated[float, Meta(ge=-LARGEST_SEED, le=LARGEST_SEED, multiple_of=1)]  # 7.0 is the integer 7 in JSON
)


def echoed(text: str) -> str:
    """A text as errors repeat it: not more of it than a person reads."""
    return text if len(text) <= ECHO else f"{text[: ECHO - 1]}…"


class RequestError(Exception):
    """An error that is sent to the client."""

    def __init__(
        self, status: int, code: str, message: str, field: str | None = None, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.field, self.headers = status, code, message, field, headers or {}

    def body(self) -> bytes:
        return orjson.dumps({"error": {"code": self.code, "message": self.message, "field": self.field}})


def invalid(error: InputError) -> RequestError:
    """What is wrong with the values of a request."""
    field = re.search(r"(?:field|column) '([^']+)'", str(error))
    return RequestError(422, "invalid", str(error)[:1000], field[1] if field else None)


class Problem(msgspec.Struct):
    code: str
    message: str
    field: str | None


class ErrorAnswer(msgspec.Struct):
    error: Problem


class ScoreAnswer(msgspec.Struct, omit_defaults=True):
    """`ctr` and `std` of each candidate, in the order of the request; with `detail` the latent `mean` and `variance`.

    `explore` is the rule that made `ctr`, if the request asked for one; `name` is that of the model, if the server has several.
    """

    model: int
    ctr: list[float]
    std: list[float]
    mean: list[float] | None = None
    variance: list[float] | None = None
    explore: Explore = "none"
    name: str = ""


class ModelAnswer(msgspec.Struct):
    version: int
    age: float
    published_at: float
    loaded_at: float
    kind: str
    rows_learned: int
    features: int
    counters: dict[str, int]
    schema: dict[str, Any]
    spec: dict[str, Any]


class ListedModel(msgspec.Struct):
    """A model of the server; what is not loaded yet has no version. `share` is that of the split."""

    name: str
    default: bool
    share: float | None
    shadow: bool
    version: int | None
    age: float | None
    kind: str | None
    rows_learned: int | None
    features: int | None
    troubles: dict[str, int]


class ModelsAnswer(msgspec.Struct):
    models: list[ListedModel]


class Health(msgspec.Struct):
    status: str


class Parsed(NamedTuple):
    """A parsed request."""

    shared: dict[str, Any]
    own: list[tuple] | Encoded  # the candidates' values, in the schema's order, or their keys
    explore: Exploration
    detail: bool

    @property
    def candidates(self) -> int:
        return len(self.own.keys if isinstance(self.own, Encoded) else self.own)


class Wire:
    """Reads the requests of one schema."""

    def __init__(self, schema: Schema) -> None:
        given = [field for field in schema.fields if field.source is not None]
        own = [field for field in given if field.group == OWN_GROUP]
        self._user = columns_of([field for field in given if field.group == "user"])
        self._own = columns_of(own)
        # Fields of all other groups belong to the context.
        self._context = columns_of([field for field in given if field.group not in ("user", OWN_GROUP)])
        self._schema, self._width = schema, len(self._own)
        # Of fields that read the same column, numbers are the most particular.
        types = {str(field.source): _type(field) for field in sorted(given, key=lambda field: RANKS[field.kind])}
        self._time = "" if schema.time is None else f"context.{schema.time}"
        self._unit = UNIT_NAMES.get(schema.time_unit or "s", "seconds")
        if schema.time is not None:
            self._context.append(schema.time)
            types[schema.time] = _time_type(schema)
        types |= {alias: types[name] for name, aliases in schema.former_columns.items() for alias in aliases}
        types |= dict.fromkeys(schema.retired, Any)
        former = {name: list(schema.former_columns.get(name, ())) for name in types}
        self._former = [(place, alias) for place, name in enumerate(self._own) for alias in former[name]]
        parts = {"User": self._user, "Context": self._context, "Candidate": self._own}
        known = {part: [*names, *(alias for name in names for alias in former[name])] for part, names in parts.items()}
        self._of_user, self._of_context = known["User"], known["Context"]
        user, context, candidate = (_struct(part, [*names, *schema.retired], types) for part, names in known.items())
        self.parts = (user, context, candidate)  # of a request
        self.request = msgspec.defstruct(
            "ScoreRequest",
            [
                ("candidates", list[candidate]),  # type: ignore[valid-type]
                ("user", user, msgspec.field(default_factory=user)),
                ("context", context, msgspec.field(default_factory=context)),
                ("explore", Explore, "none"),
                ("seed", Seed | None, None),
                ("c", Width, 1.0),
                ("detail", bool, False),
                ("explore_key", ExploreKey | None, None),
                ("spread", Width, 1.0),
                ("split_key", ExploreKey | None, None),
            ],
            forbid_unknown_fields=True,
            gc=False,
        )
        self._json = msgspec.json.Decoder(self.request)
        self._msgpack = msgspec.msgpack.Decoder(self.request)
        self._encoder = encoder_of(schema)
        # A candidate holds names and values; lists hold more.
        self._values = 2 + sum(2 + LIST_VALUES * (field.kind == "multi") + field.length for field in own)
        self._scanners = {is_json: Scanner(own, is_json, schema.retired) for is_json in (True, False) if self._encoder.plain}

    def read(self, body: bytes, content_type: str, candidates: int = MOST) -> Parsed:
        """Parse the body of a request of up to so many candidates; RequestError says what is wrong with it."""
        is_json = content_type == JSON
        if self._scanners:
            listed = self._scanners[is_json].read(body, candidates)
            if listed is not None:
                rest = body[: listed.begin] + (b"[]" if is_json else b"\x90") + body[listed.end :]
                with contextlib.suppress(RequestError):  # raised again below, for the whole body
                    return self._bounded(rest, content_type, 0)._replace(own=self._encoder.from_keys(listed.keys))
        return self._bounded(body, content_type, candidates)

    def _bounded(self, body: bytes, content_type: str, candidates: int) -> Parsed:
        """Parse a body, unless it holds more values than a request of so many candidates needs: each would become an object."""
        self.check_values(body, content_type, candidates)
        return self._read(body, content_type)

    def check_values(self, body: bytes, content_type: str, candidates: int) -> None:
        """RequestError if a body holds more values than a request of so many candidates needs."""
        if len(body) > SMALL:
            most = candidates * self._values + SPARE_VALUES
            if count_values(np.frombuffer(body, np.uint8), content_type == JSON, most) > most:
                message = f"the body holds more than {most:,} names and values; a request of {candidates:,} candidates needs fewer"
                raise RequestError(413, "too_many_values", message)

    def decoded(self, decoder: Any, body: bytes, content_type: str) -> Any:
        """What a decoder of requests makes of a body; RequestError says what is wrong with it."""
        try:
            try:
                return decoder.decode(body)
            except msgspec.ValidationError:
                if not self._encoder.objects:
                    raise
                return msgspec.convert(self._taken_apart(body, content_type), decoder.type)
        except msgspec.ValidationError as error:
            raise self._explained(str(error), decoder.type.__struct_fields__) from None
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise RequestError(400, "malformed", f"the body is not {content_type}: {echoed(str(error))}") from None

    def _taken_apart(self, body: bytes, content_type: str) -> Any:
        """The values of a body whose user, context or candidates hold objects, these taken apart."""
        request = (msgspec.json if content_type == JSON else msgspec.msgpack).decode(body)
        if not isinstance(request, dict):
            return request
        objects, parts = self._encoder.objects, dict(request)
        for name in ("user", "context"):
            if isinstance(request.get(name), dict):
                parts[name] = flattened(request[name], objects)
        if isinstance(request.get("candidates"), list):
            parts["candidates"] = [flattened(row, objects) if isinstance(row, dict) else row for row in request["candidates"]]
        return parts

    def shared_of(self, request: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """The values of the user and of the context, by name."""
        astuple = msgspec.structs.astuple
        # Values of retired columns come last, and are left out.
        user = dict(zip(self._of_user, astuple(request.user), strict=False))
        context = dict(zip(self._of_context, astuple(request.context), strict=False))
        if self._schema.former_columns:
            user, context = (dict(renamed_row(self._schema, part)) for part in (user, context))
        return user, context

    def own_of(self, request: Any) -> list[tuple]:
        """The values of the candidates, under the present names of their columns."""
        own = list(map(msgspec.structs.astuple, request.candidates))
        return list(map(self._present, own)) if self._former or self._schema.retired else own

    def _read(self, body: bytes, content_type: str) -> Parsed:
        request: Any = self.decoded(self._json if content_type == JSON else self._msgpack, body, content_type)
        user, context = self.shared_of(request)
        shared = user | context
        seed = None if request.seed is None else int(request.seed)
        key = int(request.explore_key) if isinstance(request.explore_key, float) else request.explore_key
        explore = Exploration(request.explore, key, seed, request.spread, request.c)
        return Parsed(shared, self.own_of(request), explore, request.detail)

    def _present(self, candidate: tuple) -> tuple:
        """The values of a candidate under the present names, from those under present, former and retired ones."""
        values = list(candidate[: self._width])
        for (place, _), value in zip(self._former, candidate[self._width :], strict=False):
            if values[place] is None:
                values[place] = value
        return tuple(values)

    def _explained(self, error: str, names: Sequence[str]) -> RequestError:
        """The error that msgspec found, with its field."""
        what, _, path = error.partition(" - at `$")
        place = echoed(path.rstrip("`").removeprefix("."))
        if not what.startswith(UNKNOWN):
            what = echoed(what)
            missing = re.fullmatch(r"Object missing required field `(.*)`", what)
            field = ".".join(filter(None, (place, missing[1] if missing else "")))
            if field == self._time and "`float`" in what:
                what += f": a time is in epoch {self._unit}, in the years 1900 to 2199"
            return RequestError(422, "invalid", f"{field or 'the body'}: {what[:1].lower()}{what[1:]}", field or None)
        parts = {"": list(names), "user": self._user, "context": self._context}
        known = parts.get(place, self._own)
        name, where = echoed(what.removeprefix(UNKNOWN).removesuffix("`")), place or "the request"
        message = f"{where}: unknown field {name!r}{nearest(name, known)}; allowed here: {', '.join(known) or 'none'}"
        if known is self._own and not known:
            message += ", since no field of the model has the group 'ad'; set it in the schema and train again"
        return RequestError(422, "unknown_field", message, f"{place}.{name}" if place else name)


def wire_of(schema: Schema) -> Wire:
    return encoder_of(schema).once(Wire)


def columns_of(fields: Sequence[Field]) -> list[str]:
    """The columns that fields read, each once."""
    return list(dict.fromkeys(str(field.source) for field in fields))


def _type(field: Field) -> Any:
    if field.kind == "multi":
        return list[Value] | str | None
    if field.is_category:
        return Value
    bound = LARGEST if field.is_scaled or field.length else 1e300
    if field.kind == "vector":
        number = Annotated[float, Meta(ge=-bound, le=bound)]
        return Annotated[list[number], Meta(min_length=field.length, max_length=field.length)] | None
    return Annotated[float, Meta(ge=-bound, le=bound)] | None


def _time_type(schema: Schema) -> Any:
    """Seconds since 1970, or another unit, or a text: ISO 8601, or the schema's own format."""
    if schema.time_format is None:
        about = {"format": "date-time", "pattern": YEARS}
    else:
        about = {"description": f"a time in the format {schema.time_format}"}
    scale = UNITS[schema.time_unit or "s"]
    number = Annotated[float, Meta(ge=EARLIEST * scale, le=(LATEST - 1) * scale)]
    text = Annotated[str, Meta(max_length=ECHO, extra_json_schema=about)]
    return number | text | None


def _struct(name: str, fields: list[str], types: dict[str, Any]) -> type[msgspec.Struct]:
    """A structure whose fields may have any names; a field that is not given is missing."""
    inner = [f"f{place}" for place in range(len(fields))]
    return msgspec.defstruct(
        name,
        [(own, types[field], None) for own, field in zip(inner, fields, strict=True)],
        rename=dict(zip(inner, fields, strict=True)),
        forbid_unknown_fields=True,
        frozen=True,
        gc=False,
    )


def write_scores(version: int, scores: Scores, detail: bool, content_type: str, explore: str = "none", name: str = "") -> bytes:
    """The answer to a request; `explore` is the rule that made the CTRs."""
    answer: dict[str, Any] = {"model": version, "ctr": scores.ctr, "std": scores.std}
    if explore != "none":
        answer["explore"] = explore
    if name:
        answer["name"] = name
    if detail:
        answer |= {"mean": scores.mean, "variance": scores.variance}
    if content_type == JSON:
        return orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)
    return msgspec.msgpack.encode(
        {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in answer.items()}
    )
