"""The half of the corpus of `benchmarks.guesses` that was looked at while the guess was built."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import sklearn.datasets

from benchmarks.guess_logs import (
    HOUR,
    ROWS,
    START,
    TestLog,
    ad,
    curve,
    rows_of,
    seconds,
    traffic,
    user,
    write_csv,
    write_parquet,
)
from pbodl.data.schema import Field, Schema

WORDS = ["red", "blue", "warm", "light", "cheap", "fine", "new", "soft"]
TENS = [10.0 * n for n in range(11)]


def shop(folder: Path) -> str:
    """Each ad has a price, a title and a campaign of its own; price and title come first."""
    prices = np.random.default_rng(11).gamma(4, 10, 120).round(2)
    t = traffic(1, price=lambda draws, u, a, hour: -0.02 * (prices[a] - 40))
    titles = [f"{WORDS[n % 8]} {WORDS[n // 8 % 8]} shoes for {WORDS[(3 * n) % 8]} days {n // 64}" for n in range(120)]
    return write_csv(folder / "shop.csv", rows_of({
        "price": prices[t.ad], "title": [titles[a] for a in t.ad], "campaign": [f"k{a}" for a in t.ad], "ad_id": t.ad,
        "category": [f"topic {t.topic[a]}" for a in t.ad], "user_id": t.user, "taste": [f"likes {t.taste[u]}" for u in t.user],
        "time": [seconds(n) for n in range(ROWS)], "click": t.clicks,
    }))  # fmt: skip


def leaking(folder: Path) -> str:
    """Dwell time, time of the click and a count of clicks stand beside the label."""
    t = traffic(2)
    count, dwell = t.clicks * t.draws.integers(1, 4, ROWS), t.draws.exponential(20, ROWS).round(1)
    return write_csv(folder / "leaking.csv", rows_of({
        "when": [seconds(n) for n in range(ROWS)], "visitor": t.user,
        "item": t.ad, "topic": t.topic[t.ad], "likes": t.taste[t.user],
        "is_mobile": t.draws.integers(0, 2, ROWS), "dwell_time": np.where(t.clicks, dwell, 0.0), "n_clicks": count,
        "click_time": [seconds(n) + 5 if y else None for n, y in enumerate(t.clicks)],
        "outcome": np.where(t.clicks, "visit", "none"), "clicked": t.clicks,
    }))  # fmt: skip


def ratings(folder: Path) -> str:
    t = traffic(3, ctr=0.4)
    stars = np.where(t.clicks, t.draws.integers(4, 6, ROWS), t.draws.integers(1, 4, ROWS))
    genres = ["|".join(sorted({f"g{t.topic[a]}", f"g{a % 3}"})) for a in t.ad]
    return write_csv(folder / "ratings.csv", rows_of({
        "userId": t.user, "age": 18 + t.taste[t.user] * 7, "movieId": t.ad, "genres": genres, "rating": stars,
        "timestamp": [seconds(n) for n in range(ROWS)],
    }))  # fmt: skip


def partitions(folder: Path) -> str:
    t = traffic(4)
    rows = rows_of({
        "user_id": t.user, "segment": t.taste[t.user], "ad_id": t.ad, "brand": t.topic[t.ad], "slot": t.draws.integers(0, 4, ROWS),
        "click": t.clicks,
    })  # fmt: skip
    for day in range(3):
        part = rows[day * ROWS // 3 : (day + 1) * ROWS // 3]
        write_parquet(folder / "partitions" / f"day=2025-01-0{day + 1}" / "part-0.parquet", part)
    return str(folder / "partitions")


def headless(folder: Path) -> str:
    """No names; counts and codes, as in Criteo's logs."""
    t = traffic(5, visits=lambda draws, u, a, hour: 0.0 * u)
    visits, shelf = np.minimum(t.draws.zipf(1.6, ROWS) - 1, 5000), t.draws.integers(0, 30, ROWS)
    return write_csv(folder / "headless.tsv", rows_of({
        "1": t.clicks, "2": visits, "3": 70_000 + t.user, "4": [f"{a * 7919:06x}" for a in t.ad], "5": t.topic[t.ad] + 1000,
        "6": t.taste[t.user] + 2000, "7": shelf,
    }), "\t", header=False)  # fmt: skip


def german(folder: Path) -> str:
    t = traffic(6)
    return write_csv(folder / "werbung.csv", rows_of({
        "Zeit": [f"{1 + n * 3 // ROWS:02d}.01.2025 {n * 72 // ROWS % 24:02d}:{n % 60:02d}:00" for n in range(ROWS)],
        "Nutzer": t.user, "Vorliebe": t.taste[t.user], "Anzeige": t.ad, "Thema": t.topic[t.ad],
        "geklickt": np.where(t.clicks, "ja", "nein"),
    }), ";")  # fmt: skip


