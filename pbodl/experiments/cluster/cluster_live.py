"""`pbodl up --engine ray --source kafka`: the paper's system on one machine, in processes of its own each.

    broker    Kafka, with its data in RUN/broker, unless --source names one that runs
    traffic   sends generated impressions and late clicks to the topic
    learner   `pbodl online --engine ray`: workers read partitions, shards hold the weights and publish their parts
    server    `pbodl serve` on the run: scores and the dashboard
    up        starts them, sends the server a few requests per second, reports if one of them ends, stops them

All of them find their place again at the next start.
"""

import importlib.util
import itertools
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import msgspec

from pbodl.data.synthetic import World
from pbodl.errors import InputError
from pbodl.experiments.cluster.event_traffic import counted, send_traffic
from pbodl.experiments.cluster.local_broker import broker_program, local_broker
from pbodl.experiments.live import HOST, UpSettings, child_processes, free_port, in_prose, serve_run, watch_children
from pbodl.experiments.live_training import Traffic
from pbodl.experiments.visitors import KnownVisitors
from pbodl.models.snapshot import snapshots
from pbodl.serving.models.follower import PUBLISHED
from pbodl.streaming.cluster.cluster_service import ClusterOptions, online_on_ray
from pbodl.streaming.online_service import Options
from pbodl.streaming.sources.event_sink import open_sink
from pbodl.streaming.stream_learner import StreamOptions
from pbodl.system.extras import install_line
from pbodl.system.folder_lock import FolderLock, writing
from pbodl.system.stop_signals import stop_signals
from pbodl.training.config import check_config
from pbodl.training.session import Interrupted

TOPIC = "events"
LIBRARIES = {"ray": "cluster", "confluent_kafka": "kafka"}  # and the extras that install them


class ClusterUp(msgspec.Struct, frozen=True):
    """The options of `pbodl up --engine ray`, beside those of `pbodl up`.

    source   "kafka" starts a broker; an address kafka://HOST:PORT/TOPIC names one
    """

    source: str = "kafka"
    workers: int = 2
    shards: int = 2


def check_up(source: str) -> None:
    """InputError, with the line to type, unless all that it needs is there."""
    if source != "kafka" and not source.startswith("kafka://"):
        raise InputError(f"--source is {source!r}; give kafka, or the address of a topic, such as kafka://127.0.0.1:9092/events")
    for library, extra in LIBRARIES.items():
        if importlib.util.find_spec(library) is None:
            raise InputError(f"`pbodl up --engine ray` needs {library}, which is not installed; run: {install_line(extra)}")
    if source == "kafka":
        broker_program()


def up_cluster(settings: UpSettings, cluster: ClusterUp, tell: Callable[[str], None] = print) -> int:
    """Run until a signal arrives or a process fails; returns the exit code."""
    check_up(cluster.source)
    from pbodl.streaming.sources.kafka_client import create_topic

    folder, port = Path(settings.out), free_port(settings.port)
    with writing(folder, "pbodl up") as lock, stop_signals() as stop, ExitStack() as stack:
        tell(f"{'continuing' if snapshots(folder) else 'starting'} in {folder}: http://{HOST}:{port} opens in about a minute ...")
        source = cluster.source
        if source == "kafka":
            source = f"kafka://{stack.enter_context(local_broker(folder / 'broker'))}/{TOPIC}"
            tell(f"  broker      {source}")
        create_topic(source, 2 * cluster.workers)
        told = msgspec.structs.replace(cluster, source=source)
        arguments: dict[str, tuple[Any, ...]] = {
            "server": (serve_run, settings, port),
            "traffic": (_send, settings, told),
            "learner": (_learn, settings, told, lock),
        }
        rows = settings.rows or counted(folder)[1] or Traffic().rows
        visitors = KnownVisitors(f"http://{HOST}:{port}", *_some_rows(Traffic(rows=rows).world()))
        children = stack.enter_context(child_processes(arguments))
        return watch_children(children, visitors, stop, tell, "traffic", "all traffic is sent; learner and server continue")


def _some_rows(world: World) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """The group of every column of a world, and some rows."""
    fields = [field for field in world.schema.fields if field.derive is None and not field.cross]
    groups = {str(field.source): field.group for field in fields}
    first = next(iter(world.batches()))
    rows = itertools.islice(first.select(list(dict.fromkeys(groups))).to_pylist(), 1000)
    return groups, list(rows)


def _send(parent: int, settings: UpSettings, cluster: ClusterUp) -> None:
    with stop_signals(signal.SIGTERM) as stop, in_prose(parent), closing(open_sink(cluster.source)) as sink:
        if not send_traffic(Path(settings.out), settings.rows, settings.rate, sink, stop.wait):
            sys.exit(128 + signal.SIGTERM)


def _learn(parent: int, settings: UpSettings, cluster: ClusterUp, lock: FolderLock) -> None:
    out = Path(settings.out)
    config = check_config(
        {"schema": msgspec.to_builtins(World(rows=1).schema), "model": {"kind": "pair-fm"}, "training": {"snapshot_every": 30.0}}
    )
    options = Options(cluster.source, out, StreamOptions(), workers=cluster.workers, publish=str(out / PUBLISHED))
    with in_prose(parent):
        try:
            online_on_ray(config, options, ClusterOptions(cluster.shards))
        except Interrupted as stopped:
            sys.exit(stopped.code)
