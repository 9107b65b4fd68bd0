"""The battery: what every model and baseline keeps to. `tests/models/test_contract.py` crosses it with every model.

A new model joins in `FACTORIES`; one that cannot keep a property says so in `OPT_OUTS`, with its name and the reason.
"""

import hashlib
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import pbodl
from pbodl.data.convert import from_data
from pbodl.data.schema import Field, Schema
from pbodl.errors import InputError
from pbodl.models import contract
from pbodl.models.adaptation import HOME
from pbodl.models.contract import Model
from pbodl.models.learning import POWERS
from tests.click_log import PLAIN, RICH, click_log, without

Factory = Callable[[Schema], Model]

FACTORIES: dict[str, Factory] = {
    "deep-probit": lambda schema: pbodl.DeepProbit(schema, dim=3, hidden=(5, 4)),
    "sparse-mlp": lambda schema: pbodl.SparseMLP(schema, dim=3, hidden=(5,)),
    "fm-mlp": lambda schema: pbodl.FMMLP(schema, dim=3, hidden=(5, 4)),
    "ffm-mlp": lambda schema: pbodl.FFMMLP(schema, dim=2, hidden=(5,)),
    "pair-fm": lambda schema: pbodl.PairFM(schema, dim=2),
}
# (kind, name of the property) -> why this model cannot have it
OPT_OUTS: dict[tuple[str, str], str] = {}

LOG = click_log(60)


def fingerprint(thing: Any) -> str:
    """A hash of all arrays and plain values inside a model, its hidden ones included."""
    digest = hashlib.blake2b(digest_size=16)
    _stir(thing, digest, set())
    return digest.hexdigest()


def _stir(thing: Any, digest: Any, seen: set[int]) -> None:
    if id(thing) in seen:
        return
    if isinstance(thing, (np.ndarray, np.generic)) or hasattr(thing, "__array__"):
        array = np.asarray(thing)
        digest.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
    elif isinstance(thing, (str, bytes, int, float, type(None))):
        digest.update(repr(thing).encode())
    elif isinstance(thing, Mapping):
        seen.add(id(thing))
        for name, value in thing.items():
            digest.update(repr(name).encode())
            _stir(value, digest, seen)
    elif isinstance(thing, (list, tuple)):
        for value in thing:
            _stir(value, digest, seen)
    elif type(thing).__module__.startswith("pbodl") and hasattr(thing, "__dict__"):
        seen.add(id(thing))
        _stir(vars(thing), digest, seen)


def assert_same_state(comp: Model, ref: Model) -> None:
    """Bit for bit."""
    left, right = comp.state(), ref.state()
    assert list(left) == list(right)
    for name, array in right.items():
        assert left[name].dtype == array.dtype, name
        np.testing.assert_array_equal(left[name], array, err_msg=name)


def trained(make: Factory, schema: Schema = RICH, rows: list[dict[str, Any]] = LOG) -> Model:
    model = make(schema)
    model.learn(rows)
    return model


def with_spec(model: Model, **changes: Any) -> Model:
    """A new model like this one but for some parameters."""
    return type(model).from_spec(model.schema, msgspec.structs.replace(model.spec, **changes))


def a_batch_is_learned_as_its_rows_one_by_one(make: Factory) -> None:
    ref, comp, in_parts = make(RICH), make(RICH), make(RICH)
    expected = np.concatenate([ref.learn(row) for row in LOG])
    np.testing.assert_array_equal(comp.learn(LOG), expected)
    parts = [in_parts.learn(LOG[a:b]) for a, b in ((0, 1), (1, 38), (38, 60))]
    np.testing.assert_array_equal(np.concatenate(parts), expected)
    assert_same_state(comp, ref)
    assert_same_state(in_parts, ref)


def learn_one_is_learn_of_one_row(make: Factory) -> None:
    ref, comp = make(RICH), make(RICH)
    for row in LOG[:20]:
        ref.learn(row)
        x = {name: value for name, value in row.items() if name != "click"}
        comp.learn_one(x, bool(row["click"]))
    assert_same_state(comp, ref)


