"""Carries minibatches to lanes over sockets (`coordinator.Carrier`): a thread for each that is under way waits for its answer."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue

from pbodl.parallel.cluster.remote_calls import Address, Links
from pbodl.parallel.cluster.work_format import Done, Work, decode_done, encode_work
from pbodl.parallel.cluster.worker_slot import DEPTH

Ticket = Future[Done]


class LinkCarrier:
    """Reaches `lanes` lanes at the doors that `find(lane)` knows. A lane that died gets its unfinished minibatches again."""

    def __init__(self, lanes: int, find: Callable[[int], Address], token: bytes) -> None:
        self._find, self._token = find, token
        self._pool = ThreadPoolExecutor(DEPTH * lanes, "pbodl-carrier")
        self._idle: list[list[Links]] = [[] for _ in range(lanes)]
        self._all: list[Links] = []
        self._ended: SimpleQueue[Ticket] = SimpleQueue()

    def send(self, lane: int, work: Work) -> Ticket:
        ticket = self._pool.submit(self._carry, lane, encode_work(work))
        ticket.add_done_callback(self._ended.put)
        return ticket

    def wait(self, tickets: list[Ticket]) -> tuple[Ticket, Done]:
        ticket = self._ended.get()
        return ticket, ticket.result()

    def close(self) -> None:
        """Wait for nothing any more."""
        for link in self._all:
            link.close()
        self._pool.shutdown(wait=False)

    def _carry(self, lane: int, content: bytes) -> Done:
        link = self._free(lane)
        (answer,) = link.ask([("learn", (content,))])
        self._idle[lane].append(link)
        return decode_done(answer)

    def _free(self, lane: int) -> Links:
        try:
            return self._idle[lane].pop()
        except IndexError:
            link = Links(1, lambda _: self._find(lane), self._token)
            self._all.append(link)
            return link
