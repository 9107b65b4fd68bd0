"""The only file that knows Ray: connects to a cluster, starts actors there, finds their addresses, and stops them.

Ray places the actors by the CPUs they request, restarts them when their process or node dies, and knows their addresses. Actors
serve calls over sockets of their own (`remote_calls`). An actor is any class with a method `address`.

On one machine, everything listens on 127.0.0.1 alone. Start a cluster with `ray start`: docs/guide/scaling.md.
"""

import contextlib
import logging
import os
import socket
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pbodl.errors import InputError
from pbodl.parallel.cluster.remote_calls import Address
from pbodl.system.extras import install_line

# Request half of the cluster's CPUs, at most one per actor: if half of the nodes die, their actors fit on the others.
ASKED = 0.5
PATIENCE = 180  # seconds for all actors to start
# Ray listens on all interfaces, unless it believes that this machine cannot be part of a cluster.
LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
# Ray starts actors with a niceness of 15. Ours are the work itself, and would starve beside anything else on a busy machine.
NICENESS = "RAY_worker_niceness"


class Actors:
    """Actors of one run, `expected` of them altogether."""

    def __init__(self, expected: int) -> None:
        import ray

        cpus = int(1e4 * ASKED * ray.cluster_resources().get("CPU", 1.0) / expected) / 1e4
        self._options = {"num_cpus": min(1.0, cpus), "max_restarts": -1, "max_task_retries": -1, "scheduling_strategy": "SPREAD"}
        self._run, self._all = uuid.uuid4().hex, dict[str, Any]()

    def start(self, kind: type, label: str, *given: Any) -> str:
        """Start an actor of this class; returns the name by which `finder` finds it."""
        import ray

        name = f"pbodl-{self._run}-{label}"
        make: Any = ray.remote(kind)
        self._all[name] = make.options(name=name, **self._options).remote(*given)
        return name

    def wait(self) -> None:
        """Wait until all of them have started."""
        import ray

        try:
            ray.get([actor.address.remote() for actor in self._all.values()], timeout=PATIENCE)
        except ray.exceptions.GetTimeoutError as error:
            raise InputError(
                f"{len(self._all)} workers and shards did not start within {PATIENCE} s; each requests "
                f"{self._options['num_cpus']} CPUs; run `ray status` to see what the cluster has left"
            ) from error
        except ray.exceptions.RayActorError as error:
            raise InputError(f"an actor could not start: {error}") from error

    def address(self, name: str, patience: float | None = None) -> Address:
        """Where an actor listens now; waits for one that is being restarted, and raises `TimeoutError` after `patience` seconds."""
        import ray

        try:
            address: Address = ray.get(self._all[name].address.remote(), timeout=patience)
            return address
        except ray.exceptions.RayActorError as error:
            raise InputError(f"an actor died and could not be restarted, so the run failed: {error}") from error

    def finder(self, names: Sequence[str]) -> Callable[[int], Address]:
        """A function from the number of an actor to its address, for `CallClients` in this process."""
        return lambda number: self.address(names[number])

    def restart(self, name: str) -> None:
        """Kill an actor that does not answer, even if its process is stopped; Ray starts it again."""
        import ray

        ray.kill(self._all[name], no_restart=False)

    def stop(self) -> None:
        """End all of them."""
        import ray

        for actor in self._all.values():
            ray.kill(actor, no_restart=True)


def finder(names: Sequence[str]) -> Callable[[int], Address]:
    """As `Actors.finder`, for an actor that calls others. By name: handles could be lost with the node that keeps them."""
    import ray

    actors: list[Any] = [ray.get_actor(name) for name in names]
    return lambda number: ray.get(actors[number].address.remote())


def node_host() -> str:
    """The address at which others reach this node."""
    import ray

    host: str = ray.util.get_node_ip_address()
    return host


@contextlib.contextmanager
def connected(address: str | None) -> Iterator[None]:
    """A connection to the cluster at `address`, or to a local one that ends with the training."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault(NICENESS, "0")
    if address is None or address.startswith(("127.0.0.1:", "localhost:")):
        os.environ.setdefault(LOOPBACK, "0")
    try:
        import ray
    except ImportError as error:
        raise InputError(f"the engine 'ray' needs Ray, which is not installed; run: {install_line('cluster')}") from error
    if ray.is_initialized():
        yield
        return
    _reach(address)
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        options |= {"_node_ip_address": "127.0.0.1", "include_dashboard": False}
    try:
        ray.init(address=address or "local", **options)
    except (ConnectionError, ValueError) as error:
        raise InputError(
            f"cannot connect to the Ray cluster at {address}: {error}. Start one with `ray start --head`; if it requires a token, "
            "set RAY_AUTH_MODE=token"
        ) from error
    except Exception as error:
        if "timed out" not in str(error):
            raise
        raise InputError(f"Ray did not start in time; is this machine overloaded? Run the same command again ({error})") from error
    try:
        yield
    finally:
        ray.shutdown()


def _reach(address: str | None) -> None:
    """Fail at once if nothing listens on host:port; Ray would retry for minutes."""
    host, colon, port = (address or "").rpartition(":")
    if not colon or not port.isdigit() or "/" in host:
        return
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except OSError as error:
        raise InputError(f"there is no Ray cluster at {address}: {error}. Start one with `ray start --head`") from error