def a_large_table_is_learned_in_slices(make: Factory) -> None:
    table = pa.Table.from_pylist(LOG)
    ref, comp = make(RICH), make(RICH)
    expected, expected_after = ref.learn(table), ref.predict(table)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contract, "SLICE", 7)
        np.testing.assert_array_equal(comp.learn(table), expected)
        np.testing.assert_array_equal(comp.predict(table), expected_after)
    assert_same_state(comp, ref)


def learn_returns_what_predict_would_have_said(make: Factory) -> None:
    model = make(PLAIN)
    for start in range(0, 60, 10):
        row = LOG[start]
        ref = model.predict(row).ctr
        comp = model.learn(LOG[start : start + 10])
        np.testing.assert_allclose(comp[:1], ref, rtol=1e-5)


def predict_changes_nothing(make: Factory) -> None:
    for model in (make(RICH), trained(make)):
        before = fingerprint(model)
        model.predict(click_log(20, seed=9))
        model.predict([{**LOG[0], "user": "never seen", "tags": ["never", "seen"]}])
        model.predict_proba_one(LOG[3])
        model.predict_one(LOG[3])
        model.state()
        model.metrics()
        repr(model)
        assert fingerprint(model) == before


def a_prediction_does_not_depend_on_its_neighbours(make: Factory) -> None:
    model = trained(make)
    rows = click_log(37, seed=4)
    together = model.predict(rows)
    alone = [model.predict(row) for row in rows]
    for name, column in together._asdict().items():
        np.testing.assert_array_equal(column, [getattr(one, name)[0] for one in alone], err_msg=name)


def predictions_are_probabilities_with_moments(make: Factory) -> None:
    for model in (make(RICH), trained(make)):
        prediction = model.predict(click_log(30, seed=5))
        for column in prediction:
            assert column.shape == (30,)
            assert column.dtype == np.float64
            assert np.isfinite(column).all()
        assert ((prediction.ctr > 0) & (prediction.ctr < 1)).all()
        assert (prediction.variance >= 0).all()
        assert np.array_equal(np.argsort(prediction.mean / np.sqrt(1 + prediction.variance)), np.argsort(prediction.ctr))


def one_row_is_predicted_as_river_wants_it(make: Factory) -> None:
    model = trained(make)
    chances = model.predict_proba_one(LOG[5])
    assert list(chances) == [False, True]
    assert all(type(chance) is float for chance in chances.values())
    assert chances[True] == model.predict(LOG[5]).ctr[0]
    assert chances[False] == 1.0 - chances[True]
    assert model.predict_one(LOG[5]) is (chances[True] > 0.5)


def a_restored_model_goes_on_bit_for_bit(make: Factory) -> None:
    ref = trained(make, rows=LOG[:40])
    state = ref.state()
    comp = make(RICH)
    comp.load_state(state)
    assert_same_state(comp, ref)
    assert comp.metrics() == ref.metrics()
    for array in state.values():
        array[...] = 0  # neither model may lean on these
    np.testing.assert_array_equal(comp.learn(LOG[40:]), ref.learn(LOG[40:]))
    np.testing.assert_array_equal(comp.predict(LOG), ref.predict(LOG))
    assert_same_state(comp, ref)


def saved_and_loaded_is_never_stopped(make: Factory) -> None:
    ref = trained(make, rows=LOG[:40])
    with tempfile.TemporaryDirectory() as run:
        ref.save(run)
        comp = pbodl.load(run)
    assert type(comp) is type(ref)
    np.testing.assert_array_equal(comp.learn(LOG[40:]), ref.learn(LOG[40:]))
    assert_same_state(comp, ref)


def the_state_is_plain_arrays(make: Factory) -> None:
    for model in (make(RICH), trained(make)):
        for name, array in model.state().items():
            assert isinstance(name, str)
            assert type(array) is np.ndarray
            assert array.dtype.kind in "fiub" and array.dtype.isnative, name


