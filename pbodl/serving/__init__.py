"""Serving over HTTP: CTRs with their uncertainty, from a model that a trainer keeps improving.

`Client` and `AsyncClient` talk to a server; `pbodl serve` starts one.
"""

import importlib.util
from typing import TYPE_CHECKING, Any

from pbodl.errors import InputError
from pbodl.system.extras import install_line

if TYPE_CHECKING:
    from pbodl.serving.client import AsyncClient, Client

__all__ = ["AsyncClient", "Client", "require_web"]
LIBRARIES = ("httpx", "orjson", "prometheus_client", "starlette", "uvicorn")


def require_web() -> None:
    """Raise InputError unless the libraries of the extra `serve` are installed."""
    missing = [library for library in LIBRARIES if importlib.util.find_spec(library) is None]
    if missing:
        raise InputError(f"serving needs {', '.join(missing)}, which are not installed; run: {install_line('serve')}")


def __getattr__(name: str) -> Any:
    # Loaded on demand: the predictor works without the web libraries.
    if name in ("AsyncClient", "Client"):
        require_web()
        from pbodl.serving import client

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
