"""Results are dicts, and print as tables."""

import json

from pbodl.interface.results import Result
from pbodl.training.display import plain_table


def test_a_result_is_a_dict_that_prints_as_a_table():
    def tables(figures):
        table = plain_table("a title", "name", ("value",))
        table.add_row("auc", f"{figures['auc']:.2f}")
        return [table]

    result = Result({"auc": 0.7}, tables)
    assert json.loads(json.dumps(result)) == {"auc": 0.7}
    assert [word for word in repr(result).split() if "─" not in word] == ["a", "title", "name", "value", "auc", "0.70"]
