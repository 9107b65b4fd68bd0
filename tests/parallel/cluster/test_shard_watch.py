"""A shard that hangs is replaced, and whoever waits for its answer gets that of its successor. On Ray: `test_cluster_chaos.py`."""

import socket
import threading

import pytest

from pbodl.errors import InputError
from pbodl.parallel.cluster.remote_calls import TOKEN, Address, CallClients, CallServer
from pbodl.parallel.cluster.shard_watch import ShardWatch, check_limit

SECRET = bytes(range(TOKEN))


class Processes:
    """What the watch needs of `Actors`: the shard "hanging" takes calls and does not answer until it is restarted."""

    def __init__(self) -> None:
        self._stopped = socket.create_server(("127.0.0.1", 0))
        self._servers = {name: CallServer({"alive": lambda: b"", "about": lambda: b"new"}, "127.0.0.1", SECRET) for name in NAMES}
        self.restarted: list[str] = []
        self.again = threading.Event()

    def address(self, name: str, patience: float | None = None) -> Address:
        if name == "hanging" and not self.restarted:
            return self._stopped.getsockname()
        return self._servers[name].address

    def restart(self, name: str) -> None:
        self.restarted.append(name)
        self.again.set()


NAMES = ["well", "hanging"]


def test_only_the_one_that_hangs_is_replaced_and_its_callers_ask_the_successor():
    processes, answers = Processes(), []
    caller = CallClients(2, lambda number: processes.address(NAMES[number]), SECRET)
    asking = threading.Thread(target=lambda: answers.extend(caller.ask([("about", ())] * 2)), daemon=True)
    asking.start()
    watch = ShardWatch(processes, NAMES, SECRET, 0.5, [caller])  # type: ignore[arg-type]
    assert processes.again.wait(60)
    asking.join(60)
    assert answers == [b"new"] * 2
    assert (processes.restarted, watch.replaced) == (["hanging"], 1)
    watch.close()


def test_connections_that_take_too_long_replace_nothing_before_the_limit(monkeypatch):
    processes, connect, failures = Processes(), socket.create_connection, iter(range(3))

    def slow(address: Address, timeout: float) -> socket.socket:
        if next(failures, None) is not None:
            raise TimeoutError("timed out")
        return connect(address, timeout=timeout)

    monkeypatch.setattr(socket, "create_connection", slow)
    watch = ShardWatch(processes, ["well"], SECRET, 100.0, [])  # type: ignore[arg-type]
    watch._clients[0].ask([("alive", ())])
    assert next(failures, None) is None and (processes.restarted, watch.replaced) == ([], 0)
    watch.close()


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_limits_that_would_kill_shards_at_work_are_refused(seconds):
    with pytest.raises(InputError, match="shard_timeout is"):
        check_limit(seconds)
    check_limit(1.0)
