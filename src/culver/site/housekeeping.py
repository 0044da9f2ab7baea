"""The work that a site does about once a second: it removes, trims and retires what nobody needs any more."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

from culver.control import ElasticSlices, SliceMeter, Slices
from culver.site.site_observer import SiteObserver
from culver.site.site_parts import SiteParts

logger = logging.getLogger(__name__)

_PAUSE_SECONDS = 1.0


class Housekeeping:
    def __init__(
        self,
        parts: SiteParts,
        observer: SiteObserver,
        meter: SliceMeter,
        slices: Slices,
        clock_us: Callable[[], int],
    ) -> None:
        self._parts = parts
        self._observer = observer
        self._meter = meter
        self._slices = slices
        self._clock_us = clock_us

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(repeated(self.keep_house, _PAUSE_SECONDS))
            if isinstance(self._slices, ElasticSlices):
                await stack.enter_async_context(repeated(self._slices.tick, _PAUSE_SECONDS))
            yield

    async def keep_house(self) -> None:
        """Go through everything once."""
        parts, hub, group = self._parts, self._parts.hub, self._parts.group
        pipeline = parts.engine.observe()
        self._meter.observe(time.monotonic(), parts.log.next_offset, pipeline.position, pipeline.slices)
        await parts.catalogue.remove_expired()
        await parts.live.try_again()
        self._observer.subscriptions = await parts.catalogue.count()
        finished = group.take_finished(await hub.housekeep(self._clock_us()))
        await parts.catalogue.forget(finished.numbers, finished.blocks)
        needed = min(hub.frontier, hub.needed_from(), group.needed_from())
        await asyncio.to_thread(parts.log.trim, needed)
        await parts.catalogue.retire(hub.index_version)
        # This comes last because it writes: a full disk must not keep the steps above from making room.
        parts.engine.tell(replace(pipeline.load, registrations=self._observer.subscriptions))


@contextlib.asynccontextmanager
async def repeated(work: Callable[[], Awaitable[None]], first_after_seconds: float) -> AsyncIterator[None]:
    """Do `work` about once a second beside the body. A failure is logged, and the work is tried again."""

    async def repeat() -> None:
        pause_seconds = first_after_seconds
        while True:
            await asyncio.sleep(pause_seconds)
            pause_seconds = _PAUSE_SECONDS
            try:
                await work()
            except Exception:
                logger.exception("housekeeping failed and is tried again")

    task = asyncio.create_task(repeat())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
