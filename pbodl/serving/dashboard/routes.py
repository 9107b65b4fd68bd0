"""The dashboard's routes: the page, its files, and two answers that only the page requests.

    GET /                   the page; it shows answers of /v1/model, /metrics, /v1/score and of these:
    GET /v1/curves?after=n  the trainer's live figures since point n
    GET /v1/features        the most uncertain features, and the common values of each field

The page itself requires no token; it asks the user for one.
"""

import asyncio
import hashlib
import time
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pbodl.publishing.curves import CurveReader, number
from pbodl.serving.dashboard.feature_lists import features
from pbodl.serving.follower import Version
from pbodl.serving.http_messages import JSON, SECURITY, RequestError, echoed
from pbodl.training.report.page import asset

if TYPE_CHECKING:
    from pbodl.serving.http_service import HttpService

LAST = 10**15 - 1  # largest number of a point that a browser counts exactly
FEATURES_EVERY = 2.0  # seconds for which an answer about the features is reused ...
FEATURES_SHARE = 0.05  # ... or longer, so that computing it takes at most this share of a core
SHARED = ("axes.js", "charts.js", "charts.css")  # with the reports
TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
HEADERS = SECURITY | {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-cache",
}


class CurvesAnswer(msgspec.Struct):
    """`now` by the server's clock, the number of the `last` point, and the requested points as the trainer wrote them."""

    now: float
    last: int
    points: list[msgspec.Raw]


def routes(service: "HttpService") -> list[Route]:
    """The routes of the dashboard."""
    dashboard = Dashboard(service)
    static = [Route(f"/dashboard/{name}", dashboard.file) for name in dashboard.files]
    return [
        Route("/", dashboard.page),
        Route("/v1/curves", service.guarded(dashboard.curves)),
        Route("/v1/features", service.guarded(dashboard.features)),
        *static,
    ]


class Dashboard:
    """Answers for the dashboard of a service."""

    def __init__(self, service: "HttpService") -> None:
        self._service = service
        local = service.run is not None and "://" not in service.run
        self._reader = CurveReader(service.run) if local and service.run is not None else None
        folder = files(__package__)
        self._shell = Template(folder.joinpath("page.html").read_text(encoding="utf-8"))
        self.files = {item.name: item.read_bytes() for item in folder.iterdir() if item.name.endswith(tuple(TYPES))}
        self.files |= {name: asset(name).encode() for name in SHARED}
        self._features: tuple[float, bytes] = (float("-inf"), b"")  # good until, answer
        self._asked = asyncio.Lock()

    async def page(self, request: Request) -> Response:
        predictor = self._service.source.predictor
        token = self._service.token.required
        about = {"kind": "", "version": "–", "rows": "–", "token": "required" if token else "none"}
        if predictor is not None and not token:
            version = predictor.version
            about |= {"kind": version.model.kind, "version": f"{version.number:,}", "rows": f"{version.counters['rows_learned']:,}"}
        return _answer(request, self._shell.substitute(about).encode(), "text/html")

    async def file(self, request: Request) -> Response:
        name = request.url.path.rpartition("/")[2]
        return _answer(request, self.files[name], TYPES[name[name.rindex(".") :]])

    async def curves(self, request: Request) -> Response:
        given = ",".join(request.query_params.getlist("after")) if "after" in request.query_params else "0"
        if not given.isdecimal() or len(given) > len(str(LAST)):
            raise RequestError(
                422, "invalid", f"after is {echoed(given)!r}; it must be the number of a point, 0 to {LAST}", "after"
            )
        lines = [] if self._reader is None else self._reader.lines()
        last = number(lines[-1]) if lines else 0
        # A number beyond the last one means that the run has started anew: all points are new then.
        fresh = lines if self._reader is None or int(given) > last else self._reader.lines(int(given))
        answer = CurvesAnswer(time.time(), last, [msgspec.Raw(line) for line in fresh])
        return Response(msgspec.json.encode(answer), media_type=JSON)

    async def features(self, request: Request) -> Response:
        predictor = self._service.source.predictor
        if predictor is None:
            raise RequestError(503, "not_ready", "no model is loaded yet; try again in a moment", headers={"Retry-After": "1"})
        async with self._asked:
            good_until, body = self._features
            if time.monotonic() > good_until:
                seconds, body = await asyncio.to_thread(_timed_features, predictor.version, self._service.run)
                self._features = (time.monotonic() + max(FEATURES_EVERY, seconds / FEATURES_SHARE), body)
        return Response(body, media_type=JSON)


def _timed_features(version: Version, run: str | None) -> tuple[float, bytes]:
    """The seconds of work that the answer about the features cost, and the answer."""
    began = time.thread_time()
    body = msgspec.json.encode(features(version, run))
    return time.thread_time() - began, body


def _answer(request: Request, content: bytes, media_type: str) -> Response:
    tag = f'"{hashlib.blake2b(content, digest_size=8).hexdigest()}"'
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers={"ETag": tag, **HEADERS})
    return Response(content, headers={"ETag": tag, **HEADERS}, media_type=media_type)
