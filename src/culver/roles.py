"""What the gateway needs of the site behind it; `assembly` provides it.

All methods are safe to call from the event loop's one thread and never block it.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

from culver.config import Settings
from culver.control import SiteObservation, Slices
from culver.delivery import Delivery, Gap
from culver.log import CommitReceipt
from culver.model import Event
from culver.registry import Block, BlockSpec, Registration, SetSummary, SubscriptionSpec


class Session(Protocol):
    """One connected subscriber of one subscription. Closing it ends a live subscription for good and
    leaves a durable one's mailbox as it is."""

    @property
    def registration(self) -> Registration: ...

    async def receive(self, limit: int, wait_seconds: float | None) -> list[Delivery | Gap]:
        """The next deliveries and gaps, in order; waits for the first one (None: for ever), returns an
        empty list when the time is up. What a durable session received and did not acknowledge comes
        again in the next session, or here after `rewind`. Raises NotFound once the subscription has been
        removed or has expired, Unavailable once the site is stopping."""

    def rewind(self, after: int) -> None:
        """Go on with what comes after that offset (never before what is acknowledged)."""

    async def acknowledge(self, offset: int) -> None:
        """Everything up to and including `offset` is done with; durable on return. A no-op for a live
        subscription. Raises InvalidRequest (`field="delivery_id"`) for an offset not reached yet."""

    async def close(self) -> None: ...


class Site(Protocol):
    @property
    def settings(self) -> Settings: ...

    @property
    def ready(self) -> bool:
        """Published events reach subscribers now."""

    def status(self) -> dict[str, Any]:
        """What `/readyz` tells: engine, its state, log positions, subscriptions."""

    def observe(self) -> SiteObservation:
        """What `/v1/pipeline`, `/metrics` and `culver top` tell of the operators."""

    @property
    def slices(self) -> Slices:
        """What `/v1/slices` shows and changes."""

    async def refresh(self) -> None:
        """Have `ready`, `status`, `observe` and the view of the slices answer as of now, where they come from another
        process. Raises Unavailable."""

    def publish(self, events: Sequence[Event]) -> "asyncio.Future[CommitReceipt]":
        """Answers once the events are on disk. Raises Unavailable, and the answer StorageFull or StorageError; then
        none of them is promised. Whoever does not want the answer any more may cancel it."""

    async def subscribe(self, specs: Sequence[SubscriptionSpec]) -> list[Registration]:
        """Register; `since` of each is the position from which every matching event is delivered."""

    async def subscribe_block(self, spec: BlockSpec) -> Block:
        """Add rows to a set, all or none. Raises InvalidFilter with `row` and `parameter` in its details for a
        value that cannot stand there, and Conflict."""

    async def sets(self, after: str | None, limit: int) -> list[SetSummary]:
        """A page, ordered by name."""

    async def unsubscribe_set(self, name: str) -> int:
        """End all members of a set; returns how many there were. Raises NotFound."""

    async def replace(self, spec: SubscriptionSpec) -> Registration: ...

    async def unsubscribe(self, subscription: str) -> Registration:
        """Raises NotFound."""

    async def subscription(self, subscription: str) -> Registration:
        """Raises NotFound."""

    async def subscriptions(self, after: str | None, limit: int) -> list[Registration]:
        """A page, ordered by id."""

    async def pending(self, registrations: Sequence[Registration]) -> list[int]:
        """How many deliveries wait, unacknowledged, in the mailbox of each (0 for a live subscription). Raises
        Unavailable where a gateway that has one of them is not there."""

    def elsewhere(self, subscription: str) -> int | None:
        """The port of the gateway that has this subscription's mailbox; None where it is this one."""

    def new_live_id(self) -> str:
        """An id for a live subscription that is connected to this gateway."""

    async def open_session(self, registration: Registration, after: int | None = None) -> Session:
        """Connect to a subscription. For a durable one, `after` skips what came up to that offset without
        acknowledging it. For a live one, it is the offset last seen before a reconnection: if it lies
        before the position from which the subscription takes effect, a gap is announced first. Several
        sessions on one durable subscription each receive everything unacknowledged.
        """
