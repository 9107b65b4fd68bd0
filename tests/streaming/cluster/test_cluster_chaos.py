"""Every kind of process of a live cluster is killed or stopped again and again; connections break, disks fill up, clocks jump.

PBODL_CHAOS_KILLS sets how often each kind of process is killed (30 by default), PBODL_CHAOS_KINDS=worker,shard what happens to a
cluster on Kafka (everything by default), PBODL_CHAOS_SEED the seed, and PBODL_CHAOS_MINUTES after how long a test strikes no more.
"""

import contextlib
import math
import os
import signal
import subprocess
from collections.abc import Iterator

import psutil
import pytest

from pbodl.models.snapshot import load_snapshot
from pbodl.streaming.cluster.cluster_service import ClusterOptions, online_on_ray
from pbodl.streaming.online_service import Options
from pbodl.streaming.sources.kafka_sink import KafkaSink
from pbodl.streaming.sources.redis_stream import RedisSink
from tests.parallel.chaos import Chaos, actors
from tests.patience import happens
from tests.streaming.cluster.exact_stream import check_posterior, closing, visits
from tests.streaming.cluster.faults import JumpingClock, TcpProxy
from tests.streaming.cluster.test_cluster_service import JOIN, write_events
from tests.streaming.cluster.tormented import SETTINGS, ClusterProcess, Torment, journalled
from tests.streaming.kafka_broker import KafkaBrokers, needs_kafka
from tests.streaming.redis_server import RedisServer, needs_redis

