"""Events of other sites on their way to the log.

    Append lyon, up to 530 --parse, set the origin--> committer --on disk--> appended up to 530

The core asks for the next events of an origin when it has heard of the last ones, so they are appended in order.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable

import msgspec

from culver.config import EventSettings
from culver.errors import CulverError, InvalidInput, LimitExceeded, Unavailable
from culver.log import Committer, ReadableLog
from culver.model import Event, Origin
from culver.model.formats import parse_event
from culver.overlay import Append

logger = logging.getLogger(__name__)

# Parsing more than this takes so long that others should not wait for it.
_THREAD_BYTES = 64 * 1024


class ImportedEvents:
    """`appended` is told the origin, the position that is on disk now, and whether events before it were skipped: the
    log does not show that. `failed` is told the origin whose stream must come again. Lives on the event loop."""

    def __init__(
        self,
        log: ReadableLog,
        committer: Committer,
        settings: EventSettings,
        appended: Callable[[str, int, bool], None],
        failed: Callable[[str], None],
    ) -> None:
        self._log = log
        self._committer = committer
        self._settings = settings
        self._appended = appended
        self._failed = failed
        self._tasks: set[asyncio.Task[None]] = set()
        # Where the events of a publication without answer may be in the log, at least, by origin.
        self._floors: dict[str, int] = {}
        self._complaints: set[tuple[str, str]] = set()
        self.received: Counter[str] = Counter()
        """The events of each origin that are in the log."""
        self.skipped: Counter[str] = Counter()
        """The events of each origin that the site's limits refuse."""

    def append(self, instruction: Append) -> None:
        task = asyncio.create_task(self._work(instruction))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def floor(self) -> int:
        """The log may have events of other sites from here on that the core was not told of yet."""
        return min(self._floors.values(), default=self._log.next_offset)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _work(self, instruction: Append) -> None:
        origin = instruction.origin
        try:
            has_skipped = await self._append(origin, instruction)
        except CulverError as exc:
            # None of the events is in the log.
            self._floors.pop(origin, None)
            if not isinstance(exc, Unavailable):
                self._complain(origin, exc.code, f"events of {origin} wait at their site: {exc.message}")
            self._failed(origin)
        except Exception:
            logger.exception("events of %s cannot be taken", origin)
            self._failed(origin)
        else:
            self._floors.pop(origin, None)
            self._appended(origin, instruction.end, has_skipped)

    async def _append(self, origin: str, instruction: Append) -> bool:
        """Append what the site's limits allow; returns whether that was not everything."""
        size = sum(len(payload) for _, payload in instruction.events)
        if size > _THREAD_BYTES:
            events, refused = await asyncio.to_thread(self._parse, instruction)
        else:
            events, refused = self._parse(instruction)
        if events:
            self._floors[origin] = self._log.next_offset
            await self._committer.publish(events)
            self.received[origin] += len(events)
        for offset, reason in refused:
            self.skipped[origin] += 1
            self._complain(origin, "skipped", f"event {offset} of {origin} is skipped: {reason}")
        return bool(refused)

    def _parse(self, instruction: Append) -> tuple[list[Event], list[tuple[int, str]]]:
        events: list[Event] = []
        refused: list[tuple[int, str]] = []
        for offset, payload in instruction.events:
            try:
                event = parse_event(payload, self._settings)
            except (InvalidInput, LimitExceeded) as exc:
                refused.append((offset, exc.message))
            else:
                events.append(msgspec.structs.replace(event, origin=Origin(instruction.origin, offset)))
        return events, refused

    def _complain(self, origin: str, kind: str, text: str) -> None:
        if (origin, kind) not in self._complaints:
            self._complaints.add((origin, kind))
            logger.warning("%s", text)
