"""A live cluster that is struck again and again: real processes on Ray, a real broker, and a real server that follows the model.

After every strike, the newest snapshot holds no event twice; after the last one, the run is finished in peace, and its posterior
is that of the events, each counted once (`exact_stream`). The server must answer with the same model.
"""

import contextlib
import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import psutil

from pbodl.errors import InputError
from pbodl.serving import Client
from pbodl.training.config import to_toml
from tests.patience import PATIENCE, happens
from tests.serving.processes import ServerProcess
from tests.streaming.cluster.exact_stream import check_posterior, clicked_ones, closing, exact_config, expected_ctr, visits
from tests.streaming.cluster.faults import JumpingClock, TcpProxy, cut_between, cut_from_node, journal_of, no_room
from tests.streaming.kafka_broker import KafkaBrokers

LONG = 2 * PATIENCE  # seconds for a cluster to go on
SETTINGS = exact_config(snapshot_every=2.0)
DAY = 86400.0
CLAIMS = 400  # bytes that the journals hold before the first message, at most


class ClusterProcess:
    """`pbodl online --engine ray`, as a process of its own."""

    def __init__(self, folder: Path, source: str, workers: int, shards: int, *more: str, environment: dict | None = None) -> None:
        (folder / "online.toml").write_text(to_toml(SETTINGS))
        command = [sys.executable, "-m", "pbodl.cli", "online", "--source", source, "--out", str(folder / "run"), "--engine", "ray"]
        command += ["--config", str(folder / "online.toml"), "--workers", str(workers), "--shards", str(shards)]
        command += ["--window", "5m", "--late", "5m", "--ages", "5m", "--minibatch", "16", "--wire-bits", "32"]
        with (folder / "errors.txt").open("ab") as errors:
            own = os.environ | (environment or {})
            self._process = subprocess.Popen([*command, *more], stdout=subprocess.PIPE, stderr=errors, env=own)
        self._folder = folder

    def actors(self, kind: str) -> list[psutil.Process]:
        found = []
        for process in psutil.Process(self._process.pid).children(recursive=True):
            try:
                title = " ".join(process.cmdline()[:1])
                if title.startswith("ray::") and kind in title:
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied):
                continue
        return sorted(found, key=lambda process: process.pid)

    @property
    def coordinator(self) -> psutil.Process:
        return psutil.Process(self._process.pid)

    def kill(self) -> None:
        assert self.alive, self.told()
        self._process.send_signal(signal.SIGKILL)
        self._process.communicate()

    def terminate(self, starting: bool = False) -> None:
        """Ask it to stop: it saves, and says so. One that may just be starting has nothing to save, and may end at once."""
        self._process.send_signal(signal.SIGTERM)
        self._process.communicate(timeout=LONG)
        code = self._process.returncode
        assert code == 128 + signal.SIGTERM or (starting and code == -signal.SIGTERM), f"exit code {code}: {self.told()}"

    def finish(self) -> dict:
        out, _ = self._process.communicate(timeout=2 * LONG)
        assert self._process.returncode == 0, self.told()
        return json.loads(out.splitlines()[-1])

    def told(self) -> str:
        return (self._folder / "errors.txt").read_text()[-3000:]

    @property
    def alive(self) -> bool:
        return self._process.poll() is None


