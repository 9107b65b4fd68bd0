"""A Redis server that is stopped, killed, restarted and cut off while a learner reads: every event counts once."""

import itertools
import random
import signal
import time
from pathlib import Path

import pbodl
from pbodl.streaming.sources.redis_stream import RedisSink
from tests.campaign import Finding
from tests.patience import happens
from tests.streaming.redis_server import RedisServer
from tests.streaming.test_chaos import Process, learned, undisturbed
from tests.streaming.test_waiting import Learner
from tests.streaming.traffic import fingerprint, traffic


def disturbed(root: Path, seed: int = 1, disturbances: int = 30) -> Finding:
    (root / "redis").mkdir()
    draws, events = random.Random(seed), traffic(6000)
    server = RedisServer(root / "redis")
    try:
        process = Process(root, server.address("clicks"), 1)
        ends = [len(events) * n // disturbances for n in range(disturbances + 1)]
        for first, stop in itertools.pairwise(ends):
            _send(server, events[first:stop])
            time.sleep(draws.random() * 0.3)
            _disturb(server, draws)
        happens(lambda: learned(root) == len(events), 60.0)
        process.kill()
        comp = Process(root, server.address("clicks"), 1, "--until-end", "--json").finish()
    finally:
        server.kill()
    ref = undisturbed(root, events)
    assert comp == ref.metrics()
    assert fingerprint(pbodl.load(root / "run")) == fingerprint(ref.model)
    return Finding("stopped, killed or cut while a learner reads", disturbances, "every event once; the same bits as undisturbed")


def _send(server: RedisServer, events: list[dict]) -> None:
    sink = RedisSink(server.address("clicks"), 20)
    sink.send(events)
    sink.close()


def _disturb(server: RedisServer, draws: random.Random) -> None:
    way = draws.randrange(3)
    if way == 0:
        server.pause()
        time.sleep(draws.random() * 2.5)
        server.resume()
    elif way == 1:
        server.kill()
        time.sleep(draws.random())
        server.start()
    else:
        for _ in range(5):
            server.client.client_kill_filter(_type="normal", skipme=True)
            time.sleep(0.05)


def stopping(root: Path, attempts: int = 4) -> Finding:
    """How long SIGINT and SIGTERM take while a broker is absent, and while one hangs."""
    seconds = []
    for attempt in range(attempts):
        for source in ("redis://127.0.0.1:1/clicks", "kafka://127.0.0.1:1/clicks"):
            (folder := root / f"{source[:5]}{attempt}").mkdir(parents=True)
            learner = Learner(folder, source)
            learner.until(lambda learner=learner: "waiting:" in learner.said())
            seconds.append(learner.stop((signal.SIGINT, signal.SIGTERM)[attempt % 2]))
        (folder := root / f"hanging{attempt}").mkdir(parents=True)
        server = RedisServer(folder)
        try:
            _send(server, traffic(100))
            learner = Learner(folder, server.address("clicks"))
            learner.until(lambda folder=folder: learned(folder) > 0)
            time.sleep(1.0)
            server.pause()
            time.sleep(0.3 * attempt)
            seconds.append(learner.stop((signal.SIGINT, signal.SIGTERM)[attempt % 2]))
        finally:
            server.resume()
            server.kill()
    return Finding("SIGINT and SIGTERM, broker absent or hanging", len(seconds), f"all ended, after {max(seconds):.1f} s at most")


PARTS = (disturbed, stopping)
