"""The models of a server, as the process sees them that follows their folders and feeds the workers.

Every model has a thread that looks for its newer versions, and a pipe to every worker, at whose other end a thread of the worker
loads them: one model's load never holds up another's, and one that fails leaves the others alone.
"""

import logging
import multiprocessing
import os
import time
from concurrent.futures import Future
from multiprocessing.connection import Connection
from pathlib import Path

from pbodl.errors import InputError
from pbodl.serving.models.background import background
from pbodl.serving.models.follower import Version
from pbodl.serving.models.parts_follower import WHOLE, PartsFollower, RowShare
from pbodl.serving.models.predictor_source import ready
from pbodl.serving.models.served_models import TrafficPlan
from pbodl.serving.models.shared_versions import ServingWorker
from pbodl.serving.scoring.whole_predictor import predictor_of

POLL_EVERY = 0.25  # seconds between looks for a newer version in a local folder
ASK_EVERY = 1.0  # seconds between looks into an object store, where every look costs money
PAUSE = 1.0  # seconds between the failure of a load in a worker, and the next attempt
ADD, REMOVE, TRAFFIC = "add", "remove", "traffic"  # what a worker is told on its control pipe
logger = logging.getLogger("pbodl.serving")


class FollowedModel:
    """A run, followed by a thread of its own.

    prepared  whether to compile here what its kind needs, before workers load it: they answer requests for other models meanwhile
    """

    def __init__(self, name: str, run: str, memory: str, prepared: bool, share: RowShare = WHOLE) -> None:
        self.name, self.run, self.memory, self._prepared = name, run, memory, prepared
        self.follower = PartsFollower(run, share)
        self.version: Version | None = None  # the newest in shared memory
        self._every = ASK_EVERY if "://" in run else POLL_EVERY
        self._thread = background(f"follower of {name}")
        self._looking: Future[None] | None = None
        self._next = 0.0

    @property
    def troubles(self) -> dict[str, int]:
        return {"damaged": self.follower.damaged, "missing": self.follower.missing}

    def look(self) -> None:
        """Look for a newer version now, and move it into shared memory; InputError if it cannot be served."""
        if self.follower.poll() and (version := self.follower.version) is not None:
            try:
                version.table.share(self.memory)
            except OSError as error:
                raise InputError(
                    f"version {version.number} does not fit into {Path(self.memory).parents[2]} ({error.strerror}); make it"
                    " larger (in a container: --shm-size): it must hold the model twice"
                ) from error
            if self._prepared:
                self._prepared = False
                ready(predictor_of(version))
            self.version = version

    def poll(self) -> None:
        """Have the thread look, if it is time, and tell how the last look ended; returns at once."""
        if self._looking is None:
            if time.monotonic() >= self._next:
                self._looking = self._thread.submit(self.look)
        elif self._looking.done():
            self.told()

    def told(self) -> None:
        """Wait for the thread, and tell how it ended."""
        looking, self._looking = self._looking, None
        self._next = time.monotonic() + self._every
        try:
            if looking is not None:
                looking.result()
        except InputError as error:
            logger.error("model %s: %s; still serving the version before, if there is one", self.name, error)
        except Exception:
            logger.exception("following %s failed; still serving the version before, if there is one", self.run)

    def about(self) -> str:
        version = self.version
        return f"no model in {self.run} yet" if version is None else f"{version.model.kind}, version {version.number}"

    def end(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)


class WorkerLink:
    """A worker, as the follower sees it: a control pipe, and a pipe for each model."""

    def __init__(self, control: Connection) -> None:
        self._control = control
        self._ends: dict[str, ServingWorker] = {}
        self._not_before: dict[str, float] = {}
        self._traffic: TrafficPlan | None = None

    @property
    def connections(self) -> list[Connection]:
        return [end.connection for end in self._ends.values()]

    def ready(self, models: dict[str, FollowedModel]) -> bool:
        """Whether the worker has loaded a version of every model that has one."""
        having = [name for name, model in models.items() if model.version is not None]
        return all(name in self._ends and self._ends[name].ready for name in having)

    def exchange(self, models: dict[str, FollowedModel], traffic: TrafficPlan) -> None:
        """Tell the worker what is new, and hear what it reports; OSError if the worker is dying."""
        for name in [name for name in self._ends if name not in models]:
            self._ends.pop(name).connection.close()
            self._control.send((REMOVE, name))
        for name, model in models.items():
            if name not in self._ends and time.monotonic() >= self._not_before.get(name, 0.0):
                ours, theirs = multiprocessing.get_context("spawn").Pipe()
                self._control.send((ADD, name, model.run, theirs))
                theirs.close()
                self._ends[name] = ServingWorker(ours)
        if traffic != self._traffic and all(name in self._ends for name in models):
            self._control.send((TRAFFIC, traffic))
            self._traffic = traffic
        for name, end in list(self._ends.items()):
            model = models[name]
            try:
                version = model.version
                if version is not None:
                    end.tell(version, model.memory, model.troubles)
                end.hear()
            except (OSError, EOFError):  # the worker could not load a version, or is dying
                self._ends.pop(name).connection.close()
                self._not_before[name] = time.monotonic() + PAUSE

    def forget(self, names: set[str]) -> None:
        """Begin anew with models that are now followed elsewhere; the worker keeps the last versions until it has others."""
        for name in names & self._ends.keys():
            self._ends.pop(name).connection.close()

    def close(self) -> None:
        for end in self._ends.values():
            end.connection.close()
        self._control.close()


def check_folder(run: str) -> None:
    """InputError unless a run is an address, or a folder that is there."""
    if "://" not in run and not Path(run).is_dir():
        raise InputError(f"there is no folder {run}; give the folder that `pbodl train --out` or a publisher writes")


def followed(name: str, run: str, memory: str, prepared: bool, share: RowShare = WHOLE) -> FollowedModel:
    """A model to follow; InputError if there is no such folder."""
    check_folder(run)
    folder = f"{memory}/models/{name}"
    os.makedirs(folder, exist_ok=True)
    return FollowedModel(name, run, folder, prepared, share)
