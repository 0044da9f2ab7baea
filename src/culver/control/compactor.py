"""Keeps the index compact while it is in use: plans, runs and installs compactions, one after another.

publication --> compact what is due --> nothing published for a while --> compact all that is worth it
     ^                  |                                                             |
     +------------------+------------------ publication ------------------------------+
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import TypeVar

from culver.disk_reserve import DiskReserve
from culver.matching import Compaction, IndexWriter

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Compactor:
    """Lives on the event loop. The heavy part runs in a thread of its own; like everybody else, it calls the writer
    in `index_thread` only. It calls `on_version` with the registry version and the index version of every version
    that it makes."""

    def __init__(
        self,
        index: IndexWriter,
        index_thread: Executor,
        horizon: Callable[[], int],
        on_version: Callable[[int, int], None],
        reserve: DiskReserve,
        quiet_seconds: float,
    ) -> None:
        self._index = index
        self._index_thread = index_thread
        self._horizon = horizon
        self._on_version = on_version
        self._reserve = reserve
        self._quiet_seconds = quiet_seconds
        self._thread = ThreadPoolExecutor(1, "culver-compactor")
        self._published = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._compacting = asyncio.Lock()
        self._current: Compaction | None = None

    def start(self) -> None:
        self._published.set()  # the last run may have left something to do
        self._task = asyncio.create_task(self._run())

    def published(self) -> None:
        self._published.set()

    @contextlib.asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """Compact nothing inside this context; a compaction under way stops after its current step."""
        if self._current is not None:
            self._current.cancel()
        try:
            async with self._compacting:
                yield
        finally:
            self._published.set()  # the abandoned compaction is due again

    async def close(self) -> None:
        """Stops a compaction under way after its current step."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await asyncio.to_thread(self._thread.shutdown)

    async def _run(self) -> None:
        while True:
            await self._published.wait()
            while self._published.is_set():
                self._published.clear()
                await self._compact(quiet=False)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._quiet_seconds):
                        await self._published.wait()
            await self._compact(quiet=True)

    async def _compact(self, quiet: bool) -> None:
        try:
            more = True
            while more and not self._reserve.spent:
                async with self._compacting:
                    more = await self._compact_once(quiet)
        except Exception:
            # Only speed depends on a compaction, and the next publication is the next attempt.
            logger.exception("a compaction of the index failed; the index stays as it was")

    async def _compact_once(self, quiet: bool) -> bool:
        """Returns whether there was anything to compact."""
        horizon = self._horizon()
        compaction = await self._in_index_thread(lambda: self._index.plan_compaction(horizon, quiet))
        if compaction is None:
            return False
        self._current = compaction

        def install() -> tuple[int, int]:
            self._index.install(compaction)
            return self._index.registry_version, self._index.version

        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, compaction.run)
            if not compaction.done:
                await self._in_index_thread(lambda: self._index.abandon(compaction))
                return False
            self._on_version(*await self._in_index_thread(install))
        except asyncio.CancelledError:
            compaction.cancel()
            raise
        except Exception:
            await self._in_index_thread(lambda: self._index.abandon(compaction))
            raise
        finally:
            self._current = None
        return True

    async def _in_index_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._index_thread, call)
