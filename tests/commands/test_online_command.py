"""Every option of `pbodl online` reaches the service under its own name."""

from pathlib import Path

import pytest

from pbodl.streaming.online_service import Options
from pbodl.streaming.stream_learner import StreamOptions
from tests.command_line import run_pbodl

GIVEN = {
    "--window": "5m", "--late": "2h", "--skew": "3h", "--ages": "1m,10m", "--outcome": "conversion",
    "--join-capacity": "77", "--publish": "models",
    "--publish-every": "3.5",
    "--workers": "2", "--merge": "add", "--burn-in": "old.csv", "--begin": "end", "--speed": "60x",
    "--dead-letters": "bad.jsonl", "--metrics-port": "9001", "--metrics-host": "0.0.0.0", "--start-from": "runs/first",
}  # fmt: skip


@pytest.fixture
def learned(monkeypatch):
    """What the service was asked for; it learns nothing."""
    asked = []

    def learn(config, options, show):
        asked.append((config, options))
        return {"events": 3, "rows_learned": 2}

    monkeypatch.setattr("pbodl.commands.online_command.learn_online", learn)
    return asked


def run(*arguments: str):
    return run_pbodl("online", "--source", "log.jsonl", "--out", "run", "--preset", "avazu", *arguments)


def test_options_arrive_by_name(learned):
    flags = ["--until-end", "--release", "--accept-gap", "--model", "sparse-mlp", "--set", "model.dim=3", "--json"]
    result = run(*(word for pair in GIVEN.items() for word in pair), *flags)
    assert result.out.splitlines()[-1] == '{"events": 3, "rows_learned": 2}'
    ((config, options),) = learned
    assert (config.kind, config.model["dim"], config.training.merge) == ("sparse-mlp", 3, "add")
    join = StreamOptions(window="5m", late="2h", capacity=77, skew="3h", ages="1m,10m", outcome="conversion")
    assert options == Options(
        source="log.jsonl", out=Path("run"), join=join, workers=2, publish="models", publish_every=3.5,
        burn_in=("old.csv",), begin="end", until_end=True, speed=60.0, accept_gap=True, release=True, dead_letters="bad.jsonl",
        metrics_port=9001, metrics_host="0.0.0.0", start_from=Path("runs/first"),
    )  # fmt: skip


def test_the_defaults_are_those_of_the_service(learned):
    assert run().code == 0
    assert learned[0][1] == Options(source="log.jsonl", out=Path("run"), given=())


def test_an_unknown_beginning_is_refused(learned):
    assert run("--begin", "middle").code == 2
    assert not learned
