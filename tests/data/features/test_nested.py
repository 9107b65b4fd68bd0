"""Names with dots, against what they mean."""

from hypothesis import given
from hypothesis import strategies as st

from pbodl.data.features.nested import flattened, nested_value

OBJECTS = st.recursive(
    st.integers(), lambda inner: st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3), max_leaves=8
)


@given(st.dictionaries(st.sampled_from(["x", "y"]), OBJECTS))
def test_every_flattened_name_finds_its_value(row):
    flat = flattened(row)
    assert not any(isinstance(value, dict) for value in flat.values())
    for name, value in flat.items():
        assert nested_value(row, name) == value == nested_value(flat, name)


def test_a_row_without_objects_is_itself():
    row = {"a": 1, "b": [1, 2]}
    assert flattened(row) is row
    assert nested_value(row, "a.b") is None
