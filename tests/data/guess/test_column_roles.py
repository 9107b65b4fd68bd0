"""Which whole numbers are quantities, which texts are labels, and columns that cannot be fields."""

import random

import pytest

from pbodl.data.guess.schema_guess import guess
from pbodl.data.log.log_reader import open_log
from pbodl.errors import InputError

RNG = random.Random(1)
N = 1500


def kinds(**columns):
    clicks = [random.Random(n).randrange(2) for n in range(N)]
    found = guess([{"click": clicks[n], "ad": n % 7, **{name: of(n) for name, of in columns.items()}} for n in range(N)])
    return {field.name: field.kind for field in found.fields}


@pytest.mark.parametrize(
    ("name", "of", "ref"),
    [
        ("I1", lambda n: int(RNG.paretovariate(0.7)) - 1, "number"),  # counts
        ("visits", lambda n: -1 if n % 3 == 0 else int(RNG.paretovariate(1.0)), "number"),
        ("income", lambda n: RNG.randrange(10_000, 90_000), "number"),  # hardly any value recurs
        ("C14", lambda n: 15_000 + RNG.randrange(90), "category"),
        ("C20", lambda n: -1 if n % 2 else 100_000 + RNG.randrange(100), "category"),
        ("zip_code", lambda n: RNG.randrange(10_000, 99_999), None),
        ("region", lambda n: int(RNG.paretovariate(0.7)), "category"),
        ("Höhe", lambda n: int(RNG.paretovariate(0.7)), "number"),
        ("高さ", lambda n: int(RNG.paretovariate(0.7)), "number"),
        ("region_width", lambda n: int(RNG.paretovariate(0.7)), "number"),
        ("shelf", lambda n: RNG.randrange(15), "category"),
        ("item", lambda n: int(RNG.paretovariate(0.7)), "category"),
        ("age", lambda n: RNG.randrange(18, 90), "number"),
        ("row", lambda n: n, None),
        ("temperature", lambda n: RNG.gauss(20, 5), "number"),
        ("size", lambda n: float("inf") if n == 3 else n % 5 + 0.5, "category"),
    ],
)
def test_numbers(name, of, ref):
    assert kinds(**{name: of}).get(name) == ref


@pytest.mark.parametrize("words", [("no", "yes"), ("False", "True"), (False, True), ("f", "t"), (0.0, 1.0)])
def test_labels(words, tmp_path):
    data = [{"clicked": words[n % 3 == 0], "ad_id": n % 7} for n in range(300)]
    found = guess(data)
    assert (found.label, round(found.figures.clicks, 2)) == ("clicked", 0.33)
    with open_log(data, found.schema()) as reader:
        assert next(reader).batch.clicks.mean() == 1 / 3


def test_ratings_become_a_label():
    found = guess([{"userId": n % 40, "movieId": n % 33, "rating": 1 + n % 5, "timestamp": 1e9 + n} for n in range(500)])
    assert (found.label, found.time) == ("rating >= 4", "timestamp")
    assert found.figures.clicks == 0.4
    assert {field.name: field.group for field in found.fields}["movieId"] == "ad"
    assert any("the label is computed from the ratings, rating >= 4; check the threshold" in warning for warning in found.warnings)


