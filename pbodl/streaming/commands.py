"""The options of `pbodl online` and of `pbodl data replay`; both are registered in `pbodl.cli`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from pbodl.data.synthetic import World
from pbodl.errors import InputError
from pbodl.models.snapshot import snapshots
from pbodl.parallel.merge import DEFAULT as DEFAULT_MERGE
from pbodl.parallel.merge import MERGES
from pbodl.streaming.online_service import Options, parse_speed
from pbodl.streaming.online_service import online as learn_online
from pbodl.streaming.replay import replay as send
from pbodl.streaming.sources.event_sink import open_sink
from pbodl.streaming.stream_learner import StreamOptions
from pbodl.training.config import Config, check_config, read_config, with_changes
from pbodl.training.display import console
from pbodl.training.presets import PRESETS, named_tables
from pbodl.training.session import Interrupted


def online(
    source: Annotated[str, typer.Option(help="redis://host:6379/stream, kafka://host:9092/topic, or a file or folder that grows.")],
    out: Annotated[Path, typer.Option(help="The run folder; if it holds a run, that goes on where it was.")],
    config: Annotated[Path | None, typer.Option(help="A TOML file with [schema], [model], [training].")] = None,
    preset: Annotated[str | None, typer.Option(help=f"A known log instead of a file: {', '.join(PRESETS)}.")] = None,
    model: Annotated[str | None, typer.Option(help="The model's kind, such as fm-mlp, ffm-mlp, sparse-mlp.")] = None,
    changes: Annotated[list[str], typer.Option("--set", help="Change one key of the configuration: --set model.dim=8.")] = [],  # noqa: B006
    window: Annotated[str, typer.Option(help="How long an impression waits for its click.")] = "10m",
    late: Annotated[str, typer.Option(help="How long after that a late click still finds it.")] = "1h",
    settle: Annotated[str, typer.Option(help="Non-clicks in-step with clicks, or at-end of their window.")] = "in-step",
    join_capacity: Annotated[int, typer.Option(help="Most impressions to remember.")] = 1_000_000,
    publish: Annotated[str | None, typer.Option(help="The model folder that servers follow.")] = None,
    publish_every: Annotated[float, typer.Option(help="Seconds between publications.")] = 2.0,
    workers: Annotated[int, typer.Option(help="How many threads learn at the same time.")] = 1,
    merge: Annotated[str, typer.Option(help=f"How their updates are merged: {', '.join(MERGES)}.")] = DEFAULT_MERGE,
    burn_in: Annotated[list[str], typer.Option(help="Learn this log first; the stream goes on where it ends.")] = [],  # noqa: B006
    begin: Annotated[str, typer.Option(help="Where a new run begins in the stream: start, or end.")] = "start",
    until_end: Annotated[bool, typer.Option("--until-end", help="Stop when the stream has no more.")] = False,
    speed: Annotated[str | None, typer.Option(help="Replay a file at this multiple of its own time: 60x.")] = None,
    on_alarm: Annotated[str, typer.Option(help="When data is abnormal: hold publishing, or also drop what it taught.")] = "hold",
    release: Annotated[bool, typer.Option("--release", help="Publish again after an alarm.")] = False,
    accept_gap: Annotated[bool, typer.Option("--accept-gap", help="Go on though the source has lost events.")] = False,
    dead_letters: Annotated[str | None, typer.Option(help="Where bad events go: a file, redis://..., kafka://...")] = None,
    metrics_port: Annotated[int | None, typer.Option(help="Serve /metrics on 127.0.0.1 at this port.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line of stdout.")] = False,
) -> None:
    """Learn from a live stream: impressions joined with their late clicks, each learned exactly once, and published."""
    if begin not in ("start", "end"):
        raise InputError(f"--begin is {begin!r}; allowed are 'start' and 'end'")
    join = StreamOptions(window, late, join_capacity, on_alarm, settle)
    options = Options(
        source, out, join, workers, merge, publish, publish_every, tuple(burn_in), begin, until_end, parse_speed(speed), accept_gap,
        release, dead_letters, metrics_port,
    )  # fmt: skip
    settings = _settings(config, preset, out, [*changes, *([] if model is None else [f"model.kind={model}"])])
    try:
        figures = learn_online(settings, options)
    except Interrupted as stop:
        console.print(f"stopped and saved; the same command goes on (run folder {out})")
        raise typer.Exit(stop.code) from None
    console.print(f"{figures['events']:,} events, {figures['rows_learned']:,} rows learned; the run is in {out}")
    if as_json:
        print(json.dumps(figures))


def _settings(config: Path | None, preset: str | None, out: Path, changes: list[str]) -> Config:
    """The configuration asked for, or that of the run that goes on."""
    tables = named_tables(config, preset)
    if tables is None:
        if not snapshots(out):
            raise InputError("a stream does not say what its columns mean: give --config, or --preset")
        tables = read_config(out / "config.toml")
    return check_config(with_changes(tables, changes))


def replay(
    to: Annotated[str, typer.Option(help="Where to send: redis://host:6379/stream, kafka://host:9092/topic, or a .jsonl file.")],
    rows: Annotated[int, typer.Option(help="How many impressions.")] = 100_000,
    days: Annotated[int, typer.Option(help="Over how many days.")] = 1,
    seed: Annotated[int, typer.Option(help="Of the world.")] = 0,
    delay: Annotated[float, typer.Option(help="Mean seconds from an impression to its click.")] = 60.0,
    pack: Annotated[int, typer.Option(help="Events in a message.")] = 500,
    speed: Annotated[str | None, typer.Option(help="At this multiple of the world's time, such as 60x; else at once.")] = None,
) -> None:
    """Send a generated world as a live stream: impressions, and their clicks some time later."""
    sink = open_sink(to, pack)
    try:
        sent = send(World(seed=seed, days=days, rows=rows), sink, delay, parse_speed(speed))
    finally:
        sink.close()
    console.print(f"{sent:,} events sent to {to}")
