"""The roles of a site: what a gateway, or anybody else who speaks with a site, can ask of it.

    publications    take events into the log
    subscriptions   register, change, list and remove
    sessions        connect subscribers to their mailboxes
    history         read what the log still has, by offset
    slices          show and change the parts of the index
    channels        publish and subscribe on the channels of the site's channel service
    overlay         show the other sites, and from where on a subscription gets their events; forget one
    observation     tell how the site is doing

The running site, the remote site of a further gateway process and the tests' fake site implement the same roles and
pass the same contract suite. All methods belong to the event loop's thread and never block it.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from culver.config import Settings
from culver.control import SiteObservation, Slices
from culver.delivery import (
    Delivery,
    DeliveryGap,
    HistoryPage,
    LogBounds,
    MergedItem,
    Selection,
    Share,
    Waiting,
)
from culver.errors import Conflict, NotFound
from culver.log import CommitReceipt
from culver.messages import ForgottenSite, OverlayStatus
from culver.model import Event
from culver.model.language import Predicate
from culver.registry import Block, BlockSpec, Registration, SetSummary, SubscriptionSpec

MOST_SEQUENCE = 2**63 - 2


@dataclass(frozen=True, slots=True)
class PublicationNumbers:
    """The numbers of a publication's events, one each: a publisher's id, and ascending sequences from 0 to
    MOST_SEQUENCE."""

    publisher: str
    sequences: Sequence[int]


class NumberedPart(NamedTuple):
    """Consecutive events of a numbered publication, at `[first_offset, next_offset)` in the log. A repeat was there
    before."""

    first_offset: int
    next_offset: int
    is_repeat: bool


class Publications(Protocol):
    def publish(self, events: Sequence[Event]) -> "asyncio.Future[CommitReceipt]":
        """Append events to the log, all or none. The answer comes once they are on disk; it may be cancelled by a
        caller that no longer wants it. Raises Unavailable, and the answer raises StorageFull or StorageError."""

    def publish_once(
        self, events: Sequence[Event], numbers: PublicationNumbers
    ) -> "asyncio.Future[list[NumberedPart]]":
        """Append those events whose numbers are not in the log yet, all or none, and answer with the places of all of
        them, in order. Two that come at the same time with the same number are one. Cancelling the answer takes
        nothing back.

        The answer raises what that of `publish` raises; Unavailable; and Conflict (`field="sequence"`) where the site
        has forgotten whether it has a number, or has another event under it. Then it has appended nothing."""


class Subscriptions(Protocol):
    """A change is durable and in effect when its method returns."""

    async def add(self, specs: Sequence[SubscriptionSpec]) -> list[Registration]:
        """Register, all or none. Every matching event from `since` of a registration on is delivered. Raises Conflict
        for an id that is taken, and TooManySubscriptions."""

    async def add_block(self, spec: BlockSpec) -> Block:
        """Add rows to a set, all or none; the answer leaves their values out. Raises InvalidFilter with `row` and
        `parameter` in its details for a value of the wrong kind, Conflict and TooManySubscriptions."""

    async def replace(self, spec: SubscriptionSpec) -> Registration:
        """Give a subscription another filter and other options. Raises NotFound and Conflict."""

    async def remove(self, subscription: str) -> Registration:
        """End a subscription. Raises NotFound."""

    async def remove_set(self, name: str) -> int:
        """End all members of a set and return how many there were. Raises NotFound."""

    async def get(self, subscription: str) -> Registration:
        """Raises NotFound."""

    async def page(self, after: str | None, limit: int) -> list[Registration]:
        """Up to `limit` subscriptions with ids behind `after`, ordered by id."""

    async def sets(self, after: str | None, limit: int) -> list[SetSummary]:
        """Up to `limit` sets with names behind `after`, ordered by name."""


class Session(Protocol):
    """One connected subscriber of one subscription. Closing it ends a live subscription for good and
    leaves a durable one's mailbox as it is."""

    @property
    def registration(self) -> Registration: ...

    async def receive(self, limit: int, wait_seconds: float | None) -> list[Delivery | DeliveryGap]:
        """Return the next deliveries and gaps, in order. Waits for the first one (None: for ever) and returns an
        empty list when the time is up. A durable session that did not acknowledge a delivery receives it again in
        the next session, or here after `rewind`. Raises NotFound once the subscription has been removed or has
        expired, Unavailable once the site is stopping."""

    def rewind(self, after: int) -> None:
        """Continue behind that offset, but never before an acknowledged one."""

    async def acknowledge(self, offset: int) -> None:
        """Mark everything up to and including `offset` as done; durable on return. A no-op for a live
        subscription. Raises InvalidRequest (`field="delivery_id"`) for an offset not reached yet."""

    async def close(self) -> None: ...


