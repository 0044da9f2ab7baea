"""How events move through a site, and the head with them.

committer --committing, committed-->  +-----------+  --foresee, follow-->  engine
catalogue --register, head_moved--->  | EventFlow |
engine    --accept----------------->  +-----------+  --register, accept--> hub and further gateways

The overlay of a site watches all three.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Protocol

import pyarrow as pa

from culver.delivery import Hub, damage_from
from culver.log import ReadableLog
from culver.model import Event
from culver.pipeline import Engine, Head, HeadTracker, Notifications
from culver.registry import Block, Registration
from culver.sealed import SealFile
from culver.site.gateway_group import GatewayGroup

logger = logging.getLogger(__name__)


class FlowWatcher(Protocol):
    """Hears, on the event loop, what has just happened. It must not block."""

    def committed(self, first_offset: int, events: Sequence[Event]) -> None: ...

    def registered(self, registrations: Iterable[Registration | Block]) -> None: ...

    def accepted(self, notifications: Notifications) -> None: ...


class EventFlow:
    """Implements the log's CommitObserver, the engine's NotificationSink and the catalogue's RegistrationSink. Lives
    on the event loop; `engine` is set before anything runs."""

    engine: Engine
    watcher: FlowWatcher | None = None

    def __init__(
        self, log: ReadableLog, hub: Hub, group: GatewayGroup, tracker: HeadTracker, seal: SealFile
    ) -> None:
        self.tracker = tracker
        self.head: Head = tracker.head
        """The head that the engine was last told."""
        self._log = log
        self._hub = hub
        self._group = group
        self._seal = seal

    def committing(self, first_offset: int, batches: Sequence[pa.RecordBatch]) -> None:
        self.engine.foresee(first_offset, batches)

    def committed(self, first_offset: int, events: Sequence[Event]) -> None:
        # This comes before the publishers hear of it, who get their answers in the loop's next round.
        self._seal.write(first_offset + len(events))
        self._hub.payloads.remember(first_offset, [event.payload for event in events])
        self.tracker.committed(first_offset + len(events))
        if self.watcher is not None:
            self.watcher.committed(first_offset, events)
        self.head_moved()

    def register(self, registrations: Iterable[Registration | Block]) -> None:
        changed = list(registrations)
        self._hub.register(changed)
        self._group.register(changed)
        if self.watcher is not None:
            self.watcher.registered(changed)

    def accept(self, notifications: Notifications, *, stored: bool) -> None:
        before = self._hub.frontier
        self._hub.accept(notifications, stored=stored)
        frontier = self._hub.frontier
        if frontier > before:
            self._group.accepted(notifications.start, notifications.end, self._log.next_offset)
            for damage in damage_from(notifications, before):
                logger.error(
                    "%s is damaged at byte %d: the events from offset %d up to %d cannot be matched; "
                    "every subscription announces a gap",
                    *damage,
                )
            if self.watcher is not None:
                self.watcher.accepted(notifications)
        self.tracker.accepted(frontier)
        self.head_moved()

    def head_moved(self) -> None:
        """Tell the engine if the tracker's head is another than it was."""
        head = self.tracker.head
        if head != self.head:
            self.head = head
            self.engine.follow(head)
