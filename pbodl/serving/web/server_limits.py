"""Limits of a server: the size of requests, how many are in flight, how long they may take, and who may send them."""

import hashlib
import hmac
from collections.abc import Mapping
from pathlib import Path

import msgspec

from pbodl.errors import InputError
from pbodl.serving.web.http_messages import RequestError

LONGEST = 3600.0  # seconds


class Limits(msgspec.Struct, frozen=True):
    """What a worker allows.

    body        bytes in a request's body
    candidates  candidates in a request
    concurrent  requests that a worker works on at a time ...
    waiting     ... and those that wait for their turn; with more complete requests in flight, new ones are refused with 503
    patience    seconds from a request's first byte in which its head must be complete, its body, and its turn must have come
    """

    body: int = 8 * 2**20
    candidates: int = 10_000
    concurrent: int = 16
    waiting: int = 64
    patience: float = 5.0

    def __post_init__(self) -> None:
        for name, least in (("body", 1), ("candidates", 1), ("concurrent", 1), ("waiting", 0), ("patience", 0.001)):
            if not getattr(self, name) >= least:
                raise InputError(f"{name} is {getattr(self, name)}; it must be at least {least}")
        if self.patience > LONGEST:
            raise InputError(f"patience is {self.patience}; it must be at most {LONGEST:g} seconds")


class Token:
    """A secret that requests must send, as `Authorization: Bearer ...`; if it is None, all requests pass."""

    def __init__(self, secret: str | None) -> None:
        self._digest = None if secret is None else _digest(secret.encode())

    @classmethod
    def from_file(cls, path: str | Path | None) -> "Token":
        """The token in the first line of a file."""
        if path is None:
            return cls(None)
        try:
            secret = Path(path).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"the token file {path} cannot be read: {error}") from error
        if not secret or "\n" in secret or not secret.isascii():
            raise InputError(f"the token file {path} must contain the token as its only line, in ASCII")
        return cls(secret)

    @property
    def required(self) -> bool:
        return self._digest is not None

    def check(self, headers: Mapping[bytes, bytes]) -> None:
        """Raise RequestError unless the token is right. The time taken tells nothing about the token."""
        if self._digest is None:
            return
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"bearer" or not hmac.compare_digest(_digest(given.strip()), self._digest):
            raise RequestError(
                401, "unauthorized", "authentication required: send the header `Authorization: Bearer TOKEN`",
                headers={"WWW-Authenticate": "Bearer"},
            )  # fmt: skip


def _digest(secret: bytes) -> bytes:
    return hashlib.sha256(secret).digest()
