"""The configuration: what it accepts, what it refuses and with which words, and its way to TOML and back."""

import tomllib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pbodl
from pbodl.errors import InputError
from pbodl.models.clock import Duration
from pbodl.training.config import check_config, read_config, to_tables, to_toml, with_changes
from tests.click_log import PLAIN, RICH

SCHEMA = msgspec.to_builtins(RICH)
FULL = {
    "schema": SCHEMA,
    "model": {
        "kind": "ffm-mlp", "dim": 2, "hidden": [4, 3], "linear": False, "seed": 7,
        "prior": {"embedding": 1e-5, "fields": {"user": {"embedding": 0.3}}},
    },
    "training": {"negative_rate": "auto", "half_life": "7d", "every": "6h", "snapshot_every": 30},
}  # fmt: skip


def test_a_schema_without_its_label_is_told_what_to_name():
    """As `pbodl data inspect` writes it where no column can be taken for the label."""
    with pytest.raises(InputError, match=r"\[schema\] has no label; name the column with the clicks"):
        check_config({"schema": {name: value for name, value in SCHEMA.items() if name != "label"}})


def test_the_papers_model_by_one_key(tmp_path):
    tables = {"schema": SCHEMA, "model": {"kind": "fm-mlp", "dim": 3, "paper": True}}
    config = check_config(tables)
    assert config.build().spec == pbodl.FMMLP(RICH, dim=3, paper=True).spec
    (tmp_path / "config.toml").write_text(to_toml(config))
    assert check_config(read_config(tmp_path / "config.toml")).build().spec == config.build().spec
    assert check_config(with_changes(tables, ["model.linear=false", "model.pairs=fields"])).build().spec == config.build().spec
    assert check_config(with_changes(tables, ["model.paper=false"])).build().spec == pbodl.FMMLP(RICH, dim=3).spec


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("model.linear=true", "linear is True, and the paper has False"),
        ("model.prior.embedding=0.02", "prior is"),
        ("model.kind=pair-fm", "'pair-fm' is not a model of the paper; those are: deep-probit, sparse-mlp, fm-mlp, ffm-mlp"),
        ("model.kind=ftrl", "'ftrl' is not a model of the paper"),
        ("model.paper=1", "it must be true or false"),
    ],
)
def test_the_papers_model_bears_no_contradiction(change, words):
    with pytest.raises(InputError, match=words):
        check_config(with_changes({"schema": SCHEMA, "model": {"kind": "fm-mlp", "paper": True}}, [change]))


def test_defaults():
    config = check_config({"schema": SCHEMA})
    assert config.kind == "pair-fm"
    assert config.schema == RICH
    assert config.training.negative_rate == 1.0
    assert config.training.period(RICH) == Duration(86400.0, False)
    assert config.training.period(PLAIN) == Duration(100_000.0, True)


def test_the_model_is_built_as_described():
    model = check_config(FULL).build(0.25)
    assert (model.kind, model.spec.dim, model.spec.hidden, model.spec.seed) == ("ffm-mlp", 2, (4, 3), 7)
    assert (model.spec.half_life, model.negative_rate) == ("7d", 0.25)
    assert model.spec.prior.of_field("user", "embedding") == 0.3
    assert model.spec.prior.embedding == 1e-5


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["model.dims=3"], ["[model]", "'dims'", "did you mean 'dim'"]),
        (["training.halflife=7d"], ["[training]", "'halflife'", "did you mean 'half_life'"]),
        (["modell.dim=3"], ["'modell'", "did you mean 'model'"]),
        (["schema.lable=click"], ["[schema]", "'lable'", "did you mean 'label'"]),
        (["model.prior.embeding=1"], ["[model.prior]", "did you mean 'embedding'"]),
        (["model.prior.fields.user.lin=1"], ["[model.prior.fields.user]", "valid keys: embedding, linear"]),
        (["model.kind=fm-mpl"], ["'fm-mpl'", "did you mean 'fm-mlp'"]),
        (["model.half_life=7d"], ["[model] half_life belongs in [training]"]),
        (["model.negative_rate=0.5"], ["[model] negative_rate belongs in [training]"]),
        (["model.dim=many"], ["[model]", "dim"]),
        (["model.dim=0"], ["dim is 0"]),
        (["training.negative_rate=few"], ["negative_rate is 'few'", '"auto"']),
        (["training.half_life=soon"], ["half_life is 'soon'", "'7d'"]),
        (["training.every=often"], ["every is 'often'"]),
        (["training.merge=average"], ["merge is 'average'", "shared, add"]),
        (["training.burn_in=soon"], ["burn_in is 'soon'"]),
        (["training.sets=many"], ["[training]", "sets"]),
        (["model.prior.fields.usr.linear=1"], ["unknown field 'usr'", "did you mean 'user'"]),
    ],
)
def test_what_is_wrong_is_named(changes, words):
    with pytest.raises(InputError) as caught:
        check_config(with_changes({"schema": SCHEMA}, changes))
    for word in words:
        assert word in str(caught.value)


