"""Heads of answers wait for their bodies, but never for long, and never in vain."""

import asyncio

from pbodl.serving.whole_answers import Joining


class Noting:
    """A transport that notes what is done to it."""

    def __init__(self) -> None:
        self.done: list[bytes | str] = []

    def write(self, data: bytes) -> None:
        self.done.append(data)

    def close(self) -> None:
        self.done.append("closed")

    def is_closing(self) -> bool:
        return "closed" in self.done


def done(*steps) -> list[bytes | str]:
    """What a transport is told when these steps are taken; None lets the loop come round."""
    noting = Noting()

    async def take() -> None:
        joining = Joining(noting, asyncio.get_running_loop())
        for step in steps:
            if step is None:
                await asyncio.sleep(0)
            elif step == "close":
                joining.close()
            else:
                joining.write(step)

    asyncio.run(take())
    return noting.done


def test_head_and_body_are_one_write():
    assert done(b"HTTP/1.1 200 OK\r\n\r\n", b"body", b"more") == [b"HTTP/1.1 200 OK\r\n\r\nbody", b"more"]
    assert done(b"HTTP/1.1 200 OK\r\n\r\n", b"", None) == [b"HTTP/1.1 200 OK\r\n\r\n"]


def test_a_head_without_a_body_goes_out_alone():
    assert done(b"HTTP/1.1 304\r\n\r\n", None, b"HTTP/1.1 200\r\n\r\n", b"x") == [b"HTTP/1.1 304\r\n\r\n", b"HTTP/1.1 200\r\n\r\nx"]


def test_closing_loses_nothing():
    assert done(b"HTTP/1.1 204\r\n\r\n", "close", None) == [b"HTTP/1.1 204\r\n\r\n", "closed"]


def test_all_else_is_the_transports():
    async def asked() -> bool:
        joining = Joining(noting := Noting(), asyncio.get_running_loop())
        noting.close()
        return joining.is_closing()

    assert asyncio.run(asked())
