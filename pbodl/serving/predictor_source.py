"""Where a server's predictor comes from: one that stays, or a run that is followed in the background."""

import logging
import os
import threading
from typing import Protocol

import msgspec

from pbodl.serving.follower import Follower
from pbodl.serving.http_messages import JSON, MSGPACK, wire_of
from pbodl.serving.scoring.predictor import Predictor

POLL_EVERY = 0.25  # seconds
logger = logging.getLogger("pbodl.serving")


class PredictorSource(Protocol):
    """Offers the newest predictor, None before the first."""

    @property
    def predictor(self) -> Predictor | None: ...

    @property
    def troubles(self) -> dict[str, int]:
        """How many publications were damaged, and how many missing."""
        ...


class Fixed:
    """A predictor that stays."""

    def __init__(self, predictor: Predictor | None) -> None:
        self.predictor = predictor
        self.troubles = {"damaged": 0, "missing": 0}


class Following:
    """A run or a model folder, followed by a thread of this process.

    >>> import pbodl, tempfile
    >>> model = pbodl.FMMLP(pbodl.Schema(label="click", fields=[pbodl.Field("ad", group="ad")]), dim=2, hidden=())
    >>> with tempfile.TemporaryDirectory() as run:
    ...     _ = model.save(run)
    ...     with Following(run) as source:
    ...         source.predictor.version.number
    1
    """

    def __init__(self, run: str | os.PathLike, poll_every: float = POLL_EVERY) -> None:
        self.predictor: Predictor | None = None
        self._follower = Follower(run)
        self._poll_every = poll_every
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="follower", daemon=True)

    @property
    def troubles(self) -> dict[str, int]:
        return {"damaged": self._follower.damaged, "missing": self._follower.missing}

    def __enter__(self) -> "Following":
        self.poll()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def poll(self) -> None:
        """Look for a newer version now."""
        if self._follower.poll() and self._follower.version is not None:
            self.predictor = ready(Predictor(self._follower.version), self.predictor)

    def _follow(self) -> None:
        while not self._stop.wait(self._poll_every):
            try:
                self.poll()
            except Exception:
                logger.exception("following %s failed; going on with the version that is there", self._follower.run)


def ready(predictor: Predictor, before: Predictor | None = None) -> Predictor:
    """The predictor after it has scored once, so that no request waits for code to be loaded or compiled, and knows the ads that
    the one before it was asked for."""
    names = [field.name for field in predictor.encoder.own if field.kind == "category"]
    texts = [dict.fromkeys(names, "a text"), dict.fromkeys(names, "another")]
    predictor.score({}, {}, texts)
    predictor.score({}, {}, [dict.fromkeys(names, 1)])
    for kind, encode in ((JSON, msgspec.json.encode), (MSGPACK[0], msgspec.msgpack.encode)):
        wire_of(predictor.schema).read(encode({"candidates": texts}), kind)
    if before is not None:
        predictor.recall(before)
    return predictor