def test_a_time_without_a_name():
    found = guess([{"click": n % 2, "ad_id": n % 7, "c6": 1_413_849_600 + 60 * (n // 3)} for n in range(500)])
    assert (found.time, found.figures.first) == ("c6", 1413849600.0)


def test_milliseconds():
    found = guess([{"click": n % 2, "ad_id": n % 7, "ts": 1_413_849_600_000 + 60_000 * n} for n in range(500)])
    assert (found.time, found.time_unit, found.figures.first) == ("ts", "ms", 1413849600.0)
    assert found.schema().time_unit == "ms"


def test_whatever_is_guessed_trains(tmp_path):
    lines = [
        '"",click,we"ird,words,when,n\n',
        *(f"{n},{n % 7 % 2},a{n % 5},{'x|y' if n % 3 else 'x'},{n % 30},{n}\n" for n in range(200)),
    ]
    (tmp_path / "a.csv").write_text("".join(lines))
    found = guess(tmp_path / "a.csv")
    assert {column.name for column in found.columns if column.role == "left out"} == {"", 'we"ird', "n"}
    with open_log(tmp_path / "a.csv", found.schema()) as reader:
        assert sum(len(chunk.batch) for chunk in reader) == 200


def of_labels(**columns):
    draws = random.Random(5)
    return [{"ad_id": n % 7} | {name: int(draws.random() < of) for name, of in columns.items()} for n in range(400)]


def test_of_two_labels_a_person_chooses():
    data = of_labels(click=0.3, conversion=0.1)
    with pytest.raises(InputError, match="'click' and 'conversion' may each be the label; say which with --label click"):
        guess(data)
    found = guess(data, label="conversion")
    assert {column.name: column.note for column in found.columns}["click"] == "it has the name of a label, too"
    assert "click" in [field.name for field in guess(data, label="conversion", keep=["click"]).fields]
    assert found.label == "conversion" and found.figures.clicks == sum(row["conversion"] for row in data) / 400
    # A name that says more than that of a label is no second candidate, and neither is a copy.
    assert guess(of_labels(is_click=0.3, click_allowed=0.5)).label == "is_click"
    assert guess([row | {"clicked": "yes" if row["click"] else "no"} for row in of_labels(click=0.3)]).label == "click"


def test_a_label_that_a_person_names():
    data = [row | {"stars": 1 + n % 5, "state": ("won", "lost")[n % 2]} for n, row in enumerate(of_labels(good=0.3, bad=0.5))]
    found = guess(data, label="good")
    assert (found.label, "bad" in [field.name for field in found.fields]) == ("good", True)
    assert guess(data, label="stars >= 4").figures.clicks == 0.4
    with pytest.raises(InputError, match="no column 'god' for the label \\(did you mean 'good'"):
        guess(data, label="god")
    with pytest.raises(InputError, match="neither yes nor no; give a comparison: --label 'state == "):
        guess(data, label="state")
    with pytest.raises(InputError, match=r"'good', 'bad' hold 0 and 1, and no name says which is meant.*--label"):
        guess([{name: row[name] for name in ("ad_id", "good", "bad")} for row in data]).schema()


@pytest.mark.parametrize("start", [0, 1, 1000])
def test_an_index_is_left_out_in_any_order(start):
    data = of_labels(click=0.3)
    order = list(range(len(data)))
    for shuffled in (False, True):
        random.Random(4).shuffle(order) if shuffled else None
        found = guess([row | {"count": start + order[n]} for n, row in enumerate(data)])
        assert {column.name: column.note for column in found.columns}["count"] == "it counts the rows, as an index does"
    # Two files, each with an index of its own.
    found = guess([row | {"n": n % 200} for n, row in enumerate(data)])
    assert {column.name: column.role for column in found.columns}["n"] == "left out"
    # Numbers that could be anybody's are none.
    found = guess([row | {"n": RNG.randrange(300)} for row in data])
    assert {column.name: column.role for column in found.columns}["n"] == "field"


@pytest.mark.parametrize(("unit", "scale"), [("ms", 1000), ("us", 10**6), ("ns", 10**9)])
@pytest.mark.parametrize("name", ["ts", "moment", "created"])
def test_times_in_other_units_without_a_telling_name_in_any_order(unit, scale, name, tmp_path):
    times = [(1_735_689_600 + 60 * n) * scale for n in range(400)]
    random.Random(1).shuffle(times)
    data = [row | {name: time} for row, time in zip(of_labels(click=0.3), times, strict=True)]
    (tmp_path / "a.csv").write_text("".join(",".join(map(str, row)) + "\n" for row in [list(data[0]), *(r.values() for r in data)]))
    for log in (data, tmp_path / "a.csv"):
        found = guess(log)
        assert (found.time, found.time_unit, found.figures.first) == (name, unit, 1_735_689_600.0)
    # A number so large that is no time: it spans a century.
    assert guess([row | {"code": (n + 1) * 10**10} for n, row in enumerate(data)], label="click").time == name
