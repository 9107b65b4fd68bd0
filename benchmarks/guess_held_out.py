"""The half of the corpus of `benchmarks.guesses` that was written beforehand, and not looked at while the guess was built."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import sklearn.datasets

from benchmarks.guess_logs import HOUR, ROWS, TestLog, ad, curve, rows_of, seconds, traffic, user, write_csv, write_jsonl
from pbodl.data.schema import Field, Schema
from pbodl.data.synthetic import World

SKILLS = ["law", "code", "sales", "care", "art", "steel"]
DEVICES = ["ios", "android", "windows"]
NOUNS = ["storm", "election", "match", "bank", "film", "virus"]
OPENINGS = ["why the", "five facts about the", "how a", "after the"]
ENDS = ["shook the city", "is over", "came back", "surprised us all", "costs more", "never ends"]


def marketplace(folder: Path) -> str:
    """Nested JSON lines at 1 % CTR, with prices, lists and milliseconds; some users are null."""
    prices = np.random.default_rng(21).gamma(2, 30, 120).round(2)
    t = traffic(21, ctr=0.008, rows=3 * ROWS, price=lambda draws, u, a, hour: -0.01 * (prices[a] - 60))
    rows = []
    for n in range(3 * ROWS):
        u, a = int(t.user[n]), int(t.ad[n])
        who = {"id": f"u{u}", "likes": [SKILLS[t.taste[u]], SKILLS[u % 6]]} if n % 50 else None
        rows.append({
            "event": {"ts": 1000 * seconds(n, 3 * ROWS), "page": f"/{n % 5}"}, "user": who,
            "item": {"id": f"i{a}", "price": float(prices[a]), "labels": [SKILLS[t.topic[a]], f"l{a % 4}"]},
            "clicked": bool(t.clicks[n]),
        })  # fmt: skip
    return write_jsonl(folder / "market.jsonl", rows)


def news(folder: Path) -> str:
    """Articles come and go; what a new one is about stands in its headline."""
    t = traffic(22, ads=900)
    headlines = [f"{OPENINGS[a % 4]} {NOUNS[t.topic[a]]} {ENDS[a // 4 % 6]} {a // 96}" for a in range(900)]
    shown = np.clip(t.ad // 2 + np.arange(ROWS) * 450 // ROWS, 0, 899)
    level = np.where(t.topic[shown] == t.taste[t.user], -0.7, -2.2)
    clicks = (t.draws.random(ROWS) < 1 / (1 + np.exp(-level))).astype(int)
    return write_csv(folder / "news.csv", rows_of({
        "time": [f"2025-01-0{1 + n * 3 // ROWS}T{n * 72 // ROWS % 24:02d}:{n % 60:02d}:00Z" for n in range(ROWS)], "headline":
        [headlines[a] for a in shown], "article_id": [f"n{a}" for a in shown], "reader": [f"r{u}" for u in t.user],
        "section": [f"s{t.taste[u]}" for u in t.user], "click": clicks,
    }))  # fmt: skip


def jobs(folder: Path) -> str:
    """Numbers and lists that belong to users and to jobs, without telling names."""
    draws = np.random.default_rng(23)
    income, quality = draws.normal(40_000, 9_000, 400).round(), draws.random(120).round(3)
    t = traffic(
        23, income=lambda d, u, a, hour: (income[u] - 40_000) / 20_000, quality=lambda d, u, a, hour: 2 * (quality[a] - 0.5)
    )
    return write_csv(folder / "jobs.csv", rows_of({
        "person_id": t.user, "income": income[t.user], "skills": ["|".join({SKILLS[t.taste[u]], SKILLS[u % 6]}) for u in t.user],
        "job_ad": t.ad, "quality": quality[t.ad], "wants": ["|".join({SKILLS[t.topic[a]], SKILLS[a % 6]}) for a in t.ad],
        "load": t.draws.random(ROWS).round(3), "opened": t.clicks,
    }))  # fmt: skip


def texts_of_json(folder: Path) -> str:
    t = traffic(24, device=lambda draws, u, a, hour: 0.5 * (u % 3 == 1))
    return write_csv(folder / "json.csv", rows_of({
        "timestamp": [seconds(n) for n in range(ROWS)],
        "device": [json.dumps({"os": DEVICES[u % 3], "v": int(u % 5)}) for u in t.user],
        "interests": [json.dumps([SKILLS[t.taste[u]], SKILLS[(u + 1) % 6]]) for u in t.user], "user": t.user, "creative": t.ad,
        "topics": [json.dumps([SKILLS[t.topic[a]]]) for a in t.ad], "label": t.clicks,
    }))  # fmt: skip


def two_labels(folder: Path) -> str:
    t = traffic(25)
    bought = t.clicks * (t.draws.random(ROWS) < 0.3)
    return write_csv(folder / "sales.csv", rows_of({
        "ts": [seconds(n) for n in range(ROWS)], "cookie": [f"{u * 7919:08x}" for u in t.user], "profile": t.taste[t.user],
        "campaign": t.ad, "brand": t.topic[t.ad], "bid": (1 + 4 * t.draws.random(ROWS)).round(2), "click": t.clicks,
        "conversion": bought, "revenue": np.where(bought, (20 * t.draws.random(ROWS)).round(2) + 1, 0.0),
    }))  # fmt: skip


def searches(folder: Path) -> str:
    """Queries in words, hardly two of them alike; an id per row, a constant, an index."""
    t = traffic(26)
    queries = [
        f"{SKILLS[t.taste[u]]} {NOUNS[int(t.draws.integers(6))]} near {int(t.draws.integers(10_000))} please" for u in t.user
    ]
    return write_csv(folder / "searches.csv", rows_of({
        "Unnamed: 0": np.arange(ROWS), "impression": [f"{n * 2654435761 % 2**32:08x}" for n in range(ROWS)],
        "version": ["v3"] * ROWS,
        "query": queries, "ad": [f"a{a}" for a in t.ad], "topic": t.topic[t.ad], "position": t.draws.integers(1, 5, ROWS),
        "is_click": t.clicks,
    }))  # fmt: skip


def world(folder: Path) -> str:
    World(seed=27, days=3, rows=2 * ROWS).write(folder / "world.csv")
    return str(folder / "world.csv")


def bananas(folder: Path) -> str:
    from river import datasets

    return write_csv(folder / "bananas.csv", [{"x": x["1"], "y_axis": x["2"], "ripe": int(y)} for x, y in datasets.Bananas()])


def segments(folder: Path) -> str:
    from river import datasets

    return write_csv(folder / "segments.csv", [{**x, "surface": y} for x, y in datasets.ImageSegments()])


def digits(folder: Path) -> str:
    found = sklearn.datasets.load_digits()
    columns: dict[str, Any] = {f"pixel{i}": found.data[:, i].astype(int) for i in range(64)}
    return write_csv(folder / "digits.csv", rows_of(columns | {"digit": found.target}))


def _segment_fields() -> list[Field]:
    from river import datasets

    rows = [x for x, _ in datasets.ImageSegments()]
    return [curve(n, np.unique(np.quantile([r[n] for r in rows], np.linspace(0, 1, 11)).round(5)).tolist()) for n in rows[0]]


SIXTHS = [-3.0, -2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0]
LOGS = [
    TestLog("marketplace, nested, 1 % CTR", "generated", marketplace, Schema("clicked", [
        HOUR, Field("event.page"), user("user.id"), user("user.likes", kind="multi"), ad("item.id"),
        curve("item.price", [0.0, 15.0, 30.0, 45.0, 60.0, 80.0, 110.0, 150.0, 300.0], "ad"), ad("item.labels", kind="multi")],
        time="event.ts", time_unit="ms")),
    TestLog("news, headlines of new articles", "generated", news, Schema("click", [
        HOUR, ad("headline", kind="multi", split="words"), ad("article_id"), user("reader"), user("section")], time="time")),
    TestLog("jobs, numbers and lists of both sides", "generated", jobs, Schema("opened", [
        user("person_id"), curve("income", [15e3, 25e3, 30e3, 35e3, 40e3, 45e3, 50e3, 55e3, 65e3], "user"),
        user("skills", kind="multi"), ad("job_ad"), curve("quality", [0.0, 0.2, 0.4, 0.6, 0.8, 1.0], "ad"),
        ad("wants", kind="multi"),
        curve("load", [0.0, 0.2, 0.4, 0.6, 0.8, 1.0])])),
    TestLog("JSON inside of CSV", "generated", texts_of_json, Schema("label", [
        HOUR, user("device.os"), user("device.v"), user("interests", kind="multi"), user("user"), ad("creative"),
        ad("topics", kind="multi")], time="timestamp")),
    TestLog("clicks and sales", "generated", two_labels, Schema("click", [
        HOUR, user("cookie"), user("profile"), ad("campaign"), ad("brand"), curve("bid", [1.0, 2.0, 3.0, 4.0, 5.0], "ad")],
        time="ts"), label="click"),
    TestLog("searches, words, ids, an index", "generated", searches, Schema("is_click", [
        Field("query", kind="multi", split="words"), ad("ad"), ad("topic"), Field("position", kind="position")])),
    TestLog("the generated world", "pbodl data synth", world, World(seed=27, days=3, rows=ROWS).schema),
    TestLog("Bananas", "river", bananas, Schema("ripe", [curve("x", SIXTHS), curve("y_axis", SIXTHS)])),
    TestLog("image segments: sky", "river", segments, Schema("surface == sky", _segment_fields()), label="surface == sky"),
    TestLog("digits: eight", "scikit-learn", digits, Schema("digit == 8", [Field(f"pixel{i}") for i in range(64)]),
        label="digit == 8"),
]  # fmt: skip