def a_wrong_state_is_refused_whole(make: Factory) -> None:
    model = trained(make)
    good = model.state()
    before = fingerprint(model)
    for name, array in good.items():
        if name not in (HOME, POWERS):  # older releases wrote none
            _assert_refused(model, {key: value for key, value in good.items() if key != name}, name)
        _assert_refused(model, good | {name: array[..., None]}, name)
        _assert_refused(model, good | {name: array.astype(np.complex64)}, name)
        if array.dtype.kind == "f" and array.size:
            _assert_refused(model, good | {name: np.full_like(array, np.nan)}, "NaN or infinity")
            _assert_refused(model, good | {name: np.full_like(array, -np.inf)}, "NaN or infinity")
        if name.endswith("variance"):
            _assert_refused(model, good | {name: -array}, "variance")
            _assert_refused(model, good | {name: 0 * array}, "variance")
    _assert_refused(model, good | {"surplus": np.zeros(3)}, "surplus")
    assert fingerprint(model) == before
    model.load_state(good)
    assert_same_state(model, trained(make))


def _assert_refused(model: Model, state: dict[str, Any], word: str) -> None:
    with pytest.raises(InputError) as caught:
        model.load_state(state)
    assert word.split(".")[-1] in str(caught.value)


def the_order_of_a_rows_keys_does_not_matter(make: Factory) -> None:
    ref, comp = make(RICH), make(RICH)
    shuffled = [dict(sorted(row.items(), key=lambda item: hash_free_order(item[0], i))) for i, row in enumerate(LOG)]
    np.testing.assert_array_equal(comp.learn(shuffled), ref.learn(LOG))
    assert_same_state(comp, ref)


def hash_free_order(name: str, i: int) -> bytes:
    return hashlib.blake2b(f"{name}{i}".encode()).digest()


def every_form_of_data_gives_the_same_numbers(make: Factory) -> None:
    table = pa.Table.from_pylist(LOG)
    forms = [table, pd.DataFrame(LOG), pl.DataFrame(LOG), table.to_batches()[0], from_data(RICH, LOG, labelled=True)]
    forms.append(table.select(sorted(table.column_names)))
    ref = make(RICH)
    expected, expected_after = ref.learn(LOG), ref.predict(LOG)
    for form in forms:
        comp = make(RICH)
        np.testing.assert_array_equal(comp.learn(form), expected)
        np.testing.assert_array_equal(comp.predict(form), expected_after)
        assert_same_state(comp, ref)


def no_data_is_no_change(make: Factory) -> None:
    model = trained(make)
    before = fingerprint(model)
    nothings: list[Any] = [[], pa.Table.from_pylist(LOG).slice(0, 0)]
    for nothing in nothings:
        assert model.learn(nothing).shape == (0,)
        assert all(column.shape == (0,) for column in model.predict(nothing))
    assert fingerprint(model) == before


def bad_rows_are_refused_in_prose_and_change_nothing(make: Factory) -> None:
    model = trained(make)
    before = fingerprint(model)
    good = LOG[0]
    for bad, words in (
        ({**without([good], "user")[0], "usr": 3}, "unknown field 'usr' (did you mean 'user'?)"),
        (without([good], "click")[0], "no label 'click'"),
        ({**good, "click": 2}, "must be 0 or 1"),
        ({**good, "click": None}, "must be 0 or 1"),
        ({**good, "click": float("nan")}, "must be 0 or 1"),
        ({**good, "click": "maybe"}, "must be 0 or 1"),
        ({**good, "weight": -1.0}, "weight"),
        ({**good, "weight": float("nan")}, "weight"),
        ({**good, "age": float("inf")}, "'age'"),
        ({**good, "tags": 7}, "'tags'"),
        (without([good], "time")[0], "no time 'time'"),
    ):
        for rows in (bad, [good, bad]):
            with pytest.raises(InputError) as caught:
                model.learn(rows)
            assert words in str(caught.value)
    with pytest.raises(InputError, match="not understood"):
        model.learn(3)
    with pytest.raises(InputError, match="no column 'ad'"):
        model.predict(pa.table({"user": [1], "tags": [["a"]], "time": [0.0]}))
    assert fingerprint(model) == before


