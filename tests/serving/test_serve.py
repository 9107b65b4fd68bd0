"""`pbodl serve` as it is: processes, signals, a socket, and a trainer that publishes beside it."""

import asyncio
import http.client
import json
import signal
import socket
import sys
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest

from pbodl.publishing.publisher import Publisher
from pbodl.serving import AsyncClient, Client
from pbodl.serving.client import ServerError
from pbodl.serving.models.predictor_source import ready
from pbodl.serving.scoring.predictor import Predictor
from tests.patience import PATIENCE, until
from tests.publishing.published import steps
from tests.serving.processes import ServerProcess
from tests.serving.services import CANDIDATES, CONTEXT, REQUEST, USER, rows_of, trained

linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@pytest.fixture(scope="module")
def publisher(tmp_path_factory):
    model = trained()
    ready(Predictor.of(model))  # compiled here, the servers need not
    publisher = Publisher(model, tmp_path_factory.mktemp("run") / "published")
    publisher.publish()
    return publisher


@pytest.fixture(scope="module")
def server(publisher):
    with ServerProcess(Path(publisher.folder.location).parent, "--workers", "2") as server:
        server.wait_until_ready()
        yield server


def test_new_models_are_taken_in_while_requests_go_on(server, publisher):
    model, expected = publisher.model, {}

    def learn(rows):
        model.learn(rows)
        expected[publisher.publish()] = model.predict(rows_of(REQUEST)).ctr

    async def run():
        answers, over = [], asyncio.Event()
        async with AsyncClient(server.url, retries=0, timeout=PATIENCE) as client:

            async def ask():
                while not over.is_set():
                    answers.append(await client.score(USER, CONTEXT, CANDIDATES))

            asking = [asyncio.create_task(ask()) for _ in range(4)]
            for rows in steps()[:5]:
                await asyncio.to_thread(learn, rows)
                seen = len(answers)
                while not any(answer.model == publisher.version for answer in answers[seen:]):
                    await asyncio.sleep(0.01)
                    assert not any(task.done() for task in asking), "a request failed"
            over.set()
            await asyncio.gather(*asking)
        return answers

    expected[publisher.version] = model.predict(rows_of(REQUEST)).ctr
    answers = asyncio.run(asyncio.wait_for(run(), PATIENCE))
    assert {answer.model for answer in answers} >= {publisher.version}
    for answer in answers:  # each of one version, and of none in between
        np.testing.assert_allclose(answer.ctr, expected[answer.model], rtol=1e-5)


@linux
def test_workers_share_the_models_memory(server, publisher):
    with Client(server.url, timeout=PATIENCE) as client:
        until(lambda: all(client.model()["version"] == publisher.version for _ in range(20)), "both workers being up to date")
    first, second = server.shared_files()
    assert len(first & second) >= 5  # weights, keys, slots, last seen, counts
    for pages in server.workers()[0].memory_maps(grouped=False):
        if pages.path in first & second:
            assert pages.private_dirty == 0, "a worker wrote into the model"
            assert pages.shared_clean + pages.shared_dirty > 0 or pages.rss == 0


def test_all_workers_are_counted_together(server):
    with Client(server.url, timeout=PATIENCE) as client:
        before = scored(client)
        for _ in range(20):
            client.score(USER, CONTEXT, CANDIDATES)
        assert scored(client) == before + 20


def scored(client: Client) -> float:
    lines = client._http.get("/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith('pbodl_requests_total{endpoint="score",status="200"}'))


NONSENSE = (
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),  # TLS where none is spoken
    b"GET\r\n\r\n",
    b"POST /v1/score HTTP/9.9\r\n\r\n",
    b"POST /v1/score HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: -5\r\n\r\n{}",
    b"POST /v1/score HTTP/1.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n{}\r\n",
    b"POST /v1/score HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 9999999999999999999999\r\n\r\n",
    b"POST /v1/score HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{",  # and it leaves
    b"GET /%ff%00/../../etc/passwd HTTP/1.1\r\nHost: \xff\r\n\r\n",
)


