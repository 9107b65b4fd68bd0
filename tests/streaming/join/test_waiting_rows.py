"""Waiting rows come back as they went in, from whatever blocks they are kept in."""

import numpy as np
import pytest

from pbodl.data.convert import from_data
from pbodl.data.schema import Field, Schema
from pbodl.streaming.join.waiting_rows import BLOCK, WaitingRows

PLAIN = Schema(label="click", time="time", fields=[Field("ad"), Field("site")])
RAGGED = Schema(label="click", time="time", fields=[Field("ad"), Field("tags", kind="multi"), Field("price", kind="number")])
PRICE = Field("price", kind="number", transform="curve", edges=[0.0, 1.0, 5.0, 40.0])
CURVE = Schema(label="click", time="time", fields=[Field("ad"), PRICE])


def rows_of(schema, n, first=0):
    rng = np.random.default_rng(first)
    rows = [
        {
            "ad": first + i,
            "site": i % 3,
            "tags": ["a", "b", "c"][: rng.integers(0, 4)],
            "price": i / 7,
            "click": i % 2,
            "time": first + i,
        }
        for i in range(n)
    ]
    names = {field.name for field in schema.fields} | {"click", "time"}
    return from_data(schema, [{name: row[name] for name in names} for row in rows], labelled=True)


def assert_same(comp, ref):
    for name, a, b in zip(ref._fields, comp, ref, strict=True):
        np.testing.assert_array_equal(a, b, err_msg=name)


@pytest.fixture(params=[PLAIN, RAGGED, CURVE], ids=["one feature a field", "lists", "a curve"])
def schema(request):
    return request.param


def test_rows_come_back_in_any_order(schema):
    whole, waiting = rows_of(schema, 3 * BLOCK), WaitingRows(schema)
    for start, stop in ((0, 1), (1, 100), (100, BLOCK + 50), (BLOCK + 50, 3 * BLOCK)):
        waiting.append(whole.rows(start, stop))
    assert len(waiting) == waiting.next == 3 * BLOCK
    for numbers in ([0], [3 * BLOCK - 1, 0, 99, 100, BLOCK + 49, BLOCK + 50], range(3 * BLOCK), []):
        at = np.array(numbers, np.int64)
        assert_same(waiting.take(at), whole.take(at))


def test_only_the_last_block_grows(schema):
    whole, waiting, begin = rows_of(schema, 2 * BLOCK + 30), WaitingRows(schema), 0
    for end in (BLOCK, 2 * BLOCK, 2 * BLOCK + 10, 2 * BLOCK + 20, 2 * BLOCK + 30):
        waiting.append(whole.rows(begin, end))
        begin = end
    at = np.array([0, BLOCK - 1, BLOCK, 2 * BLOCK - 1, 2 * BLOCK, 2 * BLOCK + 15, 2 * BLOCK + 29])
    assert_same(waiting.take(at), whole.take(at))


def test_values_are_kept_where_a_later_block_has_some():
    schema = Schema(label="click", time="time", fields=[Field("ad"), Field("price", kind="number", transform="scale")])
    ones, others = rows_of(schema, 4), rows_of(schema, 5, first=50)
    ones = ones._replace(values=np.ones_like(ones.values))
    waiting = WaitingRows(schema)
    waiting.append(ones)
    waiting.append(others)
    comp = waiting.take(np.arange(9))
    assert not (comp.values == 1.0).all()
    np.testing.assert_array_equal(comp.values, np.concatenate([ones.values, others.values]))


def test_blocks_that_end_before_a_number_go(schema):
    whole, waiting = rows_of(schema, 2 * BLOCK), WaitingRows(schema)
    waiting.append(whole.rows(0, BLOCK))
    waiting.append(whole.rows(BLOCK, 2 * BLOCK))
    before = waiting.bytes
    waiting.drop_before(BLOCK - 1)
    assert len(waiting) == 2 * BLOCK
    waiting.drop_before(BLOCK)
    assert len(waiting) == BLOCK and waiting.bytes < before
    at = np.array([BLOCK, 2 * BLOCK - 1])
    assert_same(waiting.take(at), whole.take(at))


def test_a_state_goes_on(schema):
    whole, waiting = rows_of(schema, 2 * BLOCK + 5), WaitingRows(schema)
    for start, stop in ((0, BLOCK), (BLOCK, 2 * BLOCK), (2 * BLOCK, 2 * BLOCK + 5)):
        waiting.append(whole.rows(start, stop))
    waiting.drop_before(BLOCK)
    again = WaitingRows(schema)
    again.load_state(waiting.state())
    assert again.next == waiting.next and len(again) == len(waiting)
    at = np.array([2 * BLOCK + 1, BLOCK])
    assert_same(again.take(at), whole.take(at))


def test_an_empty_state_goes_on_with_the_next_number():
    waiting = WaitingRows(PLAIN)
    waiting.append(rows_of(PLAIN, 3))
    waiting.drop_before(3)
    again = WaitingRows(PLAIN)
    again.load_state(waiting.state())
    assert again.next == 3 and len(again) == 0


def test_samples_are_taken_any_number_of_times():
    whole = rows_of(RAGGED, 6)
    comp = whole.take(np.array([4, 1, 4]))
    for n, at in enumerate([4, 1, 4]):
        assert_same(comp.rows(n, n + 1), whole.rows(at, at + 1))