def a_weight_of_one_is_no_weight_and_of_zero_no_lesson(make: Factory) -> None:
    weighted = Schema(label="click", weight="weight", fields=PLAIN.fields)
    plain, ones, zeros = make(PLAIN), make(weighted), make(weighted)
    np.testing.assert_array_equal(ones.learn([{**row, "weight": 1.0} for row in LOG]), plain.learn(LOG))
    assert_same_state(ones, plain)
    untaught = zeros.learn([{**row, "weight": 0.0} for row in LOG])
    np.testing.assert_allclose(untaught, make(weighted).predict(LOG).ctr, rtol=1e-4)


def recalibration_divides_the_odds(make: Factory) -> None:
    ref = make(PLAIN)
    comp = with_spec(ref, negative_rate=0.2)
    for p, q in ((ref.learn(LOG), comp.learn(LOG)), (ref.predict(LOG).ctr, comp.predict(LOG).ctr)):
        np.testing.assert_allclose(q / (1 - q), 0.2 * p / (1 - p), rtol=1e-12)
    np.testing.assert_array_equal(comp.predict(LOG)[1:], ref.predict(LOG)[1:])
    assert_same_state(comp, ref)


def the_same_seed_gives_the_same_bits(make: Factory) -> None:
    assert_same_state(trained(make), trained(make))


def a_model_is_made_again_from_its_spec(make: Factory) -> None:
    ref = make(RICH)
    spec = msgspec.convert(msgspec.json.decode(msgspec.json.encode(ref.spec)), type(ref).Spec)
    schema = msgspec.convert(msgspec.json.decode(msgspec.json.encode(RICH)), Schema)
    comp = Model.kinds[ref.kind].from_spec(schema, spec)
    assert spec == ref.spec
    np.testing.assert_array_equal(comp.learn(LOG), ref.learn(LOG))
    assert_same_state(comp, ref)


def rows_are_counted(make: Factory) -> None:
    model = trained(make)
    model.learn(LOG[:5])
    assert model.rows_learned == model.metrics()["rows_learned"] == 65
    assert all(isinstance(count, (int, float)) for count in model.metrics().values())
    assert "65" in repr(model)


def it_learns_the_obvious(make: Factory) -> None:
    schema = Schema(label="click", fields=[Field("ad", group="ad")])
    rows = [{"ad": i % 2, "click": i % 2} for i in range(400)]
    model = trained(make, schema, rows)
    low, high = model.predict([{"ad": 0}, {"ad": 1}]).ctr
    assert low < 0.25
    assert high > 0.75


PROPERTIES = (
    a_batch_is_learned_as_its_rows_one_by_one,
    learn_one_is_learn_of_one_row,
    a_large_table_is_learned_in_slices,
    learn_returns_what_predict_would_have_said,
    predict_changes_nothing,
    a_prediction_does_not_depend_on_its_neighbours,
    predictions_are_probabilities_with_moments,
    one_row_is_predicted_as_river_wants_it,
    a_restored_model_goes_on_bit_for_bit,
    saved_and_loaded_is_never_stopped,
    the_state_is_plain_arrays,
    a_wrong_state_is_refused_whole,
    the_order_of_a_rows_keys_does_not_matter,
    every_form_of_data_gives_the_same_numbers,
    no_data_is_no_change,
    bad_rows_are_refused_in_prose_and_change_nothing,
    a_weight_of_one_is_no_weight_and_of_zero_no_lesson,
    recalibration_divides_the_odds,
    the_same_seed_gives_the_same_bits,
    a_model_is_made_again_from_its_spec,
    rows_are_counted,
    it_learns_the_obvious,
)