def test_nonsense_on_the_socket_harms_nobody(server):
    before = {worker.pid for worker in server.workers()}
    address = urlsplit(server.url)
    for nonsense in NONSENSE:
        with socket.create_connection((address.hostname, address.port), timeout=PATIENCE) as connection:
            connection.sendall(nonsense)
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(65536)
        assert b" 200 " not in answer[:20]
        assert b"Traceback" not in answer
    with Client(server.url, timeout=PATIENCE, retries=0) as client:
        for _ in range(10):
            assert len(client.score(USER, CONTEXT, CANDIDATES).ctr) == len(CANDIDATES)
    assert {worker.pid for worker in server.workers()} == before
    assert "Traceback" not in server.log()


def test_a_worker_that_dies_is_replaced(server):
    before = {worker.pid for worker in server.workers()}
    victim = server.workers()[0]
    victim.send_signal(signal.SIGKILL)
    until(lambda: len({worker.pid for worker in server.workers()} - before) == 1, "the replacement")
    with Client(server.url, timeout=PATIENCE, retries=5) as client:
        for _ in range(10):
            assert len(client.score(USER, CONTEXT, CANDIDATES).ctr) == len(CANDIDATES)
    assert str(victim.pid) in server.log()


@linux
def test_what_is_under_way_is_finished(server):
    """Last: it ends the server."""
    memory = server.memory_folder()
    assert memory.exists()
    address = urlsplit(server.url)
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=PATIENCE)
    body = json.dumps(REQUEST).encode()
    connection.putrequest("POST", "/v1/score")
    connection.putheader("Content-Type", "application/json")
    connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body[:20])
    assert Client(server.url, retries=0, timeout=PATIENCE).ready()  # so that the server has seen the other request's head, too
    workers = server.workers()
    server.process.send_signal(signal.SIGTERM)
    until(lambda: refuses(server.url), "the closing of the socket")
    connection.send(body[20:])
    response = connection.getresponse()
    assert response.status == 200
    assert len(json.loads(response.read())["ctr"]) == len(CANDIDATES)
    assert server.process.wait(PATIENCE) == 0
    assert not any(worker.is_running() for worker in workers)
    assert "Traceback" not in server.log()
    assert not memory.exists()


def refuses(url: str) -> bool:
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=PATIENCE)
    try:
        connection.connect()
    except OSError:
        return True
    finally:
        connection.close()
    return False


@linux
def test_a_server_that_says_it_listens_has_its_model(tmp_path):
    trained().save(tmp_path)
    with ServerProcess(tmp_path, "--workers", "2") as server, Client(server.url, timeout=PATIENCE, retries=0) as client:
        assert len(client.score(USER, CONTEXT, CANDIDATES).ctr) == len(CANDIDATES)


@linux
def test_workers_do_not_outlive_their_server(tmp_path):
    """Nor does a server wait for a model before it answers."""
    (tmp_path / "token").write_text("secret")
    with ServerProcess(tmp_path, "--token-file", str(tmp_path / "token")) as server:
        with Client(server.url, token="secret", timeout=PATIENCE, retries=0) as client:
            with pytest.raises(ServerError, match="no model is loaded yet"):
                client.score(USER, CONTEXT, CANDIDATES)
            trained().save(tmp_path)
            server.wait_until_ready()
            assert client.model()["version"] == 1
        until(lambda: "ready: " in server.log(), "the word that it is ready")
        assert f"no model in {tmp_path} yet" in " ".join(server.log().split())
        (worker,) = server.workers()
        memory = server.memory_folder()
        server.process.send_signal(signal.SIGKILL)
        until(lambda: not worker.is_running() or worker.status() == "zombie", "the end of the worker")
        assert not memory.exists()