class JointSession(Protocol):
    """One connected subscriber of many subscriptions, who gets each event once, with all that it is for. Removing a
    live subscription, or closing the session, ends it for good."""

    def add(self, registration: Registration, after: int | None = None) -> None:
        """Receive what is for a subscription, from now on; `after` is as in `Sessions.open`. Raises NotFound where it
        has ended meanwhile."""

    def follow(self, group: int, selection: Selection, after: int | None = None) -> int:
        """Receive what is for all selected durable subscriptions whose mailboxes are here, as group `group`, also for
        those that come later. Returns how many there are. `after` skips what lies at or below that offset without
        acknowledging it."""

    async def remove(self, key: str | int) -> None:
        """Receive nothing more for a subscription or a group. One that is not there is ignored."""

    async def receive(self, limit: int, wait_seconds: float | None) -> list[MergedItem]:
        """Return the next items, at most `limit`, those of each subscription in order. Waits for the first one (None:
        for ever) and returns an empty list when the time is up. The end of a subscription is an item. Raises
        Unavailable once the site is stopping."""

    async def acknowledge(self, subscription: str, offset: int) -> None:
        """As `Session.acknowledge`, for one subscription."""

    async def acknowledge_group(self, group: int, offset: int) -> None:
        """Mark everything up to and including `offset` as done for all members of a group, in one step; durable on
        return. Raises NotFound, and InvalidRequest (`field="offset"`) for an offset not reached yet."""

    async def close(self) -> None: ...


class Sessions(Protocol):
    async def open(self, registration: Registration, after: int | None = None) -> Session:
        """Connect to a subscription. For a durable one, `after` skips deliveries up to that offset without
        acknowledging them. For a live one, it is the offset last seen before a reconnection: if it lies
        before the position from which the subscription takes effect, a gap is announced first. Several
        sessions on one durable subscription each receive everything unacknowledged."""

    def open_joint(self) -> JointSession:
        """Connect a subscriber who names its subscriptions later. Raises Unavailable."""

    async def acknowledge_group(self, selection: Selection, offset: int) -> int:
        """Mark everything up to and including `offset` as done for all selected durable subscriptions whose mailboxes
        are here, in one step; durable on return. Returns how many there are. Raises InvalidRequest
        (`field="offset"`) for an offset not reached yet."""

    @property
    def share(self) -> Share:
        """Which of the site's mailboxes are here."""

    def other_ports(self) -> list[int]:
        """The ports of the other gateways of the site, which hold other mailboxes."""

    async def pending(self, registrations: Sequence[Registration]) -> list[int]:
        """Count the unacknowledged deliveries in the mailbox of each; a live subscription has none. Raises
        Unavailable while the gateway that holds one of the mailboxes is down."""

    def waiting(self, registration: Registration, start: int, limit: int) -> Waiting:
        """What waits in the mailbox of a durable subscription from offset `start` on: up to `limit` deliveries, and
        the gaps there. It stays as it is. Raises NotFound once the subscription has ended."""

    def elsewhere(self, subscription: str) -> int | None:
        """The port of the gateway that holds this subscription's mailbox; None if it is this one."""

    def new_live_id(self) -> str:
        """Make an id for a live subscription that connects to this gateway."""


class History(Protocol):
    """Events by offset, whoever they are for. Reading disturbs nobody and keeps nothing from being trimmed."""

    async def bounds(self) -> LogBounds:
        """Which offsets the log has."""

    async def offset_at(self, received_us: int) -> int:
        """The first offset whose event was received at or after that time; the next offset if none was."""

    async def read(self, start: int, end: int, limit: int, predicate: Predicate | None = None) -> HistoryPage:
        """The events of `[start, end)` that satisfy a predicate, at most `limit`. A page may end early, or have no
        events, before it reaches `end`: its `next` says where to read on. Raises Gone for a `start` that is
        trimmed."""

    async def pick(self, offsets: Sequence[int]) -> HistoryPage:
        """The events at these offsets, ascending. The page may end early. Trimmed ones are among its `lost`. Raises
        StorageError for an offset beyond the end of the log."""