def test_an_unknown_key_of_a_field_is_named():
    with pytest.raises(InputError, match=r"\[\[schema.fields\]\].*'grup'.*did you mean 'group'"):
        check_config({"schema": {"label": "click", "fields": [{"name": "ad", "grup": "ad"}]}})


def test_a_table_must_be_one():
    with pytest.raises(InputError, match=r"\[training\] must be a table"):
        check_config({"schema": SCHEMA, "training": 3})


def test_no_schema():
    with pytest.raises(InputError, match="no \\[schema\\]; `pbodl data inspect FILE`"):
        check_config({"model": {}})


def test_time_needs_a_time_column():
    plain = msgspec.to_builtins(PLAIN)
    for training in ({"half_life": "7d"}, {"every": "1h"}):
        with pytest.raises(InputError, match="time column"):
            check_config({"schema": plain, "training": training})
    check_config({"schema": plain, "training": {"half_life": "1M rows", "every": "10k rows"}})


def test_changes():
    before = {"model": {"dim": 8}}
    changes = ["model.dim=16", "model.hidden=[8, 4]", "training.half_life=7d", 'schema.label="a b"', "model.linear=false"]
    assert with_changes(before, changes) == {
        "model": {"dim": 16, "hidden": [8, 4], "linear": False}, "training": {"half_life": "7d"}, "schema": {"label": "a b"},
    }  # fmt: skip
    assert before == {"model": {"dim": 8}}


@pytest.mark.parametrize("change", ["model.dim", "dim=3", "model.dim.x=1"])
def test_malformed_changes(change):
    with pytest.raises(InputError, match="--set"):
        with_changes({"model": {"dim": 8}}, [change])


def test_toml_and_back(tmp_path):
    config = check_config(FULL)
    (tmp_path / "config.toml").write_text(to_toml(config), encoding="utf-8")
    assert check_config(read_config(tmp_path / "config.toml")) == config
    assert check_config(tomllib.loads(to_toml(check_config({"schema": SCHEMA})))) == check_config({"schema": SCHEMA})


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc"], exclude_characters='"\\'), min_size=1), st.floats(1e-9, 1.0))
def test_any_name_and_number_survives_toml(name, variance):
    schema = {"label": f"label {name}", "fields": [{"name": name}]}
    config = check_config({"schema": schema, "model": {"prior": {"linear": variance, "fields": {name: {"linear": variance}}}}})
    assert check_config(tomllib.loads(to_toml(config))) == config


def test_toml_leaves_out_what_is_absent():
    text = to_toml(check_config({"schema": SCHEMA}))
    assert "half_life" not in text
    assert text.startswith("[schema]\n")
    assert text.count("{ name = ") == len(RICH.fields)
    assert to_tables(check_config(FULL))["model"]["prior"] == FULL["model"]["prior"]


def test_files_that_are_no_configuration(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        read_config(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("[schema\n")
    with pytest.raises(InputError, match="is not TOML"):
        read_config(tmp_path / "bad.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="is not TOML"):
        read_config(tmp_path / "bytes.toml")


@pytest.mark.parametrize(
    ("model", "kind"),
    [({}, "pair-fm"), ({"dim": 4}, "pair-fm"), ({"hidden": [8]}, "fm-mlp"), ({"shortcut": True, "dim": 4}, "fm-mlp")],
)
def test_the_default_model_has_pairs_and_with_keys_of_hidden_layers_it_is_a_network(model, kind):
    assert check_config({"schema": msgspec.to_builtins(PLAIN), "model": model}).kind == kind
