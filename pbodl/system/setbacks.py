"""Failures of the operating system that must not end the work, such as a full disk for what is written beside the model."""

import contextlib
import logging
from collections import Counter
from collections.abc import Iterator

from pbodl.errors import WorkError
from pbodl.system.failures import sentence

logger = logging.getLogger(__name__)


class Setbacks:
    """Tells of a failure once when it begins and once when it has passed, and counts.

    counts  by what was tried: how often it failed

    >>> setbacks = Setbacks()
    >>> with setbacks.tolerating("publishing"):
    ...     raise OSError(28, "No space left on device", "models/1.full")
    >>> setbacks.counts, setbacks.lasting
    (Counter({'publishing': 1}), {'publishing'})
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.lasting: set[str] = set()

    @contextlib.contextmanager
    def tolerating(self, what: str) -> Iterator[None]:
        """Within the block, an OSError or a `WorkError` is told, counted and forgotten; the caller tries again later."""
        try:
            yield
        except (OSError, WorkError) as error:
            if what not in self.lasting:
                logger.warning("%s fails: %s; the work continues without it, and tries again", what, sentence(error))
            self.counts[what] += 1
            self.lasting.add(what)
        else:
            if what in self.lasting:
                logger.warning("%s works again", what)
                self.lasting.remove(what)
