"""A load generator: it sends requests at fixed moments, answered or not, so that slow answers are not hidden.

A latency runs from the moment when a request should have been sent to the arrival of its complete answer. It prints one
JSON object: the latencies in milliseconds, the failures by kind, and the versions of the model that answered. SIGTERM ends it.

    python -m benchmarks.load http://127.0.0.1:8080 --candidates 1000 --rate 50 --seconds 60
"""

import argparse
import asyncio
import gc
import json
import signal
import time
from collections import Counter
from typing import Any
from urllib.parse import urlsplit

import msgspec
import uvloop

from benchmarks.ads import Traffic

DIFFERENT = 200  # requests, sent in turns
WARM_UP = 2.0  # seconds that are not counted


class Answer(msgspec.Struct):
    model: int
    ctr: list[float]
    std: list[float]


class Load:
    """Sends requests and records their outcomes."""

    def __init__(self, url: str, candidates: int, requests: list[bytes]) -> None:
        address = urlsplit(url)
        self._host, self._port = address.hostname, address.port
        self._candidates, self._requests = candidates, requests
        self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self.latencies: list[float] = []
        self.failures: Counter[str] = Counter()
        self.versions: set[int] = set()
        self.stopped = False

    def stop(self) -> None:
        self.stopped = True

    async def run(self, rate: float, seconds: float) -> None:
        start, tasks = time.perf_counter() + 0.1, []
        for i in range(int(rate * seconds)):
            if self.stopped:
                break
            due = start + i / rate
            if (early := due - time.perf_counter()) > 0:
                await asyncio.sleep(early)
            tasks.append(asyncio.create_task(self._send(self._requests[i % len(self._requests)], due)))
        await asyncio.gather(*tasks)

    async def _send(self, request: bytes, due: float) -> None:
        try:
            async with asyncio.timeout(10.0):
                reader, writer = self._free.pop() if self._free else await asyncio.open_connection(self._host, self._port)
                writer.write(request)
                head = await reader.readuntil(b"\r\n\r\n")
                body = await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]))
            self.latencies.append(1e3 * (time.perf_counter() - due))
            self._free.append((reader, writer))
            self._check(head, body)
        except (OSError, TimeoutError, EOFError, ValueError) as error:
            self.failures[type(error).__name__] += 1

    def _check(self, head: bytes, body: bytes) -> None:
        status = head[9:12].decode()
        if status != "200":
            self.failures[status] += 1
            return
        answer = msgspec.json.decode(body, type=Answer)
        self.versions.add(answer.model)
        if not len(answer.ctr) == len(answer.std) == self._candidates:
            self.failures["wrong answer"] += 1


def prepared(url: str, candidates: int, seed: int) -> list[bytes]:
    """Different requests, as they go over the wire."""
    traffic = Traffic(seed)
    requests = []
    for _ in range(DIFFERENT):
        body = msgspec.json.encode(traffic.request(candidates))
        head = f"POST /v1/score HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\nContent-Type: application/json\r\n"
        requests.append(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return requests


async def measured(url: str, candidates: int, rate: float, seconds: float, seed: int) -> dict[str, Any]:
    requests = prepared(url, candidates, seed)
    gc.freeze()
    gc.disable()
    await Load(url, candidates, requests).run(rate, WARM_UP)
    load = Load(url, candidates, requests)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, load.stop)
    await load.run(rate, seconds)
    return {
        "latencies": [round(latency, 3) for latency in load.latencies], "failures": load.failures,
        "versions": sorted(load.versions),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--candidates", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=50.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(runner.run(measured(given.url, given.candidates, given.rate, given.seconds, given.seed))))


if __name__ == "__main__":
    main()
