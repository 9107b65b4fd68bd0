"""Sends minibatches to worker slots over sockets (`coordinator.Dispatcher`): one thread per minibatch waits for the answer."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue

from pbodl.parallel.cluster.remote_calls import Address, CallClients
from pbodl.parallel.cluster.work_format import Done, Work, decode_done, encode_work
from pbodl.parallel.cluster.worker_slot import DEPTH

Ticket = Future[Done]


class SocketDispatcher:
    """Sends work to `slots` worker slots; `find(slot)` gives the address of each. A restarted worker gets unfinished work again."""

    def __init__(self, slots: int, find: Callable[[int], Address], token: bytes) -> None:
        self._find, self._token = find, token
        self._pool = ThreadPoolExecutor(DEPTH * slots, "pbodl-dispatcher")
        self._idle: list[list[CallClients]] = [[] for _ in range(slots)]
        self._all: list[CallClients] = []
        self._ended: SimpleQueue[Ticket] = SimpleQueue()

    def send(self, slot: int, work: Work) -> Ticket:
        ticket = self._pool.submit(self._call, slot, encode_work(work))
        ticket.add_done_callback(self._ended.put)
        return ticket

    def wait(self, tickets: list[Ticket]) -> tuple[Ticket, Done]:
        ticket = self._ended.get()
        return ticket, ticket.result()

    def close(self) -> None:
        """Stop waiting and shut down."""
        for client in self._all:
            client.close()
        self._pool.shutdown(wait=False)

    def _call(self, slot: int, content: bytes) -> Done:
        client = self._free(slot)
        (answer,) = client.ask([("learn", (content,))])
        self._idle[slot].append(client)
        return decode_done(answer)

    def _free(self, slot: int) -> CallClients:
        try:
            return self._idle[slot].pop()
        except IndexError:
            client = CallClients(1, lambda _: self._find(slot), self._token)
            self._all.append(client)
            return client
