"""Connected subscribers. Both kinds implement the gateway's `Session`, and differ in where their offsets wait.

A durable session walks its mailbox from a position of its own. A delivery that nobody acknowledged is still there for
the next session. A live session has a bounded buffer and nothing else.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from culver.delivery.deliveries import Delivery, DeliveryGap, join_gaps
from culver.delivery.live_buffer import LiveBuffer
from culver.delivery.ranges.lost_events import LostEvents
from culver.delivery.waiting_session import WaitingSession
from culver.errors import Unavailable
from culver.registry import Registration

if TYPE_CHECKING:
    from culver.delivery.hub import Hub

Item = Delivery | DeliveryGap


class SubscriberSession(WaitingSession[Item]):
    def __init__(self, hub: "Hub", registration: Registration) -> None:
        super().__init__()
        self._hub = hub
        self.registration = registration

    async def close(self) -> None:
        self.end(Unavailable("the session is closed"))
        self._hub.detach(self)


class DurableSession(SubscriberSession):
    """Several may read one mailbox; each receives everything that is not acknowledged."""

    def __init__(self, hub: "Hub", registration: Registration, slot: int, after: int) -> None:
        super().__init__(hub, registration)
        self._slot = slot
        self._position = -1  # the session has handed out everything up to here
        self._moves = 0
        self.rewind(after)

    def replace(self, registration: Registration) -> None:
        """The subscription has a new filter."""
        self.registration = registration

    def rewind(self, after: int) -> None:
        # Never behind the frontier, so that the session does not skip an event that is yet to come.
        mailboxes = self._hub.mailboxes
        self._position = max(min(after, mailboxes.frontier - 1), mailboxes.cursor(self._slot))
        self._moves += 1
        self._wake.set()

    async def acknowledge(self, offset: int) -> None:
        await self._hub.acknowledge(self.registration.id, offset)

    async def _next(self, limit: int) -> list[Item]:
        mailboxes = self._hub.mailboxes
        while True:
            moves = self._moves
            gaps = mailboxes.gaps(self._slot, self._position)[:limit]
            position = gaps[-1].end - 1 if gaps else self._position
            # Gaps that did not fit come before the next delivery.
            complete = not mailboxes.gaps(self._slot, position)
            room = limit - len(gaps) if complete else 0
            offsets = mailboxes.offsets(self._slot, position, room) if room else []
            payloads = await self._hub.payloads.read(offsets) if offsets else []
            if self._moves != moves and self._ended is None:
                continue  # rewound meanwhile
            received = items_of(self.registration, mailboxes.lost, position + 1, offsets, payloads)
            self._position = offsets[len(payloads) - 1] if payloads else position
            return [*gaps, *received]


class LiveSession(SubscriberSession):
    """Closing it ends its subscription."""

    def __init__(self, hub: "Hub", registration: Registration, buffer: LiveBuffer) -> None:
        super().__init__(hub, registration)
        self._buffer = buffer
        self._taken: Sequence[int] = ()  # offsets whose payloads are being read at this moment

    @property
    def needed_from(self) -> int | None:
        """The lowest offset still to be read from the log."""
        return self._taken[0] if self._taken else self._buffer.first

    def rewind(self, after: int) -> None:
        """Do nothing: a live subscription cannot go back."""

    async def acknowledge(self, offset: int) -> None:
        """Do nothing: a live subscription keeps nothing."""

    async def _next(self, limit: int) -> list[Item]:
        gaps, offsets = self._buffer.take(limit)
        self._taken = offsets
        try:
            payloads = await self._hub.payloads.read(offsets) if offsets else []
        except BaseException:
            self._buffer.put_back(gaps, offsets)
            raise
        finally:
            self._taken = ()
        self._buffer.put_back([], offsets[len(payloads) :])
        return [*gaps, *items_of(self.registration, self._hub.mailboxes.lost, 0, offsets, payloads)]


def items_of(
    registration: Registration,
    lost: LostEvents,
    begin: int,
    offsets: Sequence[int],
    payloads: Sequence[bytes | None],
) -> list[Item]:
    """Deliveries, and gaps where the log no longer has a payload, or nobody could match an event. The subscriber is
    done with everything below `begin`."""
    subscription = registration.id
    items: list[Item] = []
    for offset, payload in zip(offsets, payloads, strict=False):
        start = lost.start_of(offset)
        first, begin = begin, offset + 1
        if start is None and payload is not None:
            items.append(Delivery(subscription, offset, payload))
            continue
        if start is None:
            gap = DeliveryGap(subscription, offset, offset + 1, 1, "unavailable")
        else:
            # An earlier registration of the subscription has a row of its own.
            since = registration.since if offset >= registration.since else 0
            gap = DeliveryGap(subscription, max(start, first, since), offset + 1, None, "unavailable")
        last = items[-1] if items else None
        if isinstance(last, DeliveryGap) and (
            last.end == gap.start or None not in (last.dropped, gap.dropped)
        ):
            gap = join_gaps(last, gap)
            items.pop()
        items.append(gap)
    return items
