"""The inline engine: the operators in a thread of the site's own process, for milliseconds of latency.

It hands a range on without waiting for the disk: the log has the events, and after a power cut what is missing is
matched again. `secure` catches up with the disk about once a second.
"""

import asyncio
import logging
import threading
import time
from pathlib import Path

from culver.matching import warm_up
from culver.pipeline import notifications
from culver.pipeline.engine import Progress
from culver.pipeline.head import Head
from culver.pipeline.notifications import Notifications, NotificationSink, file_name
from culver.pipeline.ranges import RangeProcessor, SiteFiles

logger = logging.getLogger(__name__)

_LONGEST_PAUSE_SECONDS = 5.0


class InlineEngine:
    name = "inline"

    def __init__(
        self, files: SiteFiles, sink: NotificationSink, head: Head, batch_events: int, progress: Progress
    ) -> None:
        self._files = files
        self._sink = sink
        self._batch_events = batch_events
        self._progress = progress
        self._head = head
        self._position = head.frontier
        self._accepted = self._secured = head.frontier  # of the loop's thread alone, like `_unsynced`
        self._unsynced: list[Path] = []
        self._changed = threading.Condition()
        self._stopping = False
        self._ready = False
        self._trouble: str | None = None
        self._thread = threading.Thread(target=self._run, name="culver-inline-engine", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def ready(self) -> bool:
        return self._ready and self._trouble is None

    @property
    def state(self) -> str:
        return self._trouble or ("running" if self._ready else "starting")

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._progress("loading the matching kernels")
        self._thread.start()

    def follow(self, head: Head) -> None:
        with self._changed:
            self._head = head
            self._changed.notify()

    async def secure(self) -> int:
        if self._unsynced:
            paths, self._unsynced = self._unsynced, []
            position = self._accepted
            await asyncio.to_thread(notifications.sync, self._files.notifications, paths)
            self._secured = position
        return self._secured

    async def stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        warm_up()
        processor = RangeProcessor(self._files)
        self._ready = True
        pause_seconds = 0.1
        while (head := self._next_head()) is not None:
            end = min(head.log_end, self._position + self._batch_events)
            try:
                result = processor.process(self._position, end, head.index_version, durable=False)
                if result is not None:
                    self._hand_on(result)
                self._position = end
                self._trouble, pause_seconds = None, 0.1
            except Exception as exc:
                self._trouble = f"cannot match events {self._position} to {end}: {exc}"
                logger.exception("the inline engine tries again in %.1f s", pause_seconds)
                time.sleep(pause_seconds)
                pause_seconds = min(2 * pause_seconds, _LONGEST_PAUSE_SECONDS)
        processor.close()

    def _next_head(self) -> Head | None:
        with self._changed:
            while not self._stopping and self._head.log_end <= self._position:
                self._changed.wait()
            return None if self._stopping else self._head

    def _hand_on(self, result: Notifications) -> None:
        """Wait until the sink has taken it, so that the engine never runs ahead of delivery."""
        assert self._loop is not None
        done = threading.Event()

        def accept() -> None:
            try:
                self._sink.accept(result)
                self._unsynced.append(self._files.notifications / file_name(result.start, result.end))
                self._accepted = result.end
            finally:
                done.set()

        self._loop.call_soon_threadsafe(accept)
        while not done.wait(1.0):
            if self._stopping:
                return
