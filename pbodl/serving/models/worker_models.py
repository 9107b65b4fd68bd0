"""The models of a worker: what the process that follows them tells it on a control pipe.

("add", name, run, pipe)   a model, whose versions come through a pipe of its own; one that is there is replaced when loaded
("remove", name)
("traffic", traffic)       who answers what
"""

import logging
import threading
from multiprocessing.connection import Connection

from pbodl.serving.models.followed_models import ADD, REMOVE, TRAFFIC
from pbodl.serving.models.served_models import ServedModels, TrafficPlan
from pbodl.serving.models.shared_versions import Announced

logger = logging.getLogger("pbodl.serving")


class WorkerModels(ServedModels):
    """The models that a worker was told of."""

    def __init__(self, control: Connection, keeps: bool = False) -> None:
        self._keeps = keeps  # the version before the newest
        super().__init__({}, TrafficPlan())
        self.begun = threading.Event()  # set when a model is loaded, or the follower has ended
        self.gone = threading.Event()  # set when the follower has ended
        self._control = control
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        try:
            while True:
                what, *rest = self._control.recv()
                if what == ADD:
                    self._add(*rest)
                elif what == REMOVE:
                    self._remove(*rest)
                elif what == TRAFFIC:
                    self.traffic = rest[0]
        except (EOFError, OSError):
            pass
        finally:
            self.gone.set()
            self.begun.set()

    def _add(self, name: str, run: str, pipe: Connection) -> None:
        before = self.sources.get(name)
        source = Announced(pipe, None if before is None else before.predictor, self._keeps)
        self.runs = self.runs | {name: run}
        self.sources = self.sources | {name: source}
        threading.Thread(target=self._watch, args=(name, source), daemon=True).start()

    def _watch(self, name: str, source: Announced) -> None:
        source.changed.wait()
        self.begun.set()
        source.gone.wait()
        source.end()  # the follower notices, and tries again through another pipe; the last version stays in service

    def _remove(self, name: str) -> None:
        self.sources = {other: source for other, source in self.sources.items() if other != name}
        self.runs = {other: run for other, run in self.runs.items() if other != name}