@dataclass(frozen=True, slots=True)
class ChannelLoss:
    """Messages of a channel that a subscriber does not get: those of one publisher with numbers from `first` to
    `last`. A server or a connection lost them, or the subscriber `is_slow`. All numbers are 0 for messages of other
    programs, which have none."""

    publisher: int
    first: int
    last: int
    is_slow: bool = False


@dataclass(frozen=True, slots=True)
class ChannelsStatus:
    """What a gateway's process does with channels: `subscriptions` of its share deliver to one, of which `failing`
    cannot at the moment; `published` deliveries were published. `state` is "running", "off" where the site has no
    channel service, or what is wrong."""

    url: str = ""
    state: str = "off"
    subscriptions: int = 0
    failing: int = 0
    published: int = 0


class ChannelSession(Protocol):
    """One subscriber of one channel. What waits for it is bounded; beyond that it hears of a loss."""

    async def receive(self, limit: int, wait_seconds: float | None) -> list[bytes | ChannelLoss]:
        """Return the next messages and losses, in order. Waits for the first one (None: for ever) and returns an
        empty list when the time is up."""

    async def close(self) -> None: ...


class SiteChannels(Protocol):
    """Methods raise Conflict where the site has no channel service, Unavailable where it does not answer, and
    InvalidRequest or TooLarge for a name that no channel can have."""

    async def publish(self, channel: str, data: bytes) -> int:
        """Publish a message, and return how many subscribers it was sent to."""

    async def subscribe(self, channel: str) -> ChannelSession:
        """Return once the subscription is in effect."""

    def status(self) -> ChannelsStatus: ...


def no_channel_service(field: str) -> Conflict:
    return Conflict(
        "this site has no channel service: start one with culver channels serve, and the site with "
        "culver serve --channels-url URL",
        field=field,
    )


class WideArea(Protocol):
    """A site's place in the overlay. A site that is in none knows no other sites."""

    def status(self) -> OverlayStatus | None:
        """None where the site is in no overlay. Belongs to the last `Observation.refresh`."""

    async def positions(self, registrations: Sequence[Registration]) -> list[dict[str, int | None]]:
        """For each registration, the position in every other site's log, by the site's name, from which its matching
        events come here; None while the registration is not in effect there."""

    async def wait(self, registrations: Sequence[Registration], timeout_seconds: float) -> bool:
        """Wait until these are in effect at every site that can be reached; returns whether they are."""

    async def forget(self, name: str) -> ForgottenSite:
        """Drop the mailbox of a site that does not come back, and what is known of it here. If it does come back, it
        is as new as any other site, and hears that it may miss events. Raises NotFound for a name that is not known
        here, and Conflict while the site can be reached."""


def no_overlay() -> NotFound:
    return NotFound(
        "this site is in no overlay: start it with culver serve --name NAME --overlay HOST:PORT",
        field="overlay",
    )


class Observation(Protocol):
    async def refresh(self) -> None:
        """Bring the other members, `Slices.view` and `WideArea.status` up to date if they come from another process.
        Raises Unavailable."""

    @property
    def ready(self) -> bool:
        """Whether published events reach subscribers now."""

    def status(self) -> dict[str, Any]:
        """The answer of `/readyz`: the engine and its state, log positions, how many subscriptions."""

    def observe(self) -> SiteObservation:
        """The figures behind `/v1/pipeline`, `/metrics` and `culver top`."""


class Site(Protocol):
    @property
    def settings(self) -> Settings: ...
    @property
    def publications(self) -> Publications: ...
    @property
    def subscriptions(self) -> Subscriptions: ...
    @property
    def sessions(self) -> Sessions: ...
    @property
    def history(self) -> History: ...
    @property
    def slices(self) -> Slices: ...
    @property
    def channels(self) -> SiteChannels: ...
    @property
    def overlay(self) -> WideArea: ...
    @property
    def observation(self) -> Observation: ...
