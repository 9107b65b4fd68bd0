"""Calls over sockets: answered in the end, whatever happens to the other side."""

import socket
import threading

import numpy as np
import pytest

from pbodl.errors import InputError
from pbodl.parallel.cluster.journal import Superseded
from pbodl.parallel.cluster.remote_calls import TOKEN, CallClients, CallServer
from pbodl.parallel.shard import Fenced

SECRET = bytes(range(TOKEN))


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr("pbodl.parallel.cluster.remote_calls.PAUSE", 0.0)


def server(**methods) -> CallServer:
    return CallServer(methods, "127.0.0.1", SECRET)


def twice(content):
    return content + content


def closing_after(received: int) -> socket.socket:
    """Somebody who hangs up after so many bytes."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        caller, _ = listening.accept()
        with caller:
            caller.recv(received, socket.MSG_WAITALL) if received else None

    threading.Thread(target=serve, daemon=True).start()
    return listening


def test_calls_to_several_servers_are_answered_in_order():
    servers = [server(join=lambda *parts, n=n: bytes([n]) + b"|".join(parts)) for n in range(3)]
    clients = CallClients(3, lambda n: servers[n].address, SECRET)
    for large in (b"", b"x" * 3_000_000):
        answers = clients.ask([("join", (large, b"y"))] * 3)
        assert answers == [bytes([n]) + large + b"|y" for n in range(3)]


def test_what_arrives_is_aligned_and_can_be_written():
    seen = []

    def note(keys):
        seen.append(np.frombuffer(keys, np.uint64))
        return keys

    place = server(note=note)
    (answer,) = CallClients(1, lambda _: place.address, SECRET).ask([("note", (b"12345678" * 3,))])
    for array in (seen[0], np.frombuffer(answer, np.uint64)):
        assert array.flags.aligned and array.flags.writeable


def test_it_calls_until_it_is_answered():
    with socket.socket() as nobody, closing_after(0) as rude, closing_after(TOKEN + 30) as killed:
        nobody.bind(("127.0.0.1", 0))
        last = server(twice=twice)
        addresses = [one.getsockname() for one in (nobody, rude, killed)] + [last.address]
        found = iter(addresses)
        clients = CallClients(1, lambda _: next(found), SECRET)
        assert clients.ask([("twice", (b"ab" * 100_000,))]) == [b"abab" * 100_000]
        assert next(found, None) is None


def test_one_that_is_superseded_hangs_up_and_its_successor_is_asked():
    def late(content):
        raise Superseded

    servers = iter([server(push=late), server(push=twice)])
    clients = CallClients(1, lambda _: next(servers).address, SECRET)
    assert clients.ask([("push", (b"a",))]) == [b"aa"]


@pytest.mark.parametrize("name, said", [("refuse", "failed in another process: ValueError: not this"), ("other", "KeyError")])
def test_an_error_is_an_answer(name, said):
    def refuse():
        raise ValueError("not this")

    place = server(refuse=refuse, twice=twice)
    clients = CallClients(1, lambda _: place.address, SECRET)
    with pytest.raises(InputError, match=said):
        clients.ask([(name, ())])
    assert clients.ask([("twice", (b"a",))]) == [b"aa"]


def test_after_an_error_of_one_the_answer_of_another_is_not_taken_for_the_next():
    def refuse(content):
        raise ValueError("not this")

    servers = [server(refuse=refuse, twice=twice), server(refuse=twice, twice=twice)]
    clients = CallClients(2, lambda n: servers[n].address, SECRET)
    with pytest.raises(InputError, match="not this"):
        clients.ask([("refuse", (b"a",))] * 2)
    assert clients.ask([("twice", (b"b",))] * 2) == [b"bb"] * 2


def test_who_does_not_know_the_token_is_not_heard():
    called = []
    place = server(note=lambda: called.append(1) or b"")
    with socket.create_connection(place.address) as stranger:
        stranger.sendall(bytes(TOKEN) + b"\x01\0\0\0" + b"\x04\0\0\0\0\0\0\0" + b"note")
        assert _ended(stranger)
    assert called == []


def _ended(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_one_that_hangs_is_not_waited_for_when_it_has_a_successor():
    heard, answers = threading.Event(), []
    hanging, successor = socket.create_server(("127.0.0.1", 0)), server(double=twice)
    addresses = [hanging.getsockname()]

    def hang() -> None:
        caller, _ = hanging.accept()
        caller.recv(TOKEN + 1, socket.MSG_WAITALL)
        heard.set()
        threading.Event().wait()  # keeps the connection, as a process that is stopped does

    clients = CallClients(1, lambda _: addresses[0], SECRET)
    asking = threading.Thread(target=lambda: answers.extend(clients.ask([("double", (b"ab",))])), daemon=True)
    for thread in (threading.Thread(target=hang, daemon=True), asking):
        thread.start()
    assert heard.wait(60)
    addresses[0] = successor.address
    clients.ask_again()
    asking.join(60)
    assert answers == [b"abab"]


def test_one_that_is_silent_for_too_long_is_asked_anew():
    hanging, successor = socket.create_server(("127.0.0.1", 0)), server(double=twice)
    addresses, hung = [hanging.getsockname()], []

    def replace(number: int) -> None:
        hung.append(number)
        addresses[0] = successor.address

    clients = CallClients(1, lambda _: addresses[0], SECRET, 0.05, replace)
    assert clients.ask([("double", (b"ab",))]) == [b"abab"]
    assert clients.ask([("double", (b"c",))]) == [b"cc"]
    assert hung == [0]
    hanging.close()


def test_closed_it_gives_up():
    hanging = threading.Event()
    began = threading.Event()

    def hang():
        began.set()
        hanging.wait()
        return b""

    place = server(hang=hang)
    clients = CallClients(1, lambda _: place.address, SECRET)
    closing = threading.Thread(target=lambda: began.wait() and clients.close())
    closing.start()
    with pytest.raises(ConnectionError):
        clients.ask([("hang", ())])
    closing.join()
    hanging.set()


def test_a_call_that_the_disk_refuses_waits_until_there_is_room(monkeypatch):
    monkeypatch.setattr("pbodl.parallel.cluster.remote_calls.SETBACK", 0.0)
    left = [OSError(28, "No space left on device")] * 3

    def push(content):
        if left:
            raise left.pop()
        return content

    one = server(push=push)
    clients = CallClients(1, lambda _: one.address, SECRET)
    assert clients.ask([("push", (b"message",))]) == [b"message"]
    assert not left


def test_a_process_that_has_a_successor_hears_so():
    def push(content):
        raise Fenced("'p' belongs to epoch 2 now; epoch 1 was taken for dead")

    one = server(push=push)
    with pytest.raises(Fenced, match="belongs to epoch 2 now"):
        CallClients(1, lambda _: one.address, SECRET).ask([("push", (b"message",))])
