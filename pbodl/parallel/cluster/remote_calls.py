"""Sockets between the reader, lanes and shards: what they say to each other is too much for an engine's own calls.

A `Door` answers calls of some methods. `Links` calls those of several doors, and calls again, wherever the door is
then, until it is answered. So a call may be carried out twice, and must bear it, as those of `Lane` and `DurableShard` do. Where
a door is, and that it opens again elsewhere when its process died, is the engine's business.

    a call     the method's name and its arguments
    an answer  an error's text (empty: none), and what the method returned
Each is a number of byte strings: how many (4 bytes), the length of each (8 bytes), and then they themselves.
"""

import contextlib
import hmac
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from pbodl.errors import InputError
from pbodl.parallel.cluster.journal import Superseded
from pbodl.system.tensors import Bytes

Address = tuple[str, int]
Call = tuple[str, tuple[Bytes, ...]]  # a method's name, and its arguments

TOKEN = 32  # bytes: who calls has to know them
PAUSE = 0.1  # seconds before a door that was not there is looked for again
# A machine that vanished is noticed within half a minute, where the system can do so.
WATCHFUL = {"TCP_NODELAY": 1, "TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4, "TCP_USER_TIMEOUT": 30_000}


class Door:
    """Answers calls of `methods` at `address`, a free port of `host`; every caller has a thread of its own."""

    def __init__(self, methods: Mapping[str, Callable[..., Bytes]], host: str, token: bytes) -> None:
        self._methods, self._token = methods, token
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listening = socket.create_server((host, 0), family=family, backlog=1024)
        self.address: Address = self._listening.getsockname()[:2]
        threading.Thread(target=self._open, daemon=True).start()

    def _open(self) -> None:
        while True:
            try:
                caller, _ = self._listening.accept()
            except OSError:  # no descriptor is left
                time.sleep(PAUSE)
                continue
            threading.Thread(target=self._serve, args=(caller,), daemon=True).start()

    def _serve(self, caller: socket.socket) -> None:
        with caller, contextlib.suppress(OSError):
            _watch(caller)
            if not hmac.compare_digest(_receive(caller, TOKEN), self._token):
                return
            while True:
                name, *given = _receive_all(caller)
                try:
                    answer = self._methods[name.decode()](*given)
                except Superseded:
                    return  # the caller will look for the one that has taken over
                except Exception as error:
                    _send_all(caller, [f"{type(error).__name__}: {error}".encode(), b""])
                else:
                    _send_all(caller, [b"", answer])


class Links:
    """Calls the doors that `find(number)` knows the addresses of. For several threads; their calls go one after the other."""

    def __init__(self, doors: int, find: Callable[[int], Address], token: bytes) -> None:
        self._find, self._token = find, token
        self._lock = threading.Lock()
        self._closed = False
        self._links: list[socket.socket | None] = [None] * doors

    def ask(self, calls: Sequence[Call]) -> list[Bytes]:
        """One call to each door, all at the same time; their answers."""
        with self._lock:
            try:
                sent = [self._sent(door, call) for door, call in enumerate(calls)]
                return [self._answer(door, call, under_way) for door, (call, under_way) in enumerate(zip(calls, sent, strict=True))]
            except BaseException:
                for door in range(len(calls)):  # answers may be on their way that nobody waits for any more
                    self._drop(door)
                raise

    def close(self) -> None:
        """Give up what is not answered yet."""
        self._closed = True
        for link in self._links:
            if link is not None:
                with contextlib.suppress(OSError):
                    link.shutdown(socket.SHUT_RDWR)

    def _sent(self, door: int, call: Call) -> bool:
        name, given = call
        try:
            link = self._links[door] or self._connect(door)
            _send_all(link, [name.encode(), *given])
        except OSError:
            self._drop(door)
            return False
        return True

    def _answer(self, door: int, call: Call, under_way: bool) -> Bytes:
        while True:
            link = self._links[door]
            if under_way and link is not None:
                try:
                    error, answer = _receive_all(link)
                except OSError:
                    self._drop(door)
                else:
                    if error:
                        raise InputError(f"{call[0]} failed in another process: {error.decode()}")
                    return answer
            if self._closed:
                raise ConnectionError("closed")
            time.sleep(PAUSE)
            under_way = self._sent(door, call)

    def _connect(self, door: int) -> socket.socket:
        link = self._links[door] = socket.create_connection(self._find(door), timeout=10)
        link.settimeout(None)
        _watch(link)
        link.sendall(self._token)
        return link

    def _drop(self, door: int) -> None:
        link, self._links[door] = self._links[door], None
        if link is not None:
            link.close()


def _watch(link: socket.socket) -> None:
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in WATCHFUL.items():
        if hasattr(socket, name):
            link.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _send_all(link: socket.socket, parts: Sequence[Bytes]) -> None:
    head = struct.pack(f"<I{len(parts)}Q", len(parts), *map(len, parts))
    link.sendall(b"".join((head, *parts)))


def _receive_all(link: socket.socket) -> list[bytearray]:
    count = int.from_bytes(_receive(link, 4), "little")
    lengths = struct.unpack(f"<{count}Q", _receive(link, 8 * count))
    return [_receive(link, length) for length in lengths]


def _receive(link: socket.socket, length: int) -> bytearray:
    """So many bytes, in memory of their own: arrays over them are aligned, and can be written."""
    content = bytearray(length)
    rest = memoryview(content)
    while rest:
        got = link.recv_into(rest)
        if not got:
            raise ConnectionError("the other end is gone")
        rest = rest[got:]
    return content