def phishing(folder: Path) -> str:
    from river import datasets

    return write_csv(folder / "phishing.csv", [{**x, "is_phishing": int(y)} for x, y in datasets.Phishing()])


def cancer(folder: Path) -> str:
    found = sklearn.datasets.load_breast_cancer()
    order = np.random.default_rng(0).permutation(len(found.target))
    columns: dict[str, Any] = {str(name).replace(" ", "_"): found.data[order, i] for i, name in enumerate(found.feature_names)}
    return write_csv(folder / "cancer.csv", rows_of(columns | {"benign": found.target[order]}))


def _cancer_fields() -> list[Field]:
    """Each of the thirty measurements as a curve over eight parts of its range."""
    found = sklearn.datasets.load_breast_cancer()
    fields = []
    for i, name in enumerate(found.feature_names):
        values = found.data[:, i]
        fields.append(curve(str(name).replace(" ", "_"), np.unique(np.quantile(values, np.linspace(0, 1, 9)).round(6)).tolist()))
    return fields


def clicks_of_hours(folder: Path) -> str:
    """Only numbers and a context: the level follows temperature and load."""
    warm = 15 + 10 * np.sin(np.arange(ROWS) / 900)
    t = traffic(7, warm=lambda draws, u, a, hour: 0.06 * (warm - 15))
    with (folder / "weather.psv").open("w", newline="") as file:
        writer = csv.writer(file, delimiter="|")
        writer.writerow(["row", "at", "temperature", "shelf", "product", "kind", "customer", "mood", "target"])
        for n in range(ROWS):
            a, u = t.ad[n], t.user[n]
            writer.writerow([n + 1, START * 1000 + n * 12_960_000 // 1000, round(warm[n], 2), n % 7, f"p{a}", t.topic[a], f"c{u}",
                             t.taste[u], t.clicks[n]])  # fmt: skip
    return str(folder / "weather.psv")


ID_FIELDS = [user("user_id"), ad("ad_id")]
LOGS = [
    TestLog("shop, one price and title per ad", "generated", shop, Schema("click", [
        HOUR, curve("price", TENS, "ad"), ad("title", kind="multi", split="words"), ad("ad_id"), ad("category"), user("user_id"),
        user("taste")], time="time")),
    TestLog("leaks beside the label", "generated", leaking, Schema("clicked", [
        HOUR, user("visitor"), ad("item"), ad("topic"), user("likes"), Field("is_mobile")], time="when")),
    TestLog("ratings", "generated", ratings, Schema("rating >= 4", [
        HOUR, user("userId"), curve("age", [18.0, 25.0, 32.0, 39.0, 46.0, 53.0], "user"), ad("movieId"),
        ad("genres", kind="multi")], time="timestamp")),
    TestLog("partitions of days", "generated", partitions, Schema("click", [
        user("user_id"), user("segment"), ad("ad_id"), ad("brand"), Field("slot")], time="day")),
    TestLog("no header, counts and codes", "generated", headless, Schema("c1", [
        curve("c2", [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 64.0, 256.0, 5000.0]), user("c3"), ad("c4"), ad("c5"), user("c6"), Field("c7")],
        columns=[f"c{n}" for n in range(1, 8)])),
    TestLog("German names", "generated", german, Schema("geklickt == ja", [
        HOUR, user("Nutzer"), user("Vorliebe"), ad("Anzeige"), ad("Thema")], time="Zeit", time_format="%d.%m.%Y %H:%M:%S"),
        label="geklickt == ja"),
    TestLog("weather, an index, milliseconds", "generated", clicks_of_hours, Schema("target", [
        HOUR, curve("temperature", [5.0, 8.0, 11.0, 14.0, 17.0, 20.0, 23.0, 25.0]), Field("shelf"), ad("product"), ad("kind"),
        user("customer"), user("mood")], time="at", time_unit="ms")),
    TestLog("Phishing", "river", phishing, Schema("is_phishing", [
        Field(name) for name in ("empty_server_form_handler", "popup_window", "https", "request_from_other_domain",
                                 "anchor_from_other_domain", "is_popular", "long_url", "age_of_domain", "ip_in_url")]),
        label="is_phishing"),
    TestLog("breast cancer", "scikit-learn", cancer, Schema("benign", _cancer_fields()), label="benign"),
]  # fmt: skip
