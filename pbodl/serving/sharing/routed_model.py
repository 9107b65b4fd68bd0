"""A model whose rows are on other servers, as a router has it: weights without rows, and the rows that requests have needed.

A version never changes. So a row that was fetched once is good for as long as the version is served, and so is the answer that a
key has no row. The next version begins with the rows of the ads that were lately asked for; then it takes over.
"""

import asyncio
import logging
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pbodl.data.table.feature_table import Table
from pbodl.errors import InputError
from pbodl.models.sharded_state import shard_of
from pbodl.serving.models.follower import Version, model_of
from pbodl.serving.models.predictor_source import ready
from pbodl.serving.models.shared_versions import Announcement
from pbodl.serving.scoring.packed_rows import COLUMN, PackedLayout, PackedTable
from pbodl.serving.scoring.predictor import Predictor
from pbodl.serving.scoring.request_encoding import Encoded
from pbodl.serving.sharing.share_client import ShareClient, ShareDown, VersionGone
from pbodl.serving.sharing.share_messages import FoundRows, ShareState
from pbodl.system.tensors import unpack

MOST_ROWS = 2_000_000  # keys that a version remembers; with more, it begins anew
AT_ONCE = 5_000  # keys in a request to a shard while a version is prepared
logger = logging.getLogger("pbodl.serving")


