"""Events of other sites on their way to the log.

    Append lyon [512, 530) --parse, set the origin--> committer --on disk--> appended up to 530

Events of one origin are appended in order, one publication at a time; what comes meanwhile shares the next. A
publication that fails takes with it all that waits behind it, because the core then asks for the stream again from
what is on disk.
"""

import asyncio
import contextlib
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable

import msgspec

from culver.config import EventSettings
from culver.errors import CulverError, InvalidInput, LimitExceeded, Unavailable
from culver.log import Committer, ReadableLog
from culver.model import Event, Origin
from culver.model.formats import parse_event
from culver.overlay import Append

logger = logging.getLogger(__name__)

_MOST_EVENTS = 10_000
# Parsing more than this takes so long that others should not wait for it.
_THREAD_BYTES = 64 * 1024


class ImportedEvents:
    """`appended` is told the origin and the position that is on disk now, `failed` the origin whose stream must come
    again. `store` makes positions durable that the log does not show. Lives on the event loop."""

    def __init__(
        self,
        log: ReadableLog,
        committer: Committer,
        settings: EventSettings,
        appended: Callable[[str, int], None],
        failed: Callable[[str], None],
        store: Callable[[], Awaitable[None]],
    ) -> None:
        self._log = log
        self._committer = committer
        self._settings = settings
        self._appended = appended
        self._failed = failed
        self._store = store
        self._queues: dict[str, deque[Append]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        # Where the events of a publication without answer may be in the log, at least.
        self._floors: dict[str, int] = {}
        self._complaints: set[tuple[str, str]] = set()
        self.received: Counter[str] = Counter()
        """The events of each origin that are in the log."""
        self.skipped: Counter[str] = Counter()
        """The events of each origin that the site's limits refuse."""

    def append(self, instruction: Append) -> None:
        origin = instruction.origin
        self._queues.setdefault(origin, deque()).append(instruction)
        if origin not in self._tasks:
            self._tasks[origin] = asyncio.create_task(self._work(origin))

    def floor(self) -> int:
        """The log may have events of other sites from here on that nobody was told of yet."""
        return min(self._floors.values(), default=self._log.next_offset)

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _work(self, origin: str) -> None:
        queue = self._queues[origin]
        try:
            while queue:
                try:
                    end = await self._append_next(origin, queue)
                except CulverError as exc:
                    self._give_up(origin, queue, exc)
                else:
                    self._appended(origin, end)
                    self._floors.pop(origin, None)
        except Exception:
            logger.exception("events of %s cannot be taken", origin)
            queue.clear()
            self._floors.pop(origin, None)
            self._failed(origin)
        finally:
            del self._tasks[origin]

    async def _append_next(self, origin: str, queue: deque[Append]) -> int:
        taken: list[Append] = []
        count = 0
        while queue and (not taken or count + len(queue[0].events) <= _MOST_EVENTS):
            taken.append(queue.popleft())
            count += len(taken[-1].events)
        size = sum(len(payload) for each in taken for _, payload in each.events)
        if size > _THREAD_BYTES:
            events, refused = await asyncio.to_thread(self._parse, origin, taken)
        else:
            events, refused = self._parse(origin, taken)
        if events:
            self._floors[origin] = self._log.next_offset
            await self._committer.publish(events)
            self.received[origin] += len(events)
        for offset, reason in refused:
            self.skipped[origin] += 1
            self._complain(origin, "skipped", f"event {offset} of {origin} is skipped: {reason}")
        if refused:
            # What is in the log must not fail any more: it would come, and be appended, a second time.
            with contextlib.suppress(OSError):
                await self._store()
        return taken[-1].end

    def _parse(self, origin: str, taken: list[Append]) -> tuple[list[Event], list[tuple[int, str]]]:
        events: list[Event] = []
        refused: list[tuple[int, str]] = []
        for instruction in taken:
            for offset, payload in instruction.events:
                try:
                    event = parse_event(payload, self._settings)
                except (InvalidInput, LimitExceeded) as exc:
                    refused.append((offset, exc.message))
                else:
                    events.append(msgspec.structs.replace(event, origin=Origin(origin, offset)))
        return events, refused

    def _give_up(self, origin: str, queue: deque[Append], error: CulverError) -> None:
        queue.clear()
        self._floors.pop(origin, None)
        if not isinstance(error, Unavailable):
            self._complain(origin, error.code, f"events of {origin} wait at their site: {error.message}")
        self._failed(origin)

    def _complain(self, origin: str, kind: str, text: str) -> None:
        if (origin, kind) not in self._complaints:
            self._complaints.add((origin, kind))
            logger.warning("%s", text)
