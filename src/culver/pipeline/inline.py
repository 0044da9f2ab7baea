"""The inline engine: the operators in a thread of the site's own process, for milliseconds of latency."""

import asyncio
import logging
import threading
import time

from culver.matching import warm_up
from culver.pipeline.engine import Progress
from culver.pipeline.head import Head
from culver.pipeline.notifications import Notifications, NotificationSink
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
                result = processor.process(self._position, end, head.index_version)
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

    def _hand_on(self, notifications: Notifications) -> None:
        """Wait until the sink has taken it, so that the engine never runs ahead of delivery."""
        assert self._loop is not None
        done = threading.Event()

        def accept() -> None:
            try:
                self._sink.accept(notifications)
            finally:
                done.set()

        self._loop.call_soon_threadsafe(accept)
        while not done.wait(1.0):
            if self._stopping:
                return
