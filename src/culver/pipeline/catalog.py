"""Subscriptions in the registry and in the index: a change is in both before it is acknowledged.

request -> registry (durable, position from the head tracker) -> delivery (mailbox, live buffer)
        -> indexer (a new index version; changes that come meanwhile share the next) -> head moves -> answer

Beside that, the compactor merges segments of the index, which makes index versions too.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol, TypeVar

from culver.config import FilterSettings
from culver.errors import NotFound, Unavailable
from culver.matching.index import Entry, IndexWriter
from culver.model.language import parse
from culver.model.predicate import Predicate
from culver.pipeline.compactor import Compactor
from culver.pipeline.head import HeadTracker
from culver.registry.registry import Position, Registration, Registry, SubscriptionSpec

logger = logging.getLogger(__name__)

T = TypeVar("T")

_LONGEST_PAUSE_SECONDS = 5.0
_VERSIONS_KEPT = 64  # of the index, at most

# Filters were checked against the settings when they came in; the limits may have been lowered since.
_UNLIMITED = FilterSettings(*(2**31,) * 5)


class RegistrationSink(Protocol):
    """Implemented by delivery: told of every registration that is added or ended, before it takes effect."""

    def register(self, registrations: Iterable[Registration]) -> None: ...


class Catalog:
    """Lives on the event loop; the registry and the index writer are called in one thread of their own each,
    so that changes keep their order. `horizon` is the offset below which nothing is ever matched again. After
    `quiet_seconds` without a change the index is made as compact as it gets."""

    def __init__(
        self,
        registry: Registry,
        index: IndexWriter,
        tracker: HeadTracker,
        sink: RegistrationSink,
        log_end: Callable[[], int],
        horizon: Callable[[], int],
        on_head_moved: Callable[[], None],
        clock_us: Callable[[], int],
        quiet_seconds: float = 2.0,
    ) -> None:
        self._registry = registry
        self._index = index
        self._tracker = tracker
        self._sink = sink
        self._log_end = log_end
        self._horizon = horizon
        self._on_head_moved = on_head_moved
        self._clock_us = clock_us
        self._predicates: dict[int, Predicate] = {}  # of registrations not indexed yet, to save parsing again
        self._changes: set[asyncio.Task[Any]] = set()
        self._forgettable: deque[tuple[int, Sequence[int]]] = (
            deque()
        )  # with the version that must be indexed first
        self._registry_thread = ThreadPoolExecutor(1, "culver-registry")
        self._index_thread = ThreadPoolExecutor(1, "culver-indexer")
        self._compactor = Compactor(index, self._index_thread, horizon, self._on_version, quiet_seconds)
        self._changed = asyncio.Event()
        self._indexed = asyncio.Condition()
        self._indexer: asyncio.Task[None] | None = None
        self._closed = False
        self.trouble: str | None = None

    async def start(self) -> None:
        """Bring the index up to the registry's version, then follow it."""
        await self._index_changes()
        self._indexer = asyncio.create_task(self._follow())
        self._compactor.start()

    async def close(self) -> None:
        if self._changes:
            await asyncio.wait(self._changes)
        self._closed = True
        if self._indexer is not None:
            self._indexer.cancel()
            await asyncio.gather(self._indexer, return_exceptions=True)
        async with self._indexed:
            self._indexed.notify_all()
        await self._compactor.close()
        self._registry_thread.shutdown()
        self._index_thread.shutdown()

    async def add(self, specs: Sequence[SubscriptionSpec]) -> list[Registration]:
        def take(added: list[Registration]) -> None:
            for registration, spec in zip(added, specs, strict=True):
                self._predicates[registration.number] = spec.predicate
            self._sink.register(added)

        added = await self._change(lambda position, now: self._registry.add(specs, position, now), take)
        await self._until_indexed(added)
        return added

    async def replace(self, spec: SubscriptionSpec) -> Registration:
        def take(added: Registration) -> None:
            self._predicates[added.number] = spec.predicate
            self._sink.register([added])

        added = await self._change(lambda position, now: self._registry.replace(spec, position, now), take)
        await self._until_indexed([added])
        return added

    async def remove(self, subscription: str) -> Registration:
        ended = await self._change(
            lambda position, now: self._registry.remove([subscription], position, now), self._sink.register
        )
        if not ended:
            raise NotFound(f"there is no subscription {subscription!r}", field="subscription")
        return ended[0]

    async def remove_expired(self) -> None:
        await self._change(self._registry.remove_expired, self._sink.register)

    async def get(self, subscription: str) -> Registration:
        return await self._in_registry_thread(lambda: self._registry.get(subscription))

    async def page(self, after: str | None, limit: int) -> list[Registration]:
        return await self._in_registry_thread(lambda: self._registry.page(after, limit))

    async def count(self) -> int:
        return await self._in_registry_thread(self._registry.count)

    async def forget(self, numbers: Sequence[int]) -> None:
        """Drop ended registrations that delivery has done with, as soon as the index knows of their end too:
        what the registry has forgotten it cannot tell the index any more."""
        if numbers:
            self._forgettable.append((self._registry.version, numbers))
        while self._forgettable and self._forgettable[0][0] <= self._index.registry_version:
            _, known = self._forgettable.popleft()
            await self._in_registry_thread(partial(self._registry.forget, known))

    async def retire(self, before_version: int) -> None:
        """Delete index versions that no batch asks for again, and all but the newest few in any case: whoever
        asks for one of them takes the newest, which gives the same answer."""
        before_version = max(before_version, self._index.version - _VERSIONS_KEPT)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._index_thread, self._index.retire, before_version)

    # ----------------------------------------------------------------------------------------------------

    async def _in_registry_thread(self, call: Callable[[], T]) -> T:
        if self._closed:
            raise Unavailable("the site is stopping")
        return await asyncio.get_running_loop().run_in_executor(self._registry_thread, call)

    async def _change(self, change: Callable[[Position, int], T], take: Callable[[T], None]) -> T:
        """Make a change in the registry and tell everybody who must know. Whoever asked for it may be cancelled
        meanwhile; the change then goes on all the same, for half of it would hold the head for ever."""
        task = asyncio.create_task(self._commit(change, take))
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        return await asyncio.shield(task)

    async def _commit(self, change: Callable[[Position, int], T], take: Callable[[T], None]) -> T:
        def run() -> T:
            versions: list[int] = []

            def position(version: int) -> int:
                versions.append(version)
                return self._tracker.register(version, self._log_end())

            try:
                return change(position, self._clock_us())
            finally:
                for version in versions:
                    if version > self._registry.version:  # it was rolled back
                        self._tracker.withdraw(version)

        try:
            result = await self._in_registry_thread(run)
        except BaseException:
            self._on_head_moved()  # the head may have been held for a moment
            raise
        take(result)
        self._changed.set()
        return result

    async def _until_indexed(self, added: Sequence[Registration]) -> None:
        if not added:
            return
        version = max(registration.version for registration in added)
        async with self._indexed:
            await self._indexed.wait_for(lambda: self._closed or self._index.registry_version >= version)
        if self._index.registry_version < version:
            raise Unavailable(
                "the site is stopping; the subscription is registered and takes effect when it is back"
            )

    async def _follow(self) -> None:
        pause_seconds = 0.1
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._index_changes()
                self.trouble, pause_seconds = None, 0.1
            except Exception as exc:
                # Until it works, the head stays where the first change takes effect: events wait in the log.
                self.trouble = f"cannot write the index: {exc}"
                logger.exception("the indexer tries again in %.1f s", pause_seconds)
                self._changed.set()
                await asyncio.sleep(pause_seconds)
                pause_seconds = min(2 * pause_seconds, _LONGEST_PAUSE_SECONDS)

    async def _index_changes(self) -> None:
        loop = asyncio.get_running_loop()
        changes = await self._in_registry_thread(lambda: self._registry.changes(self._index.registry_version))
        if changes.version > self._index.registry_version:
            horizon = self._horizon()
            known = {r.number: self._predicates.pop(r.number, None) for r in changes.added}

            def publish() -> tuple[int, int]:
                entries = [
                    Entry(r.number, known[r.number] or parse(r.filter, _UNLIMITED), r.since)
                    for r in changes.added
                ]
                self._index.publish(changes.version, entries, changes.ended, horizon)
                return changes.version, self._index.version

            self._on_version(*await loop.run_in_executor(self._index_thread, publish))
            self._compactor.published()
        async with self._indexed:
            self._indexed.notify_all()

    def _on_version(self, registry_version: int, index_version: int) -> None:
        self._tracker.indexed(registry_version, index_version)
        self._on_head_moved()
