"""A router and servers of shares answer, over HTTP, what one server with the whole model answers, bit for bit."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest

from pbodl.errors import InputError
from pbodl.publishing.publisher import Publisher
from pbodl.serving.models.parts_follower import PartsFollower, RowShare
from pbodl.serving.scoring.predictor import Predictor
from pbodl.serving.sharing.routed_model import RoutedModel, RoutedTable
from pbodl.serving.sharing.router_service import RouterService
from pbodl.serving.sharing.share_client import ShareClient, ShareDown, VersionGone
from pbodl.serving.sharing.share_messages import FoundRows, RowsAsked, found_rows, rows_found
from pbodl.serving.sharing.share_service import KEPT, ShareService
from pbodl.serving.web.http_messages import JSON, MSGPACK
from pbodl.serving.web.http_service import HttpService
from pbodl.serving.web.server_limits import Limits, Token
from tests.publishing.published import MODELS, steps
from tests.serving.services import REQUEST, Fixed, listening

ASKED: list[tuple[str, dict[str, Any]]] = [
    ("/v1/score", REQUEST),
    ("/v1/score", REQUEST | {"detail": True}),
    ("/v1/score", REQUEST | {"explore": "thompson", "seed": 7}),
    ("/v1/score", REQUEST | {"user": {"user": 11}, "candidates": [{"ad": f"ad{n % 9}"} for n in range(40)]}),
    ("/v1/score", {"candidates": []}),
    ("/v1/rank", REQUEST | {"policy": "greedy", "slots": 2, "request_id": "r1"}),
]


PATIENCE = 900.0  # seconds; a busy machine takes its time, above all to compile
PATIENT = Limits(patience=PATIENCE)


class Shares:
    """A publisher, servers of shares, and a server of the whole model; their versions change when a test says so."""

    def __init__(self, folder: Path, name: str, count: int) -> None:
        self.model = MODELS[name]()
        self.publisher = Publisher(self.model, folder, compact=True)
        self.followers = [PartsFollower(folder, RowShare(number, count)) for number in range(count)]
        self.whole_follower = PartsFollower(folder)
        self.sources = [Kept() for _ in range(count)]
        self.whole = Fixed(None)
        self.steps = iter(steps())

    def publish(self) -> None:
        self.model.learn(next(self.steps))
        self.publisher.publish()
        self.whole_follower.poll()
        assert self.whole_follower.version is not None
        self.whole.predictor = Predictor(self.whole_follower.version)

    def load(self, number: int) -> None:
        """One share loads the newest version."""
        self.followers[number].poll()
        version, source = self.followers[number].version, self.sources[number]
        assert version is not None
        source.kept, source.predictor = source.predictor, Predictor(version)

    def publish_and_load(self) -> None:
        self.publish()
        for number in range(len(self.sources)):
            self.load(number)


class Kept(Fixed):
    def __init__(self) -> None:
        super().__init__(None)
        self.kept: Predictor | None = None


class Running:
    """All of it behind sockets."""

    def __init__(self, shares: Shares, routed: RoutedModel, router: int, whole: int, services: list[ShareService]) -> None:
        self.shares, self.routed, self.services = shares, routed, services
        urls = [f"http://127.0.0.1:{port}" for port in (router, whole)]
        self._router, self._whole = (httpx.AsyncClient(base_url=url, timeout=PATIENCE) for url in urls)

    async def ask(self, path: str, request: dict[str, Any], kind: str = JSON) -> httpx.Response:
        return await self._post(self._router, path, request, kind)

    async def _post(self, client: httpx.AsyncClient, path: str, request: dict[str, Any], kind: str) -> httpx.Response:
        encode = msgspec.json.encode if kind == JSON else msgspec.msgpack.encode
        return await client.post(path, content=encode(request), headers={"Content-Type": kind})

    async def get(self, path: str) -> httpx.Response:
        return await self._router.get(path)

    async def same(self) -> None:
        """All requests get the bytes that a server of the whole model gives."""
        for kind in (JSON, MSGPACK[0]):
            for path, request in ASKED:
                comp, ref = await self.ask(path, request, kind), await self._post(self._whole, path, request, kind)
                assert ref.status_code == 200, ref.text
                assert comp.status_code == 200, comp.text
                assert comp.content == ref.content


@contextlib.asynccontextmanager
async def running(folder: Path, name: str = "fm", count: int = 2, lenient: bool = False) -> AsyncIterator[Running]:
    shares = Shares(folder, name, count)
    shares.publish_and_load()
    services = [ShareService(source, RowShare(n, count), token=Token("secret")) for n, source in enumerate(shares.sources)]
    async with contextlib.AsyncExitStack() as stack:
        ports = [await stack.enter_async_context(listening(service)) for service in services]
        clients = [ShareClient(f"http://127.0.0.1:{port}", "secret", seconds=PATIENCE) for port in reversed(ports)]
        routed = RoutedModel(clients, lenient)
        router = await stack.enter_async_context(listening(RouterService(routed, PATIENT)))
        whole = await stack.enter_async_context(listening(HttpService(shares.whole, PATIENT)))
        yield Running(shares, routed, router, whole, services)
        for client in clients:
            client.close()


@pytest.mark.parametrize("name, count", [("fm", 2), ("pairs", 3), ("ffm", 2), ("decay", 1), ("sampled", 2)])
def test_answers_are_those_of_one_server(tmp_path, name, count):
    async def check() -> None:
        async with running(tmp_path, name, count) as all_of_it:
            early = await all_of_it.ask(*ASKED[0])
            assert early.status_code == 503 and early.headers["Retry-After"] == "1"
            await all_of_it.routed.look()
            await all_of_it.same()
            for _ in range(3):
                all_of_it.shares.publish_and_load()
                await all_of_it.routed.look()
                await all_of_it.same()
            about = (await all_of_it.get("/v1/model")).json()
            assert about["version"] == 4
            assert about["features"] == all_of_it.shares.whole.predictor.version.table.size
            assert about["rows_learned"] == all_of_it.shares.model.rows_learned

    asyncio.run(check())


def test_rows_are_fetched_once_per_version(tmp_path):
    async def check() -> None:
        async with running(tmp_path) as all_of_it:
            await all_of_it.routed.look()
            await all_of_it.same()
            for source in all_of_it.shares.sources:  # from here on, no rows can be had
                source.predictor = source.kept = None
            await all_of_it.same()
            other = await all_of_it.ask("/v1/score", REQUEST | {"user": {"user": "a new one"}})
            assert other.status_code == 503 and other.json()["error"]["code"] == "shard_unavailable"

    asyncio.run(check())


def test_versions_are_never_mixed(tmp_path):
    async def check() -> None:
        async with running(tmp_path) as all_of_it:
            shares, routed = all_of_it.shares, all_of_it.routed
            await routed.look()
            expected = (await all_of_it.ask(*ASKED[3])).content
            old = shares.whole.predictor
            shares.publish()
            shares.load(0)  # the other share is late: version 1 stays in service, with rows that were never asked for
            await routed.look()
            assert routed.version == 1
            assert (await all_of_it.ask(*ASKED[3])).content == expected
            shares.whole.predictor, newer = old, shares.whole.predictor
            await all_of_it.same()
            shares.whole.predictor = newer
            shares.load(1)
            await routed.look()
            assert routed.version == 2
            await all_of_it.same()

    asyncio.run(check())


def test_a_request_starts_again_when_its_version_is_gone(tmp_path):
    async def check() -> None:
        async with running(tmp_path) as all_of_it:
            shares = all_of_it.shares
            await all_of_it.routed.look()
            shares.publish_and_load()
            for source in shares.sources:
                source.kept = None
            assert all_of_it.routed.version == 1  # it has not looked yet
            await all_of_it.same()
            assert all_of_it.routed.version == 2

    asyncio.run(check())


def test_an_older_version_stays_while_a_router_names_it(tmp_path, monkeypatch):
    async def check() -> None:
        now = 1000.0
        monkeypatch.setattr("pbodl.serving.sharing.share_service.time.monotonic", lambda: now)
        async with running(tmp_path) as all_of_it:
            shares, service = all_of_it.shares, all_of_it.services[0]
            await all_of_it.routed.look()
            shares.publish()
            shares.load(0)
            service.tidy()
            for _ in range(3):
                now += 0.9 * KEPT
                await all_of_it.routed.look()  # names version 1
                service.tidy()
                assert shares.sources[0].kept is not None
            now += 1.1 * KEPT
            service.tidy()
            assert shares.sources[0].kept is None

    asyncio.run(check())


@pytest.mark.parametrize("lenient", [False, True])
def test_a_dead_shard(tmp_path, lenient):
    async def check() -> None:
        async with running(tmp_path, lenient=lenient) as all_of_it:
            routed, shares = all_of_it.routed, all_of_it.shares
            await routed.look()
            alive, shares.sources[1].predictor = shares.sources[1].predictor, None  # answers 503 from now on
            await routed.look()
            answer = await all_of_it.ask("/v1/score", REQUEST)
            ready = await all_of_it.get("/readyz")
            if not lenient:
                assert answer.status_code == 503 and answer.headers["Retry-After"] == "1"
                assert routed.order[1].url in answer.json()["error"]["message"]
                assert ready.status_code == 503
            else:
                # Features of the dead shard are at their prior: as if the table had the rows of the other alone.
                assert answer.status_code == 200 and ready.status_code == 200
                half = Predictor(shares.followers[0].version).score(
                    REQUEST["user"],
                    REQUEST["context"],
                    REQUEST["candidates"],  # type: ignore[arg-type]
                )
                assert answer.json()["ctr"] == half.ctr.tolist()
                assert routed.degraded == 1
            shares.sources[1].predictor = alive
            await routed.look()
            await all_of_it.same()

    asyncio.run(check())


def test_shares_refuse_what_is_not_for_them(tmp_path):
    async def check() -> None:
        shares = Shares(tmp_path, "fm", 2)
        shares.publish_and_load()
        service = ShareService(shares.sources[0], RowShare(0, 2), token=Token("secret"))
        rows = {"Content-Type": MSGPACK[0], "Authorization": "Bearer secret"}
        async with listening(service) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as client:
            score = await client.post("/v1/score", json=REQUEST, headers={"Authorization": "Bearer secret"})
            assert (score.status_code, score.json()["error"]["code"]) == (421, "share")
            assert "share 0 of 2" in score.json()["error"]["message"]
            asked = msgspec.msgpack.encode(RowsAsked(1, bytes(16)))
            for body, headers, status in (
                (asked, {}, 401),
                (asked, rows | {"Content-Type": JSON}, 415),
                (b"\xc1", rows, 422),
                (msgspec.msgpack.encode(RowsAsked(1, bytes(15))), rows, 422),
                (msgspec.msgpack.encode(RowsAsked(9, bytes(16))), rows, 409),
                (asked, rows, 200),
            ):
                answer = await client.post("/v1/share/rows", content=body, headers=headers)
                assert answer.status_code == status, answer.text
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert (await client.get("/v1/share")).status_code == 401
            for wrong in ("", "?version=", "?version=²", "?version=" + 5000 * "9"):
                assert (await client.get(f"/v1/share/model{wrong}", headers=rows)).status_code == 422

    asyncio.run(check())


def test_wrong_shards_are_told(tmp_path):
    async def check() -> None:
        shares = Shares(tmp_path, "fm", 2)
        shares.publish_and_load()
        service = ShareService(shares.sources[0], RowShare(0, 2))
        async with listening(service) as port, listening(service) as other:
            twice = RoutedModel([ShareClient(f"http://127.0.0.1:{one}", seconds=PATIENCE) for one in (port, other)])
            await twice.look()
            assert "must have 0/2 to 1/2" in twice.waiting and twice.predictor is None
            nobody = ShareClient("http://127.0.0.1:9", seconds=PATIENCE)
            with pytest.raises(ShareDown):
                await nobody.state(None)
            with pytest.raises(VersionGone):
                await ShareClient(f"http://127.0.0.1:{port}", seconds=PATIENCE).model(77)

    asyncio.run(check())
    for url in ("127.0.0.1:80", "ftp://a", "http://a/path", "http://u:p@a", "http://a:port"):
        with pytest.raises(InputError, match="write the address of a server"):
            ShareClient(url)


def test_a_table_takes_rows_once_and_answers_must_fit_the_question(tmp_path):
    model = MODELS["fm"]()
    model.learn(steps()[0])
    packed = Predictor.of(model).version.table
    keys = np.append(packed.keys[:5], np.uint64(12345))
    answer = rows_found(3, packed, keys)
    found = found_rows(answer, 3, keys, packed.layout.width)
    assert found.places.tolist() == [0, 1, 2, 3, 4]
    table = RoutedTable(packed.layout)
    assert table.unknown(np.concatenate([keys, keys])).tolist() == sorted(keys.tolist())
    for _ in range(2):
        table.take(found)
        assert (table.size, table.asked.size, table.unknown(keys).tolist()) == (5, 6, [])
    rows = table.find(keys)
    np.testing.assert_array_equal(table.packed().weights[rows[:5]], packed.packed().weights[packed.find(keys[:5])])
    assert rows[5] == -1
    assert isinstance(found, FoundRows)
    for wrong in ((answer, 4, keys, packed.layout.width), (answer, 3, keys[:3], packed.layout.width), (answer, 3, keys, 7)):
        with pytest.raises(InputError, match="the shard's answer"):
            found_rows(*wrong)
