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


def test_of_several_numbers_none_is_the_ad():
    found = guess([{"click": random.randrange(2), "weather": random.random(), "load": random.random()} for _ in range(200)])
    assert groups(found) == {"weather": "context", "load": "context"}
    assert any("give one the group 'ad' if a server is to rank" in warning for warning in found.warnings)


def test_columns_that_repeat_others_are_left_out():
    data = rows(ad="ad_id", ad_name=lambda number, u, a: f"name {a}")
    for row in data:
        row["clicked"] = "yes" if row["click"] else "no"
    found = guess(data)
    notes = {column.name: column.note for column in found.columns}
    assert notes["ad_name"] == "it repeats 'ad_id', each value of one going with one value of the other"
    assert notes["clicked"] == "it repeats 'click', each value of one going with one value of the other"


def test_what_comes_once_per_ad_is_kept_if_it_is_coarser():
    prices, places = [random.random() for _ in range(30)], random.sample(range(30), 30)
    titles = [f"{w} shoes for {c} days in {p}" for w in ("red", "blue", "old") for c in ("sunny", "rainy") for p in "abcde"]
    more = {
        "price": lambda number, u, a: prices[a],
        "title": lambda number, u, a: titles[a],
        "campaign": lambda number, u, a: f"k{places[a]}",
        "advertiser": lambda number, u, a: a // 6,
    }
    data = [{name: row[name] for name in ("price", "title", "campaign", "ad_id", *row)} for row in rows(ad="ad_id", **more)]
    found = guess(data)
    fields = {field.name: field for field in found.fields}
    # The price, first in the file, does not stand for the ad: its id stays, and only what is one to one with it goes.
    assert {"ad_id", "price", "title", "advertiser", "colour"} <= set(fields) and "campaign" not in fields
    assert all(fields[name].group == "ad" for name in ("ad_id", "price", "title", "advertiser", "colour"))
    assert (fields["price"].kind, fields["title"].kind, fields["title"].split) == ("number", "multi", "words")
    assert any("'campaign' is left out: it repeats 'ad_id'" in warning for warning in found.warnings)


def test_numbers_and_lists_join_whose_they_are():
    incomes, qualities = [random.gauss(3e4, 8e3) for _ in range(60)], [random.random() for _ in range(30)]
    hobbies = [random.sample(["chess", "golf", "yoga", "judo"], 2) for _ in range(60)]
    labels = [random.sample(["new", "green", "cheap", "small"], 2) for _ in range(30)]
    more = {
        "income": lambda number, u, a: incomes[u],
        "hobbies": lambda number, u, a: hobbies[u],
        "quality": lambda number, u, a: qualities[a],
        "labels": lambda number, u, a: labels[a],
        "load": lambda number, u, a: random.random(),
        "words": lambda number, u, a: random.sample(["p", "q", "r", "s"], 2),
    }
    found = guess(rows(ad="ad_id", **more))
    mine = groups(found)
    assert [mine[name] for name in more] == ["user", "user", "ad", "ad", "context", "context"]
    assert {field.name: field.kind for field in found.fields if field.name in more} == {
        "income": "number", "hobbies": "multi", "quality": "number", "labels": "multi", "load": "number", "words": "multi",
    }  # fmt: skip


def test_numbers_that_never_recur_repeat_each_other_only_in_the_same_order():
    amounts = [random.random() for _ in range(2000)]
    more = {"cents": lambda number, u, a: 100.0 * amounts[number], "other": lambda number, u, a: random.random()}
    more = {"amount": lambda number, u, a: amounts[number]} | more
    notes = {column.name: column.note for column in guess(rows(ad="ad_id", **more)).columns}
    assert (notes["amount"], notes["other"], "repeats 'amount'" in notes["cents"]) == ("", "", True)


def test_whole_numbers_that_decide_others_are_ids_and_counts_are_not():
    def spread(most):
        return min(int(random.paretovariate(0.5)) - 1, random.randrange(most))

    likes = [f"l{random.randrange(5)}" for _ in range(300)]
    data = [
        {"click": random.randrange(2), "wer": spread(300), "visits": spread(300), "ad_id": random.randrange(30)}
        for _ in range(4000)
    ]
    found = guess([row | {"likes": likes[row["wer"]]} for row in data])
    assert {field.name: field.kind for field in found.fields} == {
        "wer": "category", "visits": "number", "ad_id": "category", "likes": "category",
    }  # fmt: skip
    # What a user has on the bank says nearly who it is, but is a quantity.
    assets = random.sample(range(10), 10) + [spread(3000) for _ in range(290)]
    data = [row | {"user_id": f"u{row['wer']}", "assets": assets[row["wer"]], "likes": likes[row["wer"]]} for row in data]
    kinds = {field.name: field.kind for field in guess([{n: v for n, v in row.items() if n != "wer"} for row in data]).fields}
    assert (kinds["assets"], kinds["user_id"]) == ("number", "category")


def test_sentences_of_which_hardly_two_are_alike_are_learned_by_their_words():
    words = ["cheap", "flight", "hotel", "paris", "rome", "beach"]
    queries = {"query": lambda number, u, a: f"{random.choice(words)} {random.choice(words)} for {number} people"}
    found = guess(rows(ad="ad_id", **queries, code=lambda number, u, a: f"x{number} y{number} z{number}"))
    fields = {field.name: field for field in found.fields}
    assert (fields["query"].kind, fields["query"].split, "code" in fields) == ("multi", "words", False)