pytestmark = pytest.mark.slow
PARTITIONS = 4
KILLS = int(os.environ.get("PBODL_CHAOS_KILLS", "30"))  # of each kind
SEED = int(os.environ.get("PBODL_CHAOS_SEED", "1"))
FEWER = max(KILLS // 3, 1)
MOST = 60.0 * float(os.environ.get("PBODL_CHAOS_MINUTES", "inf"))
KINDS = [kind for kind in os.environ.get("PBODL_CHAOS_KINDS", "").split(",") if kind]
ALL = dict.fromkeys(["worker", "shard", "broker", "coordinator", "server"], KILLS)
ALL |= dict.fromkeys(["stop", "parted", "cut", "delay", "disk", "clock"], FEWER)


class TestKafka:
    """On a real broker, which clients reach through a proxy that can be cut, with a real server that follows the model."""

    pytestmark = needs_kafka

    @pytest.fixture
    def torment(self, tmp_path, tmp_path_factory) -> Iterator[Torment]:
        proxy = TcpProxy()
        brokers = KafkaBrokers(tmp_path_factory.mktemp("kafka"), behind=proxy.port)
        proxy.target = brokers.port
        brokers.wait()
        source = brokers.create("clicks", partitions=PARTITIONS)

        def send(new: list[dict]) -> None:
            sink = KafkaSink(source, 7)
            sink.send(new)
            sink.close()

        torment = Torment(tmp_path, source, send, SEED)
        torment.brokers, torment.proxy = brokers, proxy
        yield torment
        proxy.close()
        brokers.close()

    def test_every_event_counts_once_whatever_happens(self, torment: Torment, tmp_path):
        kinds = {kind: times for kind, times in ALL.items() if not KINDS or kind in KINDS}
        assert set(KINDS) <= set(ALL), f"PBODL_CHAOS_KINDS is {KINDS}; allowed are {', '.join(ALL)}"
        if "clock" in kinds:
            if not JumpingClock.possible:
                pytest.skip("there is no C compiler, which the clock that jumps needs")
            torment.clock = JumpingClock(tmp_path)
        torment.run(kinds, MOST)
        timed = math.isfinite(MOST)
        assert timed or all(torment.hits.get(kind, 0) >= times // 2 for kind, times in kinds.items()), torment.hits


def test_killed_and_stopped_again_and_again_on_files(tmp_path):
    source = tmp_path / "events"
    torment = Torment(tmp_path, str(source), lambda new: write_events(source, new, PARTITIONS), SEED)
    torment.run({"worker": FEWER, "shard": FEWER, "coordinator": FEWER, "stop": max(FEWER // 3, 1)})


def test_a_signal_saves_and_another_cluster_continues(tmp_path):
    source, events = tmp_path / "events", visits(0, 1500)
    write_events(source, events, PARTITIONS)
    first = ClusterProcess(tmp_path, str(source), 2, 2)
    assert happens(lambda: sum(journalled(tmp_path)) > 20_000), first.told()
    first.terminate()
    assert load_snapshot(tmp_path / "run").counters["rows_learned"] > 0
    later = visits(1500, 300)
    write_events(source, [*later, *closing([*later, *visits(1800, 200)])], PARTITIONS)
    newest = visits(1800, 200)
    write_events(source / "more", [*newest, *closing(newest)], 1)  # another partition
    (source / "more" / "0" / "events.jsonl").rename(source / "more" / "events.jsonl")
    (source / "more" / "0").rmdir()
    figures = ClusterProcess(tmp_path, str(source), 5, 3, "--until-end", "--json").finish()
    assert figures["ledger"]["sound"] and len(figures["ledger"]["lines"]) == PARTITIONS + 1
    check_posterior(tmp_path / "run", [*events, *visits(1500, 300), *visits(1800, 200)])


def test_a_worker_that_hangs_is_replaced(tmp_path, monkeypatch):
    monkeypatch.setattr("pbodl.streaming.cluster.cluster_session.HUNG", 4.0)
    events = visits(0, 4000)
    write_events(tmp_path / "events", [*events, *closing(events)], PARTITIONS)

    def ready(number: int) -> bool:
        return number == 0 and sum(journalled(tmp_path)) > 40_000

    def stop(number: int) -> bool:
        found = sorted(actors("StreamActor"), key=lambda process: process.pid)
        if found:
            found[0].send_signal(signal.SIGSTOP)
        return bool(found)

    options = Options(str(tmp_path / "events"), tmp_path / "run", JOIN, until_end=True, workers=2)
    with Chaos(ready, stop) as chaos:
        figures = online_on_ray(SETTINGS, options, ClusterOptions(shards=2, rows=16, half=False))
    assert chaos.strikes == 1 and figures["ledger"]["sound"]
    check_posterior(tmp_path / "run", events)


def test_a_shard_that_hangs_is_replaced(tmp_path):
    """Ray does not take a stopped process for dead; whoever waits for it would wait without end."""
    events = visits(0, 4000)
    write_events(tmp_path / "events", [*events, *closing(events)], PARTITIONS)
    stopped: list[psutil.Process] = []

    def ready(number: int) -> bool:
        return number == 0 and sum(journalled(tmp_path)) > 40_000

    def stop(number: int) -> bool:
        stopped.extend(sorted(actors("ShardActor"), key=lambda process: process.pid)[:1])
        for process in stopped:
            process.send_signal(signal.SIGSTOP)
        return bool(stopped)

    options = Options(str(tmp_path / "events"), tmp_path / "run", JOIN, until_end=True, workers=2)
    with Chaos(ready, stop) as chaos:
        figures = online_on_ray(SETTINGS, options, ClusterOptions(shards=2, rows=16, half=False, shard_timeout=5.0))
    assert chaos.strikes == 1 and figures["ledger"]["sound"]
    assert not stopped[0].is_running() or stopped[0].status() == psutil.STATUS_ZOMBIE
    check_posterior(tmp_path / "run", events)


def test_a_machine_that_stands_still_and_wakes_up_cannot_write(tmp_path, monkeypatch):
    """All processes of a Ray node are stopped. The others replace them; when they live again, the shards refuse what they send."""
    monkeypatch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # listen on 127.0.0.1
    monkeypatch.setattr("pbodl.streaming.cluster.cluster_session.HUNG", 10.0)
    from ray.cluster_utils import Cluster

    quick = {"health_check_period_ms": 1000, "health_check_failure_threshold": 5, "health_check_timeout_ms": 5000}
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "_system_config": quick}, shutdown_at_exit=False)
    kept, paused = (nodes.add_node(num_cpus=4, resources={name: 1}) for name in ("kept", "paused"))
    events = visits(0, 6000)
    write_events(tmp_path / "events", [*events, *closing(events)], PARTITIONS)

    def processes(node, kind: str) -> list[psutil.Process]:
        below = psutil.Process(node.all_processes["raylet"][0].process.pid).children(recursive=True)
        return [one for one in below if one.is_running() and kind in " ".join(one.cmdline()[:1])]

    still: list[psutil.Process] = []
    ended = []

    def ready(number: int) -> bool:
        if number == 0:
            return sum(journalled(tmp_path)) > 20_000
        successors = len(processes(kept, "StreamActor")) == 2
        return number == 1 and successors

    def strike(number: int) -> bool:
        if number == 0:
            raylet = psutil.Process(paused.all_processes["raylet"][0].process.pid)
            still.extend([raylet, *raylet.children(recursive=True)])
            for process in still:
                process.suspend()
            return True
        zombies = [one for one in still[1:] if "StreamActor" in " ".join(one.cmdline()[:1])]
        for process in still[1:]:
            process.resume()
        # Their node stands still, so nothing but the refusal ends the workers.
        ended.append((len(zombies), len(psutil.wait_procs(zombies, timeout=120)[0])))
        still[0].resume()
        return True

    options = Options(str(tmp_path / "events"), tmp_path / "run", JOIN, until_end=True, workers=2)
    try:
        with Chaos(ready, strike) as chaos:
            figures = online_on_ray(SETTINGS, options, ClusterOptions(shards=1, rows=16, half=False, address=nodes.address))
            assert happens(lambda: chaos.strikes == 2)
    finally:
        for process in still:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()
        nodes.shutdown()
    ((zombies, ended_themselves),) = ended
    print(f"\n{zombies} zombie(s)")
    assert zombies == ended_themselves
    assert figures["ledger"]["sound"]
    check_posterior(tmp_path / "run", events)


def test_a_disk_without_room_under_the_journals(tmp_path):
    """The journals are on a small file system of their own, which is full for a while. Only root can mount one."""
    shards = tmp_path / "run" / "shards"
    shards.mkdir(parents=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(shards)], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"a file system cannot be mounted here: {mounted.stderr.decode().strip()}")
    source, filler = tmp_path / "events", shards / "filler"
    torment = Torment(tmp_path, str(source), lambda new: write_events(source, new, PARTITIONS), SEED)
    full = [0]

    def fill() -> bool:
        with filler.open("wb", buffering=0) as file:
            try:
                while file.write(bytes(4096)):
                    pass
            except OSError:
                full[0] += 1
        torment.more(200)
        before = journalled(tmp_path)
        happens(lambda: journalled(tmp_path) != before, 3.0)
        filler.unlink()
        return True

    torment.strike_fill = fill  # type: ignore[attr-defined]
    try:
        torment.run({"fill": FEWER})
    finally:
        subprocess.run(["umount", "-l", str(shards)], check=True)
    assert full[0] == FEWER


@needs_redis
def test_redis_streams_whose_server_dies_too(tmp_path, redis_server: RedisServer):
    names = [f"clicks-{part}" for part in range(PARTITIONS)]
    sinks = [RedisSink(redis_server.address(name), 7) for name in names]

    def send(new: list[dict]) -> None:
        for part, sink in enumerate(sinks):
            own = [event for event in new if int(event["id"][1:]) % PARTITIONS == part]
            if own:
                sink.send(own)
        if torment.chance.random() < 0.2:
            redis_server.restart()

    torment = Torment(tmp_path, redis_server.address(",".join(names)), send, SEED)
    torment.run({"worker": FEWER, "shard": FEWER, "coordinator": max(KILLS // 10, 1)})
