"""Ports for servers that start in a moment, in processes of their own, so that a test cannot hold the port for them.

They lie below those that the system hands out by itself: a port from there can be gone, to anybody's connection, before the server
takes it.
"""

import random
import socket

_FIRST, _STOP = 20_000, 32_000  # above those of Ray, below those of the system
_next = random.SystemRandom().randrange(_FIRST, _STOP)  # processes that test side by side begin elsewhere


def free_port() -> int:
    """A port of the loopback on which nobody listens; never the same twice, up to thousands."""
    global _next
    while True:
        port, _next = _next, _FIRST + (_next + 1 - _FIRST) % (_STOP - _FIRST)
        with socket.socket() as trial:
            try:
                trial.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
