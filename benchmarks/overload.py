"""A server under three times the load that it can take, and a good client beside bad ones. Needs `wrk`.

    python -m benchmarks.overload                # both, a minute
    python -m benchmarks.overload --seconds 20 --rounds 5 --only load

    load    wrk with 64 connections finds the most that one worker answers (100 candidates); then wrk with 200 connections, each
            sending its next request as soon as the last one is answered or refused. In pairs, because other work on the machine
            changes what it can do; and by the processor time that the worker used, which other work changes less.
    slow    one request after the other, alone, and beside 200 connections that send a body byte by byte, a head byte by byte, or
            nothing at all

The latency of answered requests is the server's own (`pbodl_request_seconds`), from a request's first byte to its answer.
"""

import argparse
import asyncio
import json
import os
import re
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import msgspec
import numpy as np
import psutil

from benchmarks.ads import SCHEMA, Traffic
from benchmarks.serve import Server
from pbodl import FMMLP
from pbodl.publishing.publisher import Publisher

CANDIDATES, DIFFERENT = 100, 50
FEW, MANY = 64, 200  # connections: as many as are never refused, and more
ROWS = 20_000
SCRIPT = """
local bodies, at, threads = {}, 0, {}
for line in io.lines(os.getenv("BODIES")) do bodies[#bodies + 1] = line end
local headers = {["Content-Type"] = "application/json"}
function setup(thread) table.insert(threads, thread) end
function init() ok, busy, other = 0, 0, 0 end
function request() at = at % #bodies + 1; return wrk.format("POST", "/v1/score", headers, bodies[at]) end
function response(status) if status == 200 then ok = ok + 1 elseif status == 503 then busy = busy + 1 else other = other + 1 end end
function done(summary)
  local sums = {0, 0, 0}
  for _, thread in ipairs(threads) do
    for i, name in ipairs({"ok", "busy", "other"}) do sums[i] = sums[i] + thread:get(name) end
  end
  local errors = summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.timeout
  print(string.format("FIGURES %d %d %d %d %f", sums[1], sums[2], sums[3], errors, summary.duration / 1e6))
end
"""


def wrk(url: str, folder: Path, connections: int, seconds: float) -> dict[str, float]:
    """Requests per second by outcome, and the 99th percentile of the answered ones in milliseconds."""
    before, used = histogram(url), processor_time()
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds:g}s", "--timeout", "30s", "-s", str(folder / "load.lua"), url]
    told = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | {"BODIES": str(folder / "bodies")})
    answered, busy, other, errors, lasted = map(float, re.findall(r"FIGURES (.*)", told.stdout)[0].split())
    used = processor_time() - used
    counts = {upper: count - before.get(upper, 0.0) for upper, count in histogram(url).items()}
    return {
        "answered": answered / lasted, "refused": busy / lasted, "other": other + errors, "p99": 1e3 * quantile(counts, 0.99),
        "per second of work": answered / used,
    }  # fmt: skip


def processor_time() -> float:
    """Seconds of processor time that the worker has used: a grandchild of this process."""
    (worker,) = [process for process in psutil.Process().children(recursive=True) if "spawn_main" in " ".join(process.cmdline())]
    return worker.cpu_times().user + worker.cpu_times().system


def histogram(url: str) -> dict[float, float]:
    """The server's counts of answered requests, by the upper end of their time."""
    with urlopen(f"{url}/metrics") as response:
        found = re.findall(r'^pbodl_request_seconds_bucket\{le="([^"]+)"\} (\S+)$', response.read().decode(), flags=re.MULTILINE)
    return {float(upper): float(count) for upper, count in found}


def quantile(sums: dict[float, float], share: float) -> float:
    """The upper end of the bucket in which the quantile lies."""
    return next((upper for upper, count in sorted(sums.items()) if count >= share * sums[np.inf]), np.nan)


