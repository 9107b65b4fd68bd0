"""Columns that give the label away are named and left out; columns that do not are not blamed."""

import numpy as np
import pytest

from pbodl.data.guess.schema_guess import guess
from pbodl.errors import InputError

N = 4000


def log(seed=0, ctr=0.1, **more):
    """Rows of users and ads whose clicks follow from both; `more` are functions of (draws, clicks)."""
    rng = np.random.default_rng(seed)
    user, ad = rng.integers(0, 300, N), rng.integers(0, 40, N)
    level = np.log(ctr / (1 - ctr)) + rng.normal(0, 0.7, 300)[user] + rng.normal(0, 0.7, 40)[ad]
    clicks = (rng.random(N) < 1 / (1 + np.exp(-level))).astype(int)
    columns = {
        "user_id": user,
        "ad_id": ad,
        "is_mobile": rng.integers(0, 2, N),
        "quality": rng.normal(0, 1, 40)[ad],
        "clicked": clicks,
    }
    columns |= {name: make(rng, clicks) for name, make in more.items()}
    return [dict(zip(columns, row, strict=True)) for row in zip(*(list(values) for values in columns.values()), strict=True)]


def notes(found):
    return {column.name: column.note for column in found.columns if column.note}


LEAKS = {
    "dwell": (lambda rng, y: np.where(y, rng.exponential(30, N), 0.0), "it has one and the same value"),
    "dwell_ms": (
        lambda rng, y: [int(x) if c else None for x, c in zip(rng.exponential(3e4, N), y, strict=True)],
        "missing exactly",
    ),
    "noisy_dwell": (lambda rng, y: np.exp(rng.normal(0, 1, N) + 3 * y), "it alone has an AUC of 0.9"),
    "outcome": (lambda rng, y: np.where(y, "visit", np.where(rng.random(N) < 0.5, "bounce", "skip")), "the label follows from it"),
    "n_clicks": (lambda rng, y: y * rng.integers(1, 4, N), "it has one and the same value"),
    "seen_at": (lambda rng, y: [f"2025-01-01 00:{i % 60:02d}" if c else None for i, c in enumerate(y)], "missing exactly"),
    "sold": (lambda rng, y: y * (rng.random(N) < 0.2), "it has one and the same value"),
    "paid": (
        lambda rng, y: [9.5 + i % 7 if c and i % 3 == 0 else None for i, c in enumerate(y)],
        "missing wherever there is no click",
    ),
}


@pytest.mark.parametrize("name", LEAKS)
def test_a_column_that_gives_the_label_away_is_named_and_left_out(name):
    make, reason = LEAKS[name]
    found = guess(log(**{name: make}))
    assert reason in notes(found)[name]
    assert set(notes(found)) == {name}
    assert name not in [field.name for field in found.fields]
    assert any(f"column {name!r} is left out" in w and f"--keep {name} puts it back" in w for w in found.warnings)
    assert name in [field.name for field in guess(log(**{name: make}), keep=[name]).fields]


def test_all_of_them_at_once():
    assert set(notes(guess(log(**{name: make for name, (make, _) in LEAKS.items()})))) == set(LEAKS)


@pytest.mark.parametrize("ctr", [0.02, 0.1, 0.5])
def test_innocent_columns_are_not_blamed(ctr):
    innocent = {
        "hour": lambda rng, y: np.arange(N) * 24 // N,
        "session_id": lambda rng, y: [f"s{i // 3}" for i in range(N)],
        "coupon": lambda rng, y: ["yes" if x < 0.03 else None for x in rng.random(N)],
        "last_click_days": lambda rng, y: rng.exponential(9, N),
        "position": lambda rng, y: np.where(rng.random(N) < 0.4 + 0.3 * y, 1, rng.integers(2, 9, N)),
    }
    assert notes(guess(log(ctr=ctr, **innocent))) == {}


def test_a_session_that_knows_its_rows_by_heart_is_not_blamed():
    data = log()
    for number, row in enumerate(data):
        row["clicked"] = int((number // 4) % 3 == 0)
        row["visit"] = f"v{number // 4}"
    assert notes(guess(data)) == {}


def test_columns_that_are_good_together_are_not_blamed():
    # Medical data are so: the best column is little better than the next one.
    together = {f"x{size}": (lambda rng, y, size=size: rng.normal(0, 1, N) + size * y) for size in (2.2, 1.6, 1.2, 0.8)}
    assert notes(guess(log(ctr=0.4, **together))) == {}


def test_a_column_to_keep_must_be_there():
    with pytest.raises(InputError, match=r"'dwel' is to be kept, but the log has none \(did you mean 'dwell'\?\)"):
        guess(log(dwell=LEAKS["dwell"][0]), keep=["dwel"])
