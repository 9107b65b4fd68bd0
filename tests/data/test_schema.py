"""What a schema accepts, what it refuses and with which words, and its round trip through plain data."""

import msgspec
import pytest

from pbodl.data.hashing import hash_value
from pbodl.data.schema import Field, Schema
from pbodl.errors import InputError
from pbodl.serving.web.http_messages import JSON, MSGPACK, wire_of
from pbodl.serving.web.openapi import document
from pbodl.serving.web.server_limits import Limits
from pbodl.streaming.events import EventDecoder

FIELDS = [
    Field("hour", derive="hour_of_day"),
    Field("ad_id", group="ad"),
    Field("slot", group="page"),
    Field("interests", group="user", kind="multi"),
    Field("price", group="ad", kind="number", transform="scale"),
]
SCHEMA = Schema(label="click", fields=FIELDS, time="hour", weight="importance", time_format="%y%m%d%H")


def test_groups_stand_in_the_fixed_order_then_by_appearance():
    assert SCHEMA.groups == ("user", "ad", "context", "page")
    assert SCHEMA.group_codes.tolist() == [2, 1, 3, 0, 1]


def test_defaults():
    field = Field("a")
    assert (field.group, field.kind, field.transform, field.derive) == (
        "context",
        "category",
        "buckets",
        None,
    )
    schema = Schema(label="click", fields=[field])
    assert (schema.time, schema.weight, schema.time_format) == (None, None, None)


def test_field_index():
    assert SCHEMA.field_index("price") == 4
    with pytest.raises(InputError, match=r"unknown field 'pric' .did you mean 'price'"):
        SCHEMA.field_index("pric")


def test_round_trip_through_plain_data_and_json():
    plain = msgspec.to_builtins(SCHEMA)
    assert msgspec.convert(plain, Schema) == SCHEMA
    assert msgspec.json.decode(msgspec.json.encode(SCHEMA), type=Schema) == SCHEMA
    text = '{"label": "click", "fields": [{"name": "a"}, {"name": "b", "group": "user"}]}'
    assert msgspec.json.decode(text, type=Schema) == Schema("click", [Field("a"), Field("b", group="user")])


def test_equal_schemas_hash_equal_and_nothing_changes_in_place():
    assert hash(SCHEMA) == hash(msgspec.convert(msgspec.to_builtins(SCHEMA), Schema))
    assert isinstance(SCHEMA.fields, tuple)
    with pytest.raises(AttributeError):
        SCHEMA.label = "other"


def test_the_time_may_be_a_field_too():
    schema = Schema(label="click", time="hour", fields=[Field("hour")])
    assert schema.field_index("hour") == 0


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Field(""), "non-empty string"),
        (lambda: Field("a", kind="catgory"), "unknown kind 'catgory' (did you mean 'category'"),
        (lambda: Field("a", kind="qqq"), "unknown kind 'qqq'; allowed: 'category', 'multi', 'number'"),
        (lambda: Field("a", kind="number", transform="bucket"), "did you mean 'buckets'"),
        (lambda: Field("a", derive="hour_of_dy"), "did you mean 'hour_of_day'"),
        (lambda: Field("a", group="usr"), "unknown group 'usr'; did you mean 'user'"),
        (lambda: Field("a", group="ads"), "did you mean 'ad'"),
        (lambda: Field("a", group="User"), "did you mean 'user'"),
        (lambda: Field("a", group=""), "group must be a non-empty string"),
        (lambda: Field("a", transform="scale"), "is for kind='number'"),
        (lambda: Field("a", derive="hour_of_day", kind="multi"), "must have kind='category'"),
        (lambda: Schema("click", []), "at least one field"),
        (lambda: Schema("click", ["a"]), "must be Field objects"),
        (lambda: Schema("click", [Field("a"), Field("a")]), "occurs twice"),
        (lambda: Schema("click", [Field("click")]), "is the schema's label and also a field"),
        (lambda: Schema("click", [Field("w")], weight="w"), "is the schema's weight and also a field"),
        (lambda: Schema("", [Field("a")]), "label must be the name of a column"),
        (lambda: Schema("click", [Field("a")], time="click"), "different columns"),
        (lambda: Schema("click", [Field("a", derive="hour_of_day")]), "derived from the time"),
        (lambda: Schema("click", [Field("a")], time_format="%y%m%d"), "no time column"),
        (lambda: Schema("click", [Field("a")], time="t", time_format="%y%b"), "'%b' is not known"),
        (lambda: Schema("click", [Field("a")], time="t", time_format="%H%M"), "must name the year"),
    ],
)
def test_refusals(make, words):
    with pytest.raises(InputError) as error:
        make()
    assert words in str(error.value)


@pytest.mark.parametrize("name", ['say "hi"', "back\\slash", "a\ttab", "a\nline", "\x00", "half \ud800"])
def test_names_that_json_could_not_carry_are_refused_before_training(name):
    for make in (
        lambda: Field(name),
        lambda: Schema(label=name, fields=FIELDS),
        lambda: Schema(label="click", fields=FIELDS, time=name),
        lambda: Schema(label="click", fields=FIELDS, weight=name),
    ):
        with pytest.raises(InputError, match="rename the column"):
            make()


@pytest.mark.parametrize(
    "name", ["it's", "a b", "<b>", "ü€😀", "a/b", "a.b", "`x`", "$", "\x7f", "\u2028", "{a}", "100%", "a,b", "'; --"]
)
def test_other_names_are_served_and_streamed(name):
    schema = Schema(
        label="click", fields=[Field(name, group="ad"), Field(f"{name} 2", group="user"), Field(f"{name} 3")], time="at"
    )
    request = {"candidates": [{name: "x"}], "user": {f"{name} 2": 7}, "context": {f"{name} 3": True, "at": 5.0}}
    for kind, encode in ((JSON, msgspec.json.encode), (MSGPACK[0], msgspec.msgpack.encode)):
        parsed = wire_of(schema).read(encode(request), kind)
        assert parsed.own.keys.tolist() == [[hash_value(name, "x")]]
        assert parsed.shared == {f"{name} 2": 7, f"{name} 3": True, "at": 5.0}
        event = {"at": 5.0, "click": 1, name: "x", f"{name} 2": 7, f"{name} 3": True}
        assert EventDecoder(schema).decode([encode(event)]).rows.keys[0] == hash_value(name, "x")
    document(schema, Limits(), False)