def under_load(url: str, folder: Path, rounds: int, seconds: float) -> list[dict[str, Any]]:
    wrk(url, folder, FEW, 2.0)
    results = []
    for _ in range(rounds):
        most, flood = wrk(url, folder, FEW, seconds), wrk(url, folder, MANY, seconds)
        ratio, offered = flood["answered"] / most["answered"], (flood["answered"] + flood["refused"]) / most["answered"]
        worked = flood["per second of work"] / most["per second of work"]
        about = {"goodput": ratio, "goodput by work": worked, "offered": offered, "load": os.getloadavg()[0]}
        results.append({"most": most, "flood": flood, **about})
        print(
            f"most {most['answered']:.0f}/s; {MANY} connections: offered {offered:.1f} times that, answered {100 * ratio:.0f} %"
            f" ({100 * worked:.0f} % by processor time),"
            f" refused {flood['refused']:.0f}/s, anything else {flood['other']:.0f}, p99 of answered under {flood['p99']:.0f} ms"
            f" (load {os.getloadavg()[0]:.1f})",
            flush=True,
        )
    return results


async def good_client(url: str, request: bytes, n: int) -> list[float]:
    """Milliseconds of one request after the other, 10 ms apart."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    taken = []
    for _ in range(n):
        began = time.perf_counter()
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]))
        if b" 200 " not in head[:14]:
            raise SystemExit(f"the good client was answered {head[:100]!r}")
        taken.append(1e3 * (time.perf_counter() - began))
        await asyncio.sleep(0.01)
    writer.close()
    return taken


async def slow_client(url: str, request: bytes, kind: int, every: float = 0.1) -> None:
    """Connects again and again: sends a head and then its body byte by byte, a head byte by byte, or nothing."""
    address, head = urlsplit(url), request.index(b"\r\n\r\n") + 4
    while True:
        try:
            _, writer = await asyncio.open_connection(address.hostname, address.port)
            at = (head, 0, len(request))[kind]
            if kind == 0:
                writer.write(request[:head])
            while not writer.is_closing():
                writer.write(request[at : at + 1])
                at += 1
                await writer.drain()
                await asyncio.sleep(every)
        except OSError:
            await asyncio.sleep(every)


async def beside_slow(url: str, request: bytes, n: int) -> dict[str, float]:
    await good_client(url, request, 100)
    alone = await good_client(url, request, n)
    bad = [asyncio.create_task(slow_client(url, request, number % 3)) for number in range(MANY)]
    await asyncio.sleep(1.0)
    beside = await good_client(url, request, n)
    for task in bad:
        task.cancel()
    quantiles = {
        f"{name} p{share:g}": float(np.percentile(taken, share))
        for name, taken in (("alone", alone), ("beside", beside))
        for share in (50, 99)
    }
    print(", ".join(f"{name} {value:.1f} ms" for name, value in quantiles.items()), f"(load {os.getloadavg()[0]:.1f})", flush=True)
    return quantiles


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each run of wrk")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=1000, help="of the good client")
    parser.add_argument("--only", choices=("load", "slow"))
    given = parser.parse_args()
    traffic = Traffic(seed=0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = FMMLP(SCHEMA)
        model.learn(traffic.rows(ROWS))
        Publisher(model, str(folder / "published")).publish()
        bodies = [msgspec.json.encode(traffic.request(CANDIDATES)) for _ in range(DIFFERENT)]
        (folder / "bodies").write_bytes(b"\n".join(bodies) + b"\n")
        (folder / "load.lua").write_text(SCRIPT)
        request = b"POST /v1/score HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
            len(bodies[0]), bodies[0],
        )  # fmt: skip
        results: dict[str, Any] = {}
        with Server(str(folder / "published")) as url:
            if given.only != "slow":
                results["load"] = under_load(url, folder, given.rounds, given.seconds)
            if given.only != "load":
                results["slow"] = [asyncio.run(beside_slow(url, request, given.requests)) for _ in range(given.rounds)]
    print(json.dumps(results))


if __name__ == "__main__":
    main()
