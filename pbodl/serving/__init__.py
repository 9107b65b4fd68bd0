"""Serving: scores with their uncertainty over HTTP, from a model that a trainer keeps improving.

`Client` and `AsyncClient` ask a server; the server itself is `pbodl serve`.
"""

import importlib.util
from typing import TYPE_CHECKING, Any

from pbodl.errors import InputError

if TYPE_CHECKING:
    from pbodl.serving.client import AsyncClient, Client

__all__ = ["AsyncClient", "Client", "require_web"]
LIBRARIES = ("httpx", "orjson", "prometheus_client", "starlette", "uvicorn")


def require_web() -> None:
    """Refuse to go on without the libraries of the extra `serve`."""
    missing = [library for library in LIBRARIES if importlib.util.find_spec(library) is None]
    if missing:
        raise InputError(f"serving needs {', '.join(missing)}, not installed here; install them: pip install 'pbodl[serve]'")


def __getattr__(name: str) -> Any:
    # Loaded when asked for: the predictor is of use without the web's libraries.
    if name in ("AsyncClient", "Client"):
        require_web()
        from pbodl.serving import client

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
