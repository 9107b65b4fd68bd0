"""`pbodl route`: starts a router, in one process, and runs it until a signal arrives."""

import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from pbodl.errors import InputError
from pbodl.serving.ranking.decision_log import DecisionLog, OpenTarget, open_file_only
from pbodl.serving.serve import ONE_THREAD, bind, web_server
from pbodl.serving.sharing.routed_model import RoutedModel
from pbodl.serving.sharing.router_service import RouterService
from pbodl.serving.sharing.share_client import ShareClient
from pbodl.serving.web.server_limits import Limits, Token

DEAD_SHARD = ("refuse", "prior")


class RouteSettings(msgspec.Struct, frozen=True):
    """How to route.

    shards            addresses of all servers of shares
    dead_shard        what a dead shard means: "refuse" requests that need its rows, or score with the "prior" in their place
    shard_token_file  a file with the token that the servers of shares want
    shard_timeout     seconds that a shard has for its answer
    """

    shards: tuple[str, ...]
    host: str = "127.0.0.1"
    port: int = 8080
    token_file: str | None = None
    limits: Limits = Limits()
    log: str | None = None
    dead_shard: str = "refuse"
    shard_token_file: str | None = None
    shard_timeout: float = 2.0


def route(settings: RouteSettings, tell: Callable[[str], None] = print, open_log: OpenTarget = open_file_only) -> None:
    """Route until a signal arrives, then finish the requests under way."""
    if not settings.shards:
        raise InputError("give the address of every server of a share: --shard http://127.0.0.1:8081 --shard ...")
    if len(set(settings.shards)) < len(settings.shards):
        raise InputError(f"--shard has an address twice: {', '.join(settings.shards)}")
    if settings.dead_shard not in DEAD_SHARD:
        raise InputError(f"--dead-shard is {settings.dead_shard!r}; it must be one of: {', '.join(DEAD_SHARD)}")
    secret = None
    if settings.shard_token_file is not None:
        Token.from_file(settings.shard_token_file)  # checks it
        secret = Path(settings.shard_token_file).read_text(encoding="utf-8").strip()
    clients = [ShareClient(url, secret, settings.shard_timeout) for url in settings.shards]
    token = Token.from_file(settings.token_file)
    log = None if settings.log is None else DecisionLog(settings.log, open_log)
    os.environ.update({name: "1" for name in ONE_THREAD})
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    with bind(settings.host, settings.port) as listening:
        host, port = listening.getsockname()[:2]
        tell(f"listening on http://{host}:{port} (router of {len(clients)} shards)")
        service = RouterService(RoutedModel(clients, settings.dead_shard == "prior"), settings.limits, token, log)
        web_server(service).run(sockets=[listening])
    if log is not None:
        log.close()
