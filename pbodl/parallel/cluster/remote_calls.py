"""Remote calls over sockets between the reader, the workers and the shards: the engine's own calls cost too much for this traffic.

A `CallServer` answers calls of some methods. `CallClients` calls several servers, and repeats each call until it is answered,
looking up the server's address again each time. So a method may run twice for one call, and must tolerate that, as those of
`WorkerSlot` and `DurableShard` do. The engine restarts a server whose process died, and knows its new address. One that hangs, and
is not dead, is asked again after a limit, if there is one (`shard_watch`).

    a call     the method's name and its arguments
    an answer  an error's text (empty: none), and what the method returned
Each is a list of byte strings: how many there are (4 bytes), the length of each (8 bytes), and the strings.
"""

import contextlib
import hmac
import logging
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from pbodl.errors import InputError
from pbodl.parallel.cluster.journal import Superseded
from pbodl.parallel.shard import Fenced
from pbodl.system.tensors import Bytes

logger = logging.getLogger(__name__)
Address = tuple[str, int]
Call = tuple[str, tuple[Bytes, ...]]  # a method's name, and its arguments

FENCED = b"Fenced: "
TOKEN = 32  # bytes of the secret that a caller must send
PAUSE = 0.1  # seconds before a call is repeated
SETBACK = 0.5  # seconds before a caller hears that the operating system refused something
# Notice a machine that vanished within half a minute, where the operating system supports it.
WATCHFUL = {"TCP_NODELAY": 1, "TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4, "TCP_USER_TIMEOUT": 30_000}


class CallServer:
    """Answers calls of `methods` at `address`, a free port of `host`; each caller gets its own thread."""

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
            except OSError:  # out of file descriptors
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
                    return  # the caller will look up the address of the successor
                except OSError as error:
                    # A full disk, for example. The caller repeats the call, and so waits until it succeeds.
                    logger.warning("%s failed and will be repeated: %s", name.decode(), error)
                    time.sleep(SETBACK)
                    return
                except Exception as error:
                    _send_all(caller, [f"{type(error).__name__}: {error}".encode(), b""])
                else:
                    _send_all(caller, [b"", answer])


class CallClients:
    """Calls several servers; `find(number)` gives the address of each. Several threads may use it; their calls take turns.

    limit  seconds that a server may be silent before it is asked anew, at the address that it has then; `hung(number)` comes before
    """

    def __init__(
        self, servers: int, find: Callable[[int], Address], token: bytes, limit: float | None = None,
        hung: Callable[[int], None] = lambda number: None,
    ) -> None:  # fmt: skip
        self._find, self._token, self._limit, self._hung = find, token, limit, hung
        self._lock = threading.Lock()
        self._closed = False
        self._connections: list[socket.socket | None] = [None] * servers

    def ask(self, calls: Sequence[Call]) -> list[Bytes]:
        """Make one call to each server, all at the same time; returns their answers."""
        with self._lock:
            try:
                sent = [self._sent(server, call) for server, call in enumerate(calls)]
                return [
                    self._answer(server, call, under_way) for server, (call, under_way) in enumerate(zip(calls, sent, strict=True))
                ]
            except BaseException:
                for server in range(len(calls)):  # drop answers still under way: nobody waits for them
                    self._drop(server)
                raise

    def close(self) -> None:
        """Give up on calls that are not answered yet."""
        self._closed = True
        self.ask_again()

    def ask_again(self) -> None:
        """Repeat calls that are not answered yet, at the addresses that the servers have by now: one may hang, and live on."""
        for connection in self._connections:
            if connection is not None:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def _sent(self, server: int, call: Call) -> bool:
        name, given = call
        try:
            connection = self._connections[server] or self._connect(server)
            _send_all(connection, [name.encode(), *given])
        except OSError as error:
            self._fail(server, error)
            return False
        return True

    def _answer(self, server: int, call: Call, under_way: bool) -> Bytes:
        while True:
            connection = self._connections[server]
            if under_way and connection is not None:
                try:
                    error, answer = _receive_all(connection)
                except OSError as failure:
                    self._fail(server, failure)
                else:
                    if error.startswith(FENCED):
                        raise Fenced(error.decode().removeprefix("Fenced: "))
                    if error:
                        raise InputError(f"{call[0]} failed in another process: {error.decode()}")
                    return answer
            if self._closed:
                raise ConnectionError("closed")
            time.sleep(PAUSE)
            under_way = self._sent(server, call)

    def _connect(self, server: int) -> socket.socket:
        connection = self._connections[server] = socket.create_connection(self._find(server), timeout=10)
        connection.settimeout(self._limit)
        _watch(connection)
        connection.sendall(self._token)
        return connection

    def _fail(self, server: int, error: OSError) -> None:
        self._drop(server)
        if isinstance(error, TimeoutError) and not self._closed:
            self._hung(server)

    def _drop(self, server: int) -> None:
        connection, self._connections[server] = self._connections[server], None
        if connection is not None:
            connection.close()


def _watch(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in WATCHFUL.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _send_all(connection: socket.socket, parts: Sequence[Bytes]) -> None:
    head = struct.pack(f"<I{len(parts)}Q", len(parts), *map(len, parts))
    connection.sendall(b"".join((head, *parts)))


def _receive_all(connection: socket.socket) -> list[bytearray]:
    count = int.from_bytes(_receive(connection, 4), "little")
    lengths = struct.unpack(f"<{count}Q", _receive(connection, 8 * count))
    return [_receive(connection, length) for length in lengths]


def _receive(connection: socket.socket, length: int) -> bytearray:
    """Receive so many bytes into new memory: arrays over it are aligned and writable."""
    content = bytearray(length)
    rest = memoryview(content)
    while rest:
        got = connection.recv_into(rest)
        if not got:
            raise ConnectionError("the other side closed the connection")
        rest = rest[got:]
    return content
