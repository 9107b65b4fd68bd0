"""A real server under abuse, with a good client beside it: the good client's requests are all answered, and right."""

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

import pytest

from pbodl.publishing.publisher import Publisher
from pbodl.serving import AsyncClient
from pbodl.serving.models.predictor_source import ready
from pbodl.serving.scoring.predictor import Predictor
from tests.serving.processes import ServerProcess
from tests.serving.services import CANDIDATES, CONTEXT, REQUEST, USER, head, trained

BODY = json.dumps(REQUEST).encode()
SECONDS = 3.0  # of each kind of abuse
CLIENTS = 50
BOMB = b'{"candidates":[' + b"{}," * 2_000_000 + b"{}]}"


async def slow_head(write, rng) -> None:
    for byte in head(BODY):
        await write(bytes([byte]))
        await asyncio.sleep(0.05)


async def slow_body(write, rng) -> None:
    await write(head(BODY))
    for byte in BODY:
        await write(bytes([byte]))
        await asyncio.sleep(0.05)


async def silence(write, rng) -> None:
    await asyncio.sleep(SECONDS)


async def half_requests(write, rng) -> None:
    whole = head(BODY) + BODY
    await write(whole[: rng.randrange(len(whole))])


async def long_heads(write, rng) -> None:
    await write(b"GET / HTTP/1.1\r\n" + b"X: %b\r\n" % (b"x" * 1000) * rng.randrange(1, 100))


async def bombs(write, rng) -> None:
    await write(head(BOMB) + BOMB)
    await asyncio.sleep(1.0)


async def lies(write, rng) -> None:
    length = rng.choice(["-1", "99999999999999999999", "1e9", "5, 6", "0x10"])
    await write(head(b"", **{"Content-Length": length}) + BODY)


async def noise(write, rng) -> None:
    whole = bytearray(head(BODY) + BODY)
    for _ in range(rng.randrange(1, 30)):
        whole[rng.randrange(len(whole))] = rng.randrange(256)
    await write(bytes(whole))


async def unread_answers(write, rng) -> None:
    many = json.dumps({"candidates": [{}] * 1000, "detail": True}).encode()
    for _ in range(20):
        await write(head(many) + many)


ABUSES: list[Callable[..., Awaitable[None]]] = [
    slow_head, slow_body, silence, half_requests, long_heads, bombs, lies, noise, unread_answers,
]  # fmt: skip


async def abuser(port: int, abuse: Callable[..., Awaitable[None]], rng: random.Random) -> None:
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**12)

            async def write(data: bytes, writer: asyncio.StreamWriter = writer) -> None:
                writer.write(data)
                await writer.drain()

            try:
                await abuse(write, rng)
                await asyncio.sleep(0.1)
            finally:
                writer.transport.abort()
        except OSError:
            await asyncio.sleep(0.02)


@pytest.mark.slow
def test_a_good_client_beside_every_abuse(tmp_path):
    """Retries are its right when the server is busy, as `Retry-After` says; nothing else may come between."""
    model = trained()
    ready(Predictor.of(model))
    Publisher(model, tmp_path / "published").publish()

    async def run(server: ServerProcess) -> Counter:
        port, answered = urlsplit(server.url).port, Counter()
        async with AsyncClient(server.url, retries=20, timeout=30.0) as client:
            expected = (await client.score(USER, CONTEXT, CANDIDATES)).ctr
            for abuse in ABUSES:
                rng = random.Random(abuse.__name__)
                bad = [asyncio.create_task(abuser(port, abuse, random.Random(rng.random()))) for _ in range(CLIENTS)]
                until = time.monotonic() + SECONDS
                while time.monotonic() < until or not answered[abuse.__name__]:
                    assert (await client.score(USER, CONTEXT, CANDIDATES)).ctr.tolist() == expected.tolist()
                    answered[abuse.__name__] += 1
                for task in bad:
                    task.cancel()
                await asyncio.gather(*bad, return_exceptions=True)
        return answered

    with ServerProcess(tmp_path, "--timeout", "2") as server:
        server.wait_until_ready()
        workers = {worker.pid for worker in server.workers()}
        answered = asyncio.run(asyncio.wait_for(run(server), 300.0))
        assert {worker.pid for worker in server.workers()} == workers
        (worker,) = server.workers()
        assert worker.memory_info().rss < 1.5e9
        assert "Traceback" not in server.log(), server.log()[-4000:]
    assert answered.keys() == {abuse.__name__ for abuse in ABUSES}
    print(" | ".join(f"{name} {count}" for name, count in answered.items()))
