"""`pbodl online`: learn from a live stream."""

from pathlib import Path
from typing import Annotated, Any

import typer

from pbodl.commands.shared_options import (
    MOST,
    MOST_WORKERS,
    PORTS,
    AsJson,
    Changes,
    ConfigFile,
    Engine,
    Kind,
    Merge,
    Minibatch,
    Preset,
    RayAddress,
    Shards,
    ShardTimeout,
    WireBits,
    finite,
    print_json,
)
from pbodl.commands.warmup_command import tell_if_compiling
from pbodl.errors import InputError
from pbodl.models.snapshot import snapshots
from pbodl.parallel.engines import SHARD_TIMEOUT, check_engine
from pbodl.streaming.metrics_board import LOOPBACK
from pbodl.streaming.online_service import Options, parse_speed
from pbodl.streaming.online_service import online as learn_online
from pbodl.streaming.stream_learner import StreamOptions
from pbodl.training.config import Config, check_config, read_config, with_changes
from pbodl.training.display import console
from pbodl.training.presets import named_tables
from pbodl.training.session import Interrupted
from pbodl.training.stream_status import live_status


def online(
    source: Annotated[str, typer.Option(help="redis://host:6379/stream, kafka://host:9092/topic, or a growing file or folder.")],
    out: Annotated[Path, typer.Option(help="Run folder; an existing run continues where it stopped.")],
    config: ConfigFile = None,
    preset: Preset = None,
    model: Kind = None,
    changes: Changes = [],  # noqa: B006
    window: Annotated[str | None, typer.Option(help="Time that a click usually takes (default: 10m).")] = None,
    late: Annotated[str | None, typer.Option(help="Time that a click takes at most (default: 1h).")] = None,
    ages: Annotated[
        str | None, typer.Option(help="Ages at which impressions are judged, such as 1m,10m,70m (default: by the delays seen).")
    ] = None,
    skew: Annotated[str | None, typer.Option(help="Time by which an event may be ahead of the others (default: 1h).")] = None,
    outcome: Annotated[
        str | None, typer.Option(help="Outcome to learn: click, of an impression (default), or conversion, of a click.")
    ] = None,
    join_capacity: Annotated[
        int | None, typer.Option(min=1, max=MOST, help="Maximum number of impressions to remember (default: 1000000).")
    ] = None,
    publish: Annotated[str | None, typer.Option(help="Model folder that servers follow.")] = None,
    publish_every: Annotated[float, typer.Option(min=0.0, callback=finite, help="Seconds between publications.")] = 2.0,
    publish_exact: Annotated[bool, typer.Option("--publish-exact", help="Publish every bit; about ten times the bytes.")] = False,
    workers: Annotated[
        int,
        typer.Option(min=1, max=MOST_WORKERS, help="Number of threads, or processes with --engine ray, that learn in parallel."),
    ] = 1,
    merge: Merge = None,
    engine: Engine = "threads",
    address: RayAddress = None,
    shards: Shards = 1,
    minibatch: Minibatch = None,
    wire_bits: WireBits = 16,
    shard_timeout: ShardTimeout = SHARD_TIMEOUT,
    burn_in: Annotated[list[str], typer.Option(help="Log to learn first; the stream continues where it ends.")] = [],  # noqa: B006
    begin: Annotated[str, typer.Option(help="Position in the stream where a new run begins: start, or end.")] = "start",
    until_end: Annotated[bool, typer.Option("--until-end", help="Stop when the stream has no more events.")] = False,
    speed: Annotated[str | None, typer.Option(help="Replay a file at this multiple of real time, such as 60x.")] = None,
    release: Annotated[bool, typer.Option("--release", help="Publish again after an alarm.")] = False,
    accept_gap: Annotated[bool, typer.Option("--accept-gap", help="Continue behind lost events, and behind a leap.")] = False,
    dead_letters: Annotated[str | None, typer.Option(help="Target for bad events: a file, redis://... or kafka://...")] = None,
    metrics_port: Annotated[int | None, typer.Option(**PORTS, help="Port for /metrics.")] = None,
    metrics_host: Annotated[str, typer.Option(help="Address for /metrics; 0.0.0.0 lets other machines in.")] = LOOPBACK,
    start_from: Annotated[Path | None, typer.Option(help="Run folder whose newest model a new run starts with.")] = None,
    as_json: AsJson = False,
) -> None:
    """Learn from a live stream. Joins impressions with their late clicks, learns each exactly once, and publishes the model."""
    if begin not in ("start", "end"):
        raise InputError(f"--begin is {begin!r}; allowed are 'start' and 'end'")
    check_engine(engine, address=address, shards=shards, minibatch=minibatch, wire_bits=wire_bits, shard_timeout=shard_timeout)
    asked = {"window": window, "late": late, "capacity": join_capacity, "skew": skew, "outcome": outcome, "ages": ages}
    given: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    options = Options(
        source=source,
        out=out,
        join=StreamOptions(**given),
        given=tuple(given),
        workers=workers,
        publish=publish,
        publish_every=publish_every,
        publish_exact=publish_exact,
        burn_in=tuple(burn_in),
        begin=begin,
        until_end=until_end,
        speed=parse_speed(speed),
        accept_gap=accept_gap,
        release=release,
        dead_letters=dead_letters,
        metrics_port=metrics_port,
        metrics_host=metrics_host,
        start_from=start_from,
    )
    named = {"model.kind": model, "training.merge": merge}
    changes = [*changes, *(f"{key}={value}" for key, value in named.items() if value is not None)]
    settings = _settings(config, preset, out, start_from, changes)
    tell_if_compiling()
    try:
        with live_status(source) as show:
            if engine == "ray":
                from pbodl.streaming.cluster.cluster_service import ClusterOptions, online_on_ray

                cluster = ClusterOptions(shards, minibatch, wire_bits == 16, address, shard_timeout)
                figures = online_on_ray(settings, options, cluster, show)
            else:
                figures = learn_online(settings, options, show)
    except Interrupted as stop:
        console.print(f"stopped and saved; the same command continues (run folder {out})")
        raise typer.Exit(stop.code) from None
    console.print(f"{figures['events']:,} events, {figures['rows_learned']:,} rows learned; the run is in {out}")
    print_json(figures, as_json)
    if not figures.get("ledger", {}).get("sound", True):
        raise typer.Exit(1)


def _settings(config: Path | None, preset: str | None, out: Path, start_from: Path | None, changes: list[str]) -> Config:
    """The configuration from a file or a preset, or that of the run in `out`, or of the one to start from."""
    tables = named_tables(config, preset)
    if tables is None:
        known = next((run for run in (out, start_from) if run is not None and snapshots(run)), None)
        if known is None:
            raise InputError("a stream does not say what its columns mean: give --config, or --preset")
        tables = read_config(known / "config.toml")
    return check_config(with_changes(tables, changes))
