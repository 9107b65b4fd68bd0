"""The dashboard's routes: the page, its files, and three answers that only the page requests.

    GET /                   the page; it shows answers of /v1/model, /metrics, /v1/score and of these:
    GET /v1/curves?after=n  the trainer's live figures since point n
    GET /v1/features        the most uncertain features, and the common values of each field
    GET /v1/watch           what the learner watches: drift by field, features that move, the martingale ratio, reliability

The page itself requires no token; it asks the user for one.
"""

import asyncio
import hashlib
import time
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pbodl.publishing.curves import CurveReader, number
from pbodl.publishing.watch_file import read_watch
from pbodl.serving.dashboard.feature_lists import feature_names, features
from pbodl.serving.models.follower import Version
from pbodl.serving.web.http_messages import JSON, SECURITY, RequestError, echoed
from pbodl.training.report.page import asset

if TYPE_CHECKING:
    from pbodl.serving.web.http_service import HttpService

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


class WatchAnswer(msgspec.Struct):
    """`now` by the server's clock, and what the learner watches; None if no learner writes it."""

    now: float
    watch: dict[str, Any] | None


def watched(watch: dict[str, Any], run: str | None) -> dict[str, Any]:
    """What a learner watches, with the names of features, as far as the run has stored them."""
    movers = watch.get("movers", [])
    names = feature_names(run, np.array([int(mover["key"], 16) for mover in movers], np.uint64))
    return watch | {"movers": [{**mover, "value": names.get(int(mover["key"], 16))} for mover in movers]}


def routes(service: "HttpService") -> list[Route]:
    """The routes of the dashboard."""
    dashboard = Dashboard(service)
    static = [Route(f"/dashboard/{name}", dashboard.file) for name in dashboard.files]
    return [
        Route("/", dashboard.page),
        Route("/v1/curves", service.guarded(dashboard.curves)),
        Route("/v1/features", service.guarded(dashboard.features)),
        Route("/v1/watch", service.guarded(dashboard.watch)),
        *static,
    ]


class Dashboard:
    """Answers for the dashboard of a service."""

    def __init__(self, service: "HttpService") -> None:
        self._service = service
        self._reader: tuple[str, CurveReader] | None = None  # of a run
        folder = files(__package__)
        self._shell = Template(folder.joinpath("page.html").read_text(encoding="utf-8"))
        self.files = {item.name: item.read_bytes() for item in folder.iterdir() if item.name.endswith(tuple(TYPES))}
        self.files |= {name: asset(name).encode() for name in SHARED}
        self._features: tuple[float, bytes] = (float("-inf"), b"")  # good until, answer
        self._asked = asyncio.Lock()

    def _local_run(self) -> str | None:
        """The run folder of the default model if it is on this machine; models come and change while the server runs."""
        run = self._service.run
        return None if run is None or "://" in run else run

    def _curves(self) -> CurveReader | None:
        """The reader of the live figures of that run."""
        if (run := self._local_run()) is None:
            return None
        if self._reader is None or self._reader[0] != run:
            self._reader = (run, CurveReader(run))
        return self._reader[1]

    async def page(self, request: Request) -> Response:
        predictor = self._service.predictor
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
        reader = self._curves()
        lines = [] if reader is None else reader.lines()
        last = number(lines[-1]) if lines else 0
        # A number beyond the last one means that the run has started anew: all points are new then.
        fresh = lines if reader is None or int(given) > last else reader.lines(int(given))
        answer = CurvesAnswer(time.time(), last, [msgspec.Raw(line) for line in fresh])
        return Response(msgspec.json.encode(answer), media_type=JSON)

    async def watch(self, request: Request) -> Response:
        run = self._local_run()
        watch = None if run is None else read_watch(run)
        answer = WatchAnswer(time.time(), None if watch is None else watched(watch, run))
        return Response(msgspec.json.encode(answer), media_type=JSON)

    async def features(self, request: Request) -> Response:
        predictor = self._service.predictor
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