class Torment:
    """A cluster, the events that it was sent, and ways to strike it; each returns whether it hit."""

    def __init__(self, folder: Path, source: str, send: Callable[[list[dict]], None], seed: int) -> None:
        self.folder, self.source, self._send = folder, source, send
        self.seed, self.chance = seed, random.Random(seed)
        self.events: list[dict] = []
        self.brokers: KafkaBrokers | None = None
        self.proxy: TcpProxy | None = None
        self.clock: JumpingClock | None = None
        self.server: ServerProcess | None = None
        self.hits: dict[str, int] = {}

    # Life

    def more(self, count: int) -> None:
        new = visits(sum(event["event"] == "impression" for event in self.events), count, self.seed)
        self.events.extend(new)
        self._send(new)

    def start(self, workers: int = 2, shards: int = 2, *more: str) -> ClusterProcess:
        environment = None if self.clock is None else self.clock.environment
        publish = ("--publish", str(self.folder / "published"), "--publish-every", "1")
        self.process = ClusterProcess(self.folder, self.source, workers, shards, *publish, *more, environment=environment)
        return self.process

    def with_server(self) -> None:
        """Start a server that follows what is published; the first model must be there."""
        assert happens(lambda: any((self.folder / "published").glob("*")) or not self.process.alive, LONG), self.process.told()
        self.server = ServerProcess(self.folder / "published").__enter__()
        self.server.wait_until_ready()

    def run(self, kinds: dict[str, int], most: float = math.inf) -> None:
        """Strike in a random order while events come, then let the run end in peace, and compare its posterior.

        most  seconds after which it strikes no more
        """
        began = time.monotonic()
        strikes = [kind for kind, times in kinds.items() for _ in range(times)]
        self.chance.shuffle(strikes)
        self.more(500)
        self.start()
        try:
            self._progress()
            if "server" in kinds:
                self.with_server()
            for strike in strikes:
                if time.monotonic() - began > most:
                    break
                self.more(self.chance.randrange(50, 200))
                self._progress()
                time.sleep(self.chance.uniform(0.0, 1.0))
                assert self.process.alive, self.process.told()
                if happens(getattr(self, f"strike_{strike}"), 30.0):
                    self.hits[strike] = self.hits.get(strike, 0) + 1
                    print(f"{time.monotonic() - began:.0f} s: {strike}", flush=True)
                self._check_so_far()
            self.more(100)
            self._progress()
            self.process.kill()
            last = closing(self.events)
            self.events.extend(last)
            self._send(last)
            self._check()
        finally:
            if self.process.alive:
                self.process.kill()
            if self.server is not None:
                self.server.__exit__()
        print(f"\nseed {self.seed}, {kinds}: hit {self.hits}; {len(self.events)} events, none lost, none twice")

    def _progress(self) -> None:
        """Wait until the cluster has learned something."""
        before = journalled(self.folder)
        while happens(lambda: not self.process.alive or sum(journalled(self.folder)) > CLAIMS, LONG) and not self.process.alive:
            assert "Ray did not start in time" in self.process.told()[-500:], self.process.told()  # a machine that is overloaded
            self.start()
        went_on = happens(lambda: (sum(now := journalled(self.folder)) > CLAIMS and now != before) or not self.process.alive, LONG)
        assert self.process.alive and went_on, self.process.told()

    def _check_so_far(self) -> None:
        with contextlib.suppress(InputError, FileNotFoundError):  # the snapshot was just replaced by a newer one
            check_posterior(self.folder / "run", self.events, whole=False)

    def _check(self) -> None:
        figures = self.start(2, 2, "--until-end", "--json").finish()
        assert figures["ledger"]["sound"] and figures["events"] == len(self.events), figures
        check_posterior(self.folder / "run", self.events)
        if self.server is not None:
            worst = [1.0]

            def agrees() -> bool:
                worst[0] = served_error(self.server.url, self.events)
                return worst[0] < 2e-3

            assert happens(agrees, LONG), f"the server's probabilities are wrong by {worst[0]}"

    # Strikes

    def _victim(self, *kinds: str) -> psutil.Process | None:
        kind = self.chance.choice(kinds)
        happens(lambda: bool(self.process.actors(kind)), LONG)
        return self.chance.choice(self.process.actors(kind) or [None])

    def _signal(self, victim: psutil.Process | None, number: int) -> bool:
        if victim is None:
            return False
        with contextlib.suppress(psutil.NoSuchProcess):
            victim.send_signal(number)
            return True
        return False

    def strike_worker(self) -> bool:
        return self._signal(self._victim("StreamActor"), signal.SIGKILL)

    def strike_shard(self) -> bool:
        return self._signal(self._victim("ShardActor"), signal.SIGKILL)

    def strike_coordinator(self) -> bool:
        """Kill it, or, less often, ask it to stop; another number of workers and shards goes on."""
        if self.chance.random() < 0.2:
            self.process.terminate(starting=True)
        else:
            self.process.kill()
        self.start(self.chance.choice([1, 2, 4]), self.chance.choice([1, 2, 3]))
        return True

    def strike_broker(self) -> bool:
        assert self.brokers is not None
        self.brokers.kill()
        time.sleep(self.chance.uniform(0.0, 2.0))
        self.brokers.start()
        return True

    def strike_server(self) -> bool:
        assert self.server is not None
        for process in [*self.server.children(), psutil.Process(self.server.process.pid)]:
            process.kill()
        self.server.__exit__()
        self.server = ServerProcess(self.folder / "published").__enter__()
        self.server.wait_until_ready()
        return True

    def strike_stop(self) -> bool:
        """Stop a process for a while; a long one is up to half the time after which a worker counts as dead."""
        victim = self.process.coordinator if self.chance.random() < 0.2 else self._victim("ShardActor", "StreamActor")
        if not self._signal(victim, signal.SIGSTOP):
            return False
        time.sleep(self.chance.choice([1.0, 3.0, 10.0, 30.0]))
        return self._signal(victim, signal.SIGCONT)

    def strike_parted(self) -> bool:
        """Stop a process and break its connections to its Ray node, which then takes it for dead, and starts another."""
        victim = self._victim("ShardActor", "StreamActor")
        if not self._signal(victim, signal.SIGSTOP):
            return False
        assert victim is not None
        cut_from_node(victim)
        return True

    def strike_cut(self) -> bool:
        """Break connections: between workers and shards, of the coordinator, or to the broker, for seconds."""
        workers, shards = self.process.actors("StreamActor"), self.process.actors("ShardActor")
        where = self.chance.randrange(3 if self.proxy is not None else 2)
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError, PermissionError):
            if where == 0:
                return sum(cut_between(workers, shards) for _ in range(3)) > 0
            if where == 1:
                return cut_between([self.process.coordinator], [*workers, *shards]) > 0
            assert self.proxy is not None
            cut = self.proxy.cut()
            time.sleep(self.chance.uniform(0.0, 5.0))
            self.proxy.heal()
            return cut > 0
        return False

    def strike_delay(self) -> bool:
        """Let everything from and to the broker arrive late for a while."""
        assert self.proxy is not None
        self.proxy.delay = self.chance.uniform(0.05, 0.5)
        self.more(50)
        time.sleep(self.chance.uniform(1.0, 5.0))
        self.proxy.delay = 0.0
        return True

    def strike_disk(self) -> bool:
        """Let the disk of a shard be full in the middle of a record, and then have room again."""
        victim = self._victim("ShardActor")
        own = None if victim is None else journal_of(victim, self.folder / "run")
        if victim is None or own is None:
            return False
        with contextlib.suppress(FileNotFoundError, ProcessLookupError), no_room(victim, own, self.chance.randrange(1, 200)):
            self.more(100)
            time.sleep(self.chance.uniform(1.0, 4.0))
            return True
        return False

    def strike_clock(self) -> bool:
        assert self.clock is not None
        self.clock.jump(self.chance.choice([DAY, -DAY, 3600.0, -3600.0, 3650 * DAY, 0.0]))
        time.sleep(2.0)
        return True


def served_error(url: str, events: list[dict]) -> float:
    """By how much the server's probabilities differ from those of the exact posterior, at most."""
    clicked = clicked_ones(events)
    shown = [event["id"][1:] for event in events if event["event"] == "impression"]
    worst = 0.0
    with Client(url, timeout=30.0) as client, contextlib.suppress(httpx.HTTPError):
        for start in range(0, len(shown), 1000):
            part = shown[start : start + 1000]
            answer = client.score({}, {}, [{"visit": f"v{number}"} for number in part])
            errors = (abs(ctr - expected_ctr(number in clicked)) for ctr, number in zip(answer.ctr, part, strict=True))
            worst = max(worst, *errors)
    return worst


def journalled(folder: Path) -> tuple[int, ...]:
    """What the journals of the shards hold: it changes while they learn."""
    found = []
    for path in (folder / "run").glob("shards/*/*/*.log"):
        with contextlib.suppress(FileNotFoundError):
            found.append(path.stat().st_size)
    return tuple(sorted(found))