class RoutedTable(PackedTable):
    """The rows that were fetched. `asked` has all keys that were asked for."""

    def __init__(self, layout: PackedLayout) -> None:
        super().__init__(layout)
        self.asked = Table({})

    def unknown(self, keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Which keys were not asked for yet, each once."""
        return np.unique(keys[self.asked.find(keys) < 0])

    def take(self, found: FoundRows) -> None:
        """Add rows, unless they are here."""
        fresh = self.asked.find(found.keys) < 0
        self.asked.insert(found.keys)
        chosen = fresh[found.places]
        at = self.insert(found.keys[found.places[chosen]])
        self.column(COLUMN)[at] = found.weights[chosen]
        self.last_seen[at] = found.last_seen[chosen]


class RoutedVersion(Version):
    """A version whose rows are elsewhere."""

    def __init__(self, told: Announcement, features: int) -> None:
        model = model_of(told.kind, told.schema, told.spec, unpack(told.state))
        super().__init__(told.number, model, RoutedTable(PackedLayout(*told.table["layout"])), told.published_at, told.facts)
        self._counters = {**told.table["counters"], "features": features}

    @property
    def counters(self) -> dict[str, int]:
        return self._counters

    @property
    def rows(self) -> RoutedTable:
        assert isinstance(self.table, RoutedTable)
        return self.table


class RoutedModel:
    """The source of a router's predictors. It answers for a dead shard with the prior, if `lenient`.

    predictor  of the newest version that all shards have
    waiting    why there is no predictor, or no newer one
    """

    def __init__(self, clients: Sequence[ShareClient], lenient: bool = False) -> None:
        self.clients, self.lenient = clients, lenient
        self.order: list[ShareClient] = []  # by the numbers of their shares
        self.predictor: Predictor | None = None
        self.waiting = "the shards were not asked yet"
        self.troubles = {"damaged": 0, "missing": 0}
        self.degraded = 0  # answers without the rows of a dead shard
        self._told: Announcement | None = None
        self._features = 0
        self._stale = False  # whether rows are missing that a shard now has
        self._looking = asyncio.Lock()

    @property
    def version(self) -> int | None:
        return None if self.predictor is None else self.predictor.version.number

    async def look(self) -> None:
        """Ask all shards which versions they have, and go on to the newest that is common to them."""
        async with self._looking:
            states = await asyncio.gather(*map(self._state, self.clients))
            alive = [(client, state) for client, state in zip(self.clients, states, strict=True) if state is not None]
            try:
                self._check(alive)
                await self._follow(alive)
            except VersionGone:
                return  # a shard has just gone on to a newer one; the next look finds that
            except (InputError, ShareDown) as error:
                self._wait(str(error))

    def _wait(self, why: str) -> None:
        if why != self.waiting:
            logger.warning("%s", why)
        self.waiting = why

    async def _state(self, client: ShareClient) -> ShareState | None:
        try:
            state = await client.state(self.version)
        except (ShareDown, VersionGone) as error:
            if client.down is None:
                logger.warning("the shard at %s is down: %s", client.url, error)
            client.down = str(error)
            return None
        if client.down is not None:
            logger.warning("the shard at %s answers: share %d of %d", client.url, state.number, state.shares)
        client.down = None
        return state

    def _check(self, alive: list[tuple[ShareClient, ShareState]]) -> None:
        """Check that the shards are the shares of one model."""
        count = len(self.clients)
        numbers = {client: state.number for client, state in alive}
        for _, state in alive:
            if state.shares != count or list(numbers.values()).count(state.number) > 1:
                listed = ", ".join(f"{one.url} has {own.number}/{own.shares}" for one, own in alive)
                raise InputError(f"{count} --shard addresses are given, which must have 0/{count} to {count - 1}/{count}: {listed}")
        if len(alive) == count:
            self.order = sorted(self.clients, key=numbers.__getitem__)
        dead = [client for client in self.clients if client.down is not None]
        if dead and (not self.lenient or not self.order or not alive):
            raise ShareDown(f"the shard at {dead[0].url} does not answer ({dead[0].down})")

    async def _follow(self, alive: list[tuple[ShareClient, ShareState]]) -> None:
        common = set.intersection(*(set(state.versions) for _, state in alive))
        if not common:
            listed = ", ".join(f"{client.url}: {state.versions[0][0]}" for client, state in alive)
            raise ShareDown(f"the shards have no version in common, for now ({listed})")
        self._features = sum(state.features for _, state in alive)
        number, moment = max(common)
        before = self.predictor
        if before is None or (number, moment) != (before.version.number, before.version.published_at):
            self._told = await alive[0][0].model(number)
            if self._told.published_at != moment:
                raise ShareDown("the shards serve different models under one number")
            if before is None:  # compiles, where it must; what it remembers is not used
                await asyncio.to_thread(ready, self._new(self._told))
            await self._take_over(self._told, before)
        elif (self._stale and len(alive) == len(self.clients)) or _rows(before).asked.size > MOST_ROWS:
            assert self._told is not None
            await self._take_over(self._told, None)
        self.waiting = ""

    def _new(self, told: Announcement) -> Predictor:
        return Predictor(RoutedVersion(told, self._features))

    async def _take_over(self, told: Announcement, before: Predictor | None) -> None:
        """Prepare a predictor, and put it into service."""
        predictor, stale = self._new(told), False
        if before is not None and before.schema == predictor.schema:
            keys = np.unique(before.lately().reshape(-1))
            for start in range(0, len(keys), AT_ONCE):
                stale |= not await self._fetch(predictor, keys[start : start + AT_ONCE])
            await asyncio.to_thread(predictor.recall, before)
        self.predictor, self._stale = predictor, stale

    async def fetch(self, predictor: Predictor, shared: Encoded, own: Encoded) -> None:
        """Fetch the rows that a request needs and that are not here; ShareDown or VersionGone if that cannot be."""
        own = predictor.encoder.crossed(shared, own)
        keys = _rows(predictor).unknown(np.concatenate([shared.keys.reshape(-1), own.keys.reshape(-1)]))
        if len(keys) and not await self._fetch(predictor, keys):
            self.degraded += 1
            self._stale = True

    async def _fetch(self, predictor: Predictor, keys: NDArray[np.uint64]) -> bool:
        """Fetch rows; returns whether all shards gave theirs."""
        table, version = _rows(predictor), predictor.version.number
        shares = shard_of(keys, len(self.order))
        asked = [(client, keys[shares == number]) for number, client in enumerate(self.order)]
        calls = [self._rows_of(client, version, own, table) for client, own in asked if len(own)]
        found = await asyncio.gather(*calls)
        for rows in found:
            if rows is not None:
                table.take(rows)
        return None not in found

    async def _rows_of(self, client: ShareClient, version: int, keys: NDArray[np.uint64], table: RoutedTable) -> FoundRows | None:
        try:
            if client.down is not None:
                raise ShareDown(client.down)
            return await client.rows(version, keys, table.layout.width)
        except ShareDown as error:
            client.down = str(error)
            if self.lenient:
                return None
            raise ShareDown(f"the shard at {client.url} does not answer ({error})") from error


def _rows(predictor: Predictor) -> RoutedTable:
    version = predictor.version
    assert isinstance(version, RoutedVersion)
    return version.rows
