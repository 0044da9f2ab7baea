"""Keeps subscriptions in the registry and in the index: a change is in both before it is acknowledged.

    request -> registry (durable, position from the head tracker) -> delivery (mailbox, live buffer)
            -> indexer (a new index version; changes that come meanwhile share the next) -> head moves -> answer

The compactor merges segments of the index at the same time, and makes index versions too.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np

from culver.control.compactor import Compactor
from culver.disk_reserve import DiskReserve
from culver.errors import CulverError, NotFound, StorageCorrupt, StorageFull, Unavailable
from culver.matching import ClauseTable, Entry, IndexWriter, compile_rows, predicate_of
from culver.model.language import Predicate
from culver.pipeline import HeadTracker
from culver.registry import (
    AssignPosition,
    Block,
    BlockSpec,
    Registration,
    Registry,
    SetSummary,
    SubscriptionSpec,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")

_LONGEST_PAUSE_SECONDS = 5.0
_INDEX_VERSIONS_KEPT = 64


class RegistrationSink(Protocol):
    """The site implements it."""

    def register(self, registrations: Iterable[Registration | Block]) -> None:
        """Registrations were added or ended; called before that takes effect."""

    def head_moved(self) -> None:
        """The tracker's head may have moved."""


class Catalogue:
    """Lives on the event loop. It calls the registry in one thread and the index writer in another, so that changes
    keep their order. `horizon` is the offset below which nothing is ever matched again. On a full disk, changes that
    free space get the `reserve`, and while it is spent, new subscriptions are refused with StorageFull. After
    `quiet_seconds` without a change, the compactor makes the index as compact as it gets."""

    def __init__(
        self,
        registry: Registry,
        index: IndexWriter,
        tracker: HeadTracker,
        sink: RegistrationSink,
        log_end: Callable[[], int],
        horizon: Callable[[], int],
        clock_us: Callable[[], int],
        reserve: DiskReserve,
        quiet_seconds: float = 2.0,
    ) -> None:
        self._registry = registry
        self._index = index
        self._tracker = tracker
        self._sink = sink
        self._log_end = log_end
        self._horizon = horizon
        self._clock_us = clock_us
        self._reserve = reserve
        # The filters of registrations and blocks that are not indexed yet, to save parsing and compiling them again.
        self._predicates: dict[int, Predicate] = {}
        self._tables: dict[int, ClauseTable] = {}
        self._changes: set[asyncio.Task[Any]] = set()
        # The version that must be indexed first, and the numbers of registrations and of blocks.
        self._forgettable: deque[tuple[int, Sequence[int], Sequence[int]]] = deque()
        self._registry_thread = ThreadPoolExecutor(1, "culver-registry")
        self._index_thread = ThreadPoolExecutor(1, "culver-indexer")
        self._compactor = Compactor(
            index, self._index_thread, horizon, self._on_version, reserve, quiet_seconds
        )
        self._changed = asyncio.Event()
        self._indexed = asyncio.Condition()
        self._indexer: asyncio.Task[None] | None = None
        self._closed = False
        self.trouble: str | None = None

    async def start(self) -> None:
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
        self._check_space()
        return await self._register(
            specs, lambda position, now: self._registry.add(specs, position, now), frees=False
        )

    async def add_block(self, spec: BlockSpec) -> Block:
        self._check_space()
        # Compiling checks every value, so it comes first, with numbers from 0 that `_table` moves later.
        table = await asyncio.to_thread(compile_rows, spec.prepared, np.arange(len(spec)), spec.columns)

        def take(added: Block) -> None:
            self._tables[added.number] = table
            self._sink.register([added])

        added = await self._change(
            lambda position, now: self._registry.add_block(spec, position, now), take, frees=False
        )
        await self._until_indexed([added])
        return replace(added, values=b"")

    async def replace(self, spec: SubscriptionSpec) -> Registration:
        [added] = await self._register(
            [spec], lambda position, now: [self._registry.replace(spec, position, now)], frees=True
        )
        return added

    async def _register(
        self,
        specs: Sequence[SubscriptionSpec],
        change: Callable[[AssignPosition, int], list[Registration]],
        *,
        frees: bool,
    ) -> list[Registration]:
        def take(added: list[Registration]) -> None:
            for registration, spec in zip(added, specs, strict=True):
                self._predicates[registration.number] = spec.predicate
            self._sink.register(added)

        added = await self._change(change, take, frees=frees)
        await self._until_indexed(added)
        return added

    async def remove(self, subscription: str) -> Registration:
        ended = await self._change(
            lambda position, now: self._registry.remove([subscription], position, now),
            self._sink.register,
            frees=True,
        )
        if not ended:
            raise NotFound(f"there is no subscription {subscription!r}", field="subscription")
        return ended[0]

    async def remove_set(self, name: str) -> int:
        """Returns how many subscriptions have ended. Raises NotFound."""
        ended = await self._change(
            lambda position, now: self._registry.remove_set(name, position, now),
            self._sink.register,
            frees=True,
        )
        if not ended:
            raise NotFound(f"there is no set {name!r}", field="name")
        return sum(len(each.numbers()) if isinstance(each, Block) else 1 for each in ended)

    async def remove_expired(self, now_us: int) -> None:
        """Remove what expires at or before a time."""
        await self._change(
            lambda position, _: self._registry.remove_expired(position, now_us),
            self._sink.register,
            frees=True,
        )

    async def get(self, subscription: str) -> Registration:
        return await self._in_registry_thread(lambda: self._registry.get(subscription))

    async def page(self, after: str | None, limit: int) -> list[Registration]:
        return await self._in_registry_thread(lambda: self._registry.page(after, limit))

    async def sets(self, after: str | None, limit: int) -> list[SetSummary]:
        return await self._in_registry_thread(lambda: self._registry.sets(after, limit))

    async def count(self) -> int:
        return await self._in_registry_thread(self._registry.count)

    def registrations(self) -> Iterator[Registration | Block]:
        """All registrations that are not forgotten yet; see `Registry.registrations`. Blocks, in any thread."""
        return self._registry.registrations()

    def new_predicate(self, number: int) -> Predicate | None:
        """The parsed filter of a registration that is not indexed yet."""
        return self._predicates.get(number)

    async def forget(self, numbers: Sequence[int], blocks: Sequence[int] = ()) -> None:
        """Drop ended registrations that delivery no longer needs, as soon as the index knows of their end too: the
        registry cannot tell the index what it has forgotten."""
        if numbers or blocks:
            self._forgettable.append((self._registry.version, numbers, blocks))
        while self._forgettable and self._forgettable[0][0] <= self._index.registry_version:
            _, *known = self._forgettable.popleft()
            await self._in_registry_thread(
                partial(self._with_reserve, partial(self._registry.forget, *known))
            )

    async def redivide(self, divide: Callable[[int], bool]) -> bool:
        """Divide the index anew: call `divide` in the index's thread with the horizon, and return whether it has made
        a version. Changes of subscriptions wait meanwhile, as they do for one another. The division goes on when its
        caller is cancelled."""
        return await self._finish(self._redivide(divide))

    async def _redivide(self, divide: Callable[[int], bool]) -> bool:
        def run() -> tuple[bool, int, int]:
            return divide(horizon), self._index.registry_version, self._index.version

        async with self._compactor.paused():
            horizon = self._horizon()
            changed, *versions = await asyncio.get_running_loop().run_in_executor(self._index_thread, run)
            self._on_version(*versions)
        return changed

    async def retire(self, before_version: int) -> None:
        """Delete index versions that no batch asks for again, and all but the newest few in any case: a batch that
        asks for a deleted one takes the newest, which gives the same answer."""
        before_version = max(before_version, self._index.version - _INDEX_VERSIONS_KEPT)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._index_thread, self._index.retire, before_version)

    async def _in_registry_thread(self, call: Callable[[], T]) -> T:
        if self._closed:
            raise Unavailable("the site is stopping")
        return await asyncio.get_running_loop().run_in_executor(self._registry_thread, call)

    async def _change(
        self, change: Callable[[AssignPosition, int], T], take: Callable[[T], None], *, frees: bool
    ) -> T:
        """Make a change in the registry and tell everybody who must know. The change goes on when its caller is
        cancelled, because half a change would hold the head for ever. One that `frees` space may use the reserve."""
        return await self._finish(self._commit(change, take, frees))

    async def _finish(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.create_task(work)
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        return await asyncio.shield(task)

    async def _commit(
        self, change: Callable[[AssignPosition, int], T], take: Callable[[T], None], frees: bool
    ) -> T:
        def run() -> T:
            versions: list[int] = []

            def position(version: int) -> int:
                versions.append(version)
                return self._tracker.register(version, self._log_end())

            try:
                return change(position, self._clock_us())
            finally:
                for version in versions:
                    if version > self._registry.version:  # the transaction was rolled back
                        self._tracker.withdraw(version)

        try:
            result = await self._in_registry_thread(partial(self._with_reserve, run) if frees else run)
        except BaseException:
            self._sink.head_moved()  # the head may have been held for a moment
            raise
        take(result)
        self._changed.set()
        return result

    def _with_reserve(self, work: Callable[[], T]) -> T:
        """Do the work again with the reserve, where the disk is full."""
        try:
            return work()
        except StorageFull:
            self._reserve.give_up()
            return work()

    def _check_space(self) -> None:
        if self._reserve.spent:
            raise StorageFull(
                "the disk is full, and what is left is kept for freeing space; remove subscriptions, lower the "
                "limits of their mailboxes or acknowledge deliveries"
            )

    async def _until_indexed(self, added: Sequence[Registration | Block]) -> None:
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
                # Until this works, the head stays where the first change takes effect, and events wait in the log.
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
            ended = [(block.numbers(), block.until or 0) for block in changes.ended_blocks]

            def publish() -> tuple[int, int]:
                added, tables = self._compile(changes.added)
                self._with_reserve(
                    lambda: self._index.publish(changes.version, added, changes.ended, horizon, tables, ended)
                )
                return changes.version, self._index.version

            self._on_version(*await loop.run_in_executor(self._index_thread, publish))
            self._compactor.published()
        async with self._indexed:
            self._indexed.notify_all()

    def _compile(self, added: Iterable[Registration | Block]) -> tuple[list[Entry], list[ClauseTable]]:
        """Parse and compile, in the index's thread, what nobody has yet."""
        entries: list[Entry] = []
        tables: list[ClauseTable] = []
        for each in added:
            try:
                if isinstance(each, Block):
                    tables.append(_table(each, self._tables.pop(each.number, None)))
                else:
                    predicate = self._predicates.pop(each.number, None)
                    predicate = predicate or predicate_of(each.filter, each.scheme)
                    entries.append(Entry(each.number, predicate, each.since, each.scheme))
            except (CulverError, ValueError) as exc:
                kind = "block" if isinstance(each, Block) else "registration"
                raise StorageCorrupt(
                    f"{kind} {each.number} in the registry {self._registry.location} cannot be compiled: {exc}. "
                    "Restore the file from a copy, or go on without it: `culver rescue`",
                    path=self._registry.location,
                ) from exc
        return entries, tables

    def _on_version(self, registry_version: int, index_version: int) -> None:
        self._tracker.indexed(registry_version, index_version, self._index.placement.slices)
        self._sink.head_moved()


def _table(block: Block, compiled: ClauseTable | None) -> ClauseTable:
    """The compiled members of a block; `compiled` has all its rows, with numbers from 0."""
    if compiled is None:
        compiled = compile_rows(block.prepared(), np.arange(block.count), block.columns())
    numbers = compiled.numbers + block.number
    table = replace(compiled, numbers=numbers, since=np.full(len(numbers), block.since))
    return table if not len(block.holes) else table.select_registrations(~np.isin(numbers, block.holes))
