"""A guess in ten lines."""

import random

from pbodl.data.guess.guess_lines import WIDEST, guess_lines
from pbodl.data.guess.schema_guess import guess


def rows(**more):
    return [
        {"click": int(n % 7 == 0), "ts": 1_750_000_000_000 + 60_000 * n, "user_id": n % 31, "age": 20 + n % 31, "ad_id": n % 11}
        | {"site": n % 5}
        | {name: of(n) for name, of in more.items()}
        for n in range(500)
    ]


def test_label_time_and_fields_of_each_group_are_said():
    assert guess_lines(guess(rows())) == [
        "label: click, 0.144 of the rows",
        "time: ts (in ms)",
        "user: user_id, age (number)",
        "ad: ad_id",
        "context: hour_of_day, site",
    ]


def test_ten_lines_at_most_and_none_is_wide():
    draws = random.Random(1)
    left_out = {f"constant{n}": lambda row: 1 for n in range(9)}
    wide = {f"a_field_with_a_long_name_{n}": lambda row: draws.randrange(9) for n in range(30)}
    lines = guess_lines(guess(rows(**left_out, **wide)))
    assert len(lines) == 10 and max(map(len, lines)) <= WIDEST
    assert lines[5:] == [f"'constant{n}' is left out: it is constant, 1" for n in range(4)] + ["and 5 more columns are left out"]
