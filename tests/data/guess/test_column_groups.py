"""Groups that the data give away, and columns that repeat others."""

import random

from pbodl.data.guess.schema_guess import guess

random.seed(0)


def rows(n=2000, ad="thing", user="user_id", **more):
    found = []
    for number in range(n):
        u, a = random.randrange(60), random.randrange(30)
        row = {"click": int(random.random() < 0.2), user: f"u{u}", ad: f"x{a}", "colour": f"c{a % 5}", "town": f"t{u % 7}"}
        found.append(row | {"page": random.randrange(9)} | {name: of(number, u, a) for name, of in more.items()})
    return found


def groups(found):
    return {field.name: field.group for field in found.fields}


def test_what_an_ad_or_a_user_decides_is_theirs():
    found = guess(rows(ad="ad_id"))
    assert groups(found) == {"user_id": "user", "ad_id": "ad", "colour": "ad", "town": "user", "page": "context"}
    assert any("column 'town' is put into the group 'user': each value of 'user_id' has one value" in w for w in found.warnings)


def test_an_ad_is_found_without_its_name():
    found = guess(rows())
    assert groups(found) == {"user_id": "user", "thing": "ad", "colour": "ad", "town": "user", "page": "context"}
    assert any("no column is named as one of an ad: 'thing' is taken for it" in w for w in found.warnings)


def test_what_varies_within_a_request_is_the_ad():
    # `place` has more values than `thing`, but is the same for all rows of a request.
    found = guess(
        [
            {
                "click": int(random.random() < 0.2),
                "time": 1e9 + number // 5,
                "user_id": (number // 5) % 40,
                "place": (number // 5) % 97,
            }
            | {"thing": f"x{random.randrange(30)}"}
            for number in range(3000)
        ]
    )
    assert groups(found)["thing"] == "ad"
    assert groups(found)["place"] == "context"


def test_there_is_always_an_ad():
    found = guess([{"click": n % 2, "weather": random.random()} for n in range(200)])
    assert groups(found) == {"weather": "ad"}


def test_columns_that_repeat_others_are_left_out():
    data = rows(ad="ad_id", ad_name=lambda number, u, a: f"name {a}")
    for row in data:
        row["clicked"] = "yes" if row["click"] else "no"
    found = guess(data)
    notes = {column.name: column.note for column in found.columns}
    assert notes["ad_name"] == "it repeats 'ad_id', each value of one going with one value of the other"
    assert notes["clicked"] == "it repeats 'click', each value of one going with one value of the other"
