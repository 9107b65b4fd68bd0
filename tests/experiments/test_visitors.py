"""Requests that visitors send: values go to the part of the request that their field's group says."""

from pbodl.experiments.visitors import combined, drawn

GROUPS = {"age": "user", "ad": "ad", "site": "context"}


def test_requests_are_drawn_from_known_values():
    request = drawn(GROUPS, {"age": ["30"], "ad": ["a", "b"], "site": ["s"]}, candidates=50)
    assert request["user"] == {"age": "30"} and request["context"] == {"site": "s"}
    assert len(request["candidates"]) == 50
    assert {candidate["ad"] for candidate in request["candidates"]} == {"a", "b"}


def test_ads_of_several_rows_meet_the_last_user():
    rows = [{"age": 1, "ad": "a", "site": "s"}, {"age": 2, "ad": "b", "site": "t", "other": "x"}]
    assert combined(GROUPS, rows) == {
        "user": {"age": 2},
        "context": {"site": "t", "other": "x"},
        "candidates": [{"ad": "a"}, {"ad": "b"}],
    }
