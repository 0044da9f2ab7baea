"""A site in memory: it stores events in a list, matches them with the reference evaluation, and forgets all
of it with the object. Implements the roles of a site, and fails on demand."""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from culver.config import ChannelSettings, GatewaySettings, Settings
from culver.control.site_observation import (
    IndexScheme,
    IndexSlice,
    PlacementInfo,
    SiteObservation,
    SiteQueues,
)
from culver.delivery.deliveries import Delivery, DeliveryGap, Waiting
from culver.delivery.log_history import HistoryPage, LogBounds
from culver.delivery.merged.merged_items import MergedEnd, MergedEvent, MergedGap, MergedItem
from culver.delivery.merged.selection import Selection
from culver.delivery.shares import Share
from culver.errors import (
    Conflict,
    CulverError,
    Gone,
    InvalidRequest,
    NotFound,
    StorageError,
    TooManySubscriptions,
    Unavailable,
)
from culver.log.publication_log import CommitReceipt
from culver.matching import compile_rows
from culver.model import ENCODED
from culver.model.columns.event_batch import concat, encode
from culver.model.columns.value_rows import values_at
from culver.model.event import Event
from culver.model.language.predicate import Predicate, evaluate
from culver.pipeline.engine_totals import (
    BATCH_SECONDS,
    BatchTotals,
    EngineObservation,
    SchemeTotals,
    SliceTotals,
)
from culver.registry.registration import Block, BlockSpec, Registration, SubscriptionSpec
from culver.registry.registry import SetSummary
from culver.registry.subscription_ids import check_id, check_set_name, new_ids, split_member
from culver.roles import MOST_SEQUENCE, NumberedPart, PublicationNumbers
from support.fake_channels import FakeChannels
from support.fake_overlay import FakeOverlay
from support.memory_slices import MemorySlices


class FakeSite:
    """Implements `roles.Site`. `failures` maps a method's name to the error that its next calls raise; `hold` makes
    publications wait until it is set."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings(
            gateway=GatewaySettings(port=0), channels=ChannelSettings(url="http://channels.test")
        )
        self.publications = FakePublications(self)
        self.subscriptions = FakeSubscriptions(self)
        self.sessions = FakeSessions(self)
        self.history = FakeHistory(self)
        self.slices = MemorySlices()
        self.channels = FakeChannels(self)
        self.overlay = FakeOverlay(self)
        self.observation = FakeObservation(self)
        self.ready = True
        self.events: list[Event] = []
        # The offsets of numbered events, by publisher and sequence.
        self.numbers: dict[tuple[str, int], int] = {}
        self.first_offset = 0
        self.registrations: dict[str, Registration] = {}
        self.acknowledged: dict[str, int] = {}
        self.failures: dict[str, Exception] = {}
        self.hold = asyncio.Event()
        self.hold.set()
        self.open_sessions: set[FakeSession] = set()
        self.stopping = False
        # The ports of other gateways, by the subscriptions that they have.
        self.ports: dict[str, int] = {}
        self.former: dict[int, Registration] = {}  # by the numbers of those that replaced them
        self.now_us = time.time_ns() // 1000
        self.last_number = 0
        self._predicates: dict[int, Predicate] = {}
        self._changed = asyncio.Event()

    def stop(self) -> None:
        self.stopping = True
        self.wake()

    def register(self, spec: SubscriptionSpec) -> Registration:
        self.last_number += 1
        registration = Registration(
            number=self.last_number,
            id=spec.id or f"sub-{self.last_number}",
            filter=spec.predicate.text,
            durable=spec.durable,
            since=len(self.events),
            until=None,
            removed=False,
            version=self.last_number,
            created_at_us=self.now_us,
            expires_at_us=spec.expires_at_us,
            mailbox_count=spec.mailbox_count,
            mailbox_bytes=spec.mailbox_bytes,
            mailbox_age_seconds=spec.mailbox_age_seconds,
            scheme=spec.scheme,
            channel=spec.channel,
        )
        self._predicates[registration.number] = spec.predicate
        self.registrations[registration.id] = registration
        return registration

    def matches(self, registration: Registration, offset: int) -> bool:
        if offset < registration.since and registration.number in self.former:
            return self.matches(self.former[registration.number], offset)
        condition = self._predicates[registration.number].condition
        return offset >= registration.since and evaluate(condition, self.events[offset]) is True

    def fail(self, method: str) -> None:
        """Raise the error that the test has set for this method."""
        if method in self.failures:
            error = self.failures[method]
            if isinstance(error, CulverError):
                raise type(error)(error.message, field=error.field, **error.details)
            raise error

    async def changed(self) -> None:
        """Wait for the next publication or removal."""
        await self._changed.wait()

    def wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class FakePublications:
    def __init__(self, site: FakeSite) -> None:
        self._site = site

    def publish(self, events: Sequence[Event]) -> asyncio.Future[CommitReceipt]:
        return asyncio.create_task(self._publish(events))

    async def _publish(self, events: Sequence[Event]) -> CommitReceipt:
        await self._site.hold.wait()
        self._site.fail("publish")
        return await self._append(events)

    async def _append(self, events: Sequence[Event]) -> CommitReceipt:
        site = self._site
        first = len(site.events)
        site.events += events
        for offset in range(first, len(site.events)):
            for each in site.registrations.values():
                if each.channel is not None and site.matches(each, offset):
                    await site.channels.publish(each.channel, site.events[offset].payload)
                    site.acknowledged[each.id] = offset
        site.wake()
        return CommitReceipt(first, first + len(events))

    def publish_once(
        self, events: Sequence[Event], numbers: PublicationNumbers
    ) -> asyncio.Future[list[NumberedPart]]:
        return asyncio.create_task(self._publish_once(events, numbers))

    async def _publish_once(self, events: Sequence[Event], numbers: PublicationNumbers) -> list[NumberedPart]:
        site, sequences = self._site, list(numbers.sequences)
        if not all(0 <= sequence <= MOST_SEQUENCE for sequence in sequences):
            raise InvalidRequest("out of bounds", field="sequence")
        if sorted(set(sequences)) != sequences:
            raise InvalidRequest("they ascend", field="sequence")
        await site.hold.wait()
        site.fail("publish")
        parts: list[NumberedPart] = []
        fresh: list[Event] = []
        known = dict(site.numbers)
        for sequence, event in zip(sequences, events, strict=True):
            offset = known.get((numbers.publisher, sequence))
            if offset is None:
                offset = site.numbers[numbers.publisher, sequence] = len(site.events) + len(fresh)
                fresh.append(event)
                parts.append(NumberedPart(offset, offset + 1, False))
            elif site.events[offset].payload == event.payload:
                parts.append(NumberedPart(offset, offset + 1, True))
            else:
                site.numbers = known
                raise Conflict("another event", field="sequence")
        await self._append(fresh)
        return parts


class FakeSubscriptions:
    def __init__(self, site: FakeSite) -> None:
        self._site = site

    async def add(self, specs: Sequence[SubscriptionSpec]) -> list[Registration]:
        site = self._site
        site.fail("add")
        for spec in specs:
            if spec.id is not None:
                check_id(spec.id, durable=spec.durable, of_site=spec.scheme == ENCODED)
        if any(spec.scheme == ENCODED for spec in specs):
            raise InvalidRequest("the scheme is for other sites", field="scheme")
        self._check_room(len(specs))
        ids = [spec.id for spec in specs if spec.id is not None]
        for spec in specs:
            if spec.id in site.registrations or ids.count(str(spec.id)) > 1:
                raise Conflict(f"subscription {spec.id!r} exists", field="id")
        return [site.register(spec) for spec in specs]

    async def add_block(self, spec: BlockSpec) -> Block:
        site = self._site
        site.fail("add_block")
        check_set_name(spec.name)
        self._check_room(len(spec))
        # This checks the values as the catalogue does.
        compile_rows(spec.prepared, np.arange(len(spec)), spec.columns)
        first = self._next(spec.name)
        if spec.first not in (None, first):
            raise Conflict("another number is next", field="first", next=first)
        for row in range(len(spec)):
            predicate = spec.prepared.bind(values_at(spec.columns, row))
            options = (True, spec.expires_at_us, spec.mailbox_count)
            site.register(SubscriptionSpec(predicate, f"{spec.name}.{first + row}", *options))
        since, number = len(site.events), site.last_number - len(spec) + 1
        return replace(spec.block(number, first, since, site.last_number, site.now_us), values=b"")

    async def replace(self, spec: SubscriptionSpec) -> Registration:
        old = await self.get(str(spec.id))
        if old.durable != spec.durable:
            raise Conflict("a live subscription cannot become durable", field="durable")
        registration = self._site.register(spec)
        self._site.former[registration.number] = old
        return registration

    async def remove(self, subscription: str) -> Registration:
        registration = await self.get(subscription)
        del self._site.registrations[subscription]
        self._site.wake()
        return replace(registration, until=len(self._site.events), removed=True)

    async def remove_set(self, name: str) -> int:
        members = self._set(name)
        if not members:
            raise NotFound(f"there is no set {name!r}", field="name")
        for member in members:
            await self.remove(f"{name}.{member}")
        return len(members)

    async def get(self, subscription: str) -> Registration:
        self._site.fail("get")
        if subscription not in self._site.registrations:
            raise NotFound(f"there is no subscription {subscription!r}", field="id")
        return self._site.registrations[subscription]

    async def page(self, after: str | None, limit: int) -> list[Registration]:
        registrations = self._site.registrations
        ids = sorted(name for name in registrations if after is None or name > after)
        return [registrations[name] for name in ids[:limit]]

    async def sets(self, after: str | None, limit: int) -> list[SetSummary]:
        names = sorted({parts[0] for name in self._site.registrations if (parts := split_member(name))})
        return [
            SetSummary(name, len(self._set(name)), self._next(name), ())
            for name in names
            if after is None or name > after
        ][:limit]

    def _check_room(self, count: int) -> None:
        if len(self._site.registrations) + count > self._site.settings.registry.max_subscriptions:
            raise TooManySubscriptions("too many subscriptions", field="max_subscriptions")

    def _next(self, name: str) -> int:
        return max(self._set(name), default=-1) + 1

    def _set(self, name: str) -> list[int]:
        parts = [split_member(each) for each in self._site.registrations]
        return [each[1] for each in parts if each is not None and each[0] == name]


class FakeSessions:
    def __init__(self, site: FakeSite) -> None:
        self._site = site

    async def open(self, registration: Registration, after: int | None = None) -> "FakeSession":
        self._site.fail("open")
        session = FakeSession(self._site, registration, after)
        self._site.open_sessions.add(session)
        return session

    def open_joint(self) -> "FakeJointSession":
        self._site.fail("open")
        if self._site.stopping:
            raise Unavailable("the site is stopping")
        return FakeJointSession(self._site)

    async def acknowledge_group(self, selection: Selection, offset: int) -> int:
        self._site.fail("acknowledge_group")
        if offset >= len(self._site.events):
            raise InvalidRequest(f"offset {offset} is not reached yet", field="offset")
        members = [
            each
            for name, each in self._site.registrations.items()
            if each.durable and selection.includes(name) and self.elsewhere(name) is None
        ]
        for each in members:
            await FakeSession(self._site, each, None).acknowledge(offset)
        return len(members)

    @property
    def share(self) -> Share:
        return Share(0, 1 + len(self.other_ports()))

    def other_ports(self) -> list[int]:
        return sorted(set(self._site.ports.values()))

    async def pending(self, registrations: Sequence[Registration]) -> list[int]:
        return [self._pending(each) if each.durable else 0 for each in registrations]

    def elsewhere(self, subscription: str) -> int | None:
        return self._site.ports.get(subscription)

    def waiting(self, registration: Registration, start: int, limit: int) -> Waiting:
        self._site.fail("waiting")
        if registration.id not in self._site.registrations:
            raise NotFound(f"subscription {registration.id!r} has ended", field="id")
        end, cursor = len(self._site.events), self._site.acknowledged.get(registration.id, -1)
        begin = max(start, cursor + 1)
        offsets = [each for each in range(begin, end) if self._site.matches(registration, each)][:limit]
        return Waiting(
            offsets, [], offsets[-1] + 1 if len(offsets) == limit else max(start, end), end, cursor
        )

    def new_live_id(self) -> str:
        return new_ids(1, durable=False)[0]

    def _pending(self, registration: Registration) -> int:
        start = self._site.acknowledged.get(registration.id, -1) + 1
        offsets = range(start, len(self._site.events))
        return sum(self._site.matches(registration, offset) for offset in offsets)


class FakeHistory:
    """All events were received at the time when the site was made."""

    def __init__(self, site: FakeSite) -> None:
        self._site = site

    async def bounds(self) -> LogBounds:
        return LogBounds(self._site.first_offset, len(self._site.events))

    async def offset_at(self, received_us: int) -> int:
        return self._site.first_offset if received_us <= self._site.now_us else len(self._site.events)

    async def read(self, start: int, end: int, limit: int, predicate: Predicate | None = None) -> HistoryPage:
        site = self._site
        if start < site.first_offset:
            raise Gone("the log begins later", field="from", first_offset=site.first_offset)
        end = max(start, min(end, len(site.events)))
        found = [
            offset
            for offset in range(start, end)
            if predicate is None or evaluate(predicate.condition, site.events[offset]) is True
        ]
        return self._page(found[:limit], end if len(found) <= limit else found[limit - 1] + 1)

    async def pick(self, offsets: Sequence[int]) -> HistoryPage:
        if offsets and offsets[-1] >= len(self._site.events):
            raise StorageError(f"the log ends before the event at offset {offsets[-1]}")
        return self._page(offsets, offsets[-1] + 1 if offsets else 0)

    def _page(self, offsets: Sequence[int], following: int) -> HistoryPage:
        batches = encode([self._site.events[each] for each in offsets], self._site.now_us)
        return HistoryPage(np.array(offsets, np.int64), concat(batches), following)


class FakeObservation:
    def __init__(self, site: FakeSite) -> None:
        self._site = site
        self._began = time.monotonic()

    async def refresh(self) -> None:
        return

    @property
    def ready(self) -> bool:
        return self._site.ready

    def status(self) -> dict[str, Any]:
        site = self._site
        return {
            "engine": "fake",
            "state": "running" if site.ready else "starting",
            "ready": site.ready,
            "log_first_offset": 0,
            "log_next_offset": len(site.events),
            "delivered_offset": len(site.events),
            "subscriptions": len(site.registrations),
            "index_version": site.last_number,
            "log_damage": [],
        }

    def observe(self) -> SiteObservation:
        site = self._site
        end = len(site.events)
        counts = tuple(int(bound in (0.05, 0.5)) for bound in (*BATCH_SECONDS, 0))
        done = SliceTotals(0, end, end, 3 * end, 0.1 * end, 0.3 * end, 0.2 * end)
        return SiteObservation(
            engine="fake",
            state="running" if site.ready else "starting",
            ready=site.ready,
            uptime_seconds=time.monotonic() - self._began,
            log_next_offset=end,
            subscriptions=len(site.registrations),
            placement=PlacementInfo("replicated", 1, "replicated: there is one worker"),
            queues=SiteQueues(match=4, mailboxes=3),
            index=(IndexSlice(0, len(site.registrations), 1000),),
            pipeline=EngineObservation(
                end,
                slices=(done,),
                batches=BatchTotals(2, 9, 0.5, counts),
                schemes=(
                    SchemeTotals("columnar", 2 * end, 0.2 * end),
                    SchemeTotals("counting", end, 0.1 * end),
                ),
            ),
            schemes=tuple(
                IndexScheme(name, count, 10 * count)
                for name, count in Counter(each.scheme for each in site.registrations.values()).items()
            ),
        )


class FakeSession:
    """Reads the site's list of events from a position on."""

    def __init__(self, site: FakeSite, registration: Registration, after: int | None) -> None:
        self._site = site
        self._registration = registration
        self._gap: DeliveryGap | None = None
        self.received = 0
        self.closed = False
        if registration.durable:
            acknowledged = site.acknowledged.get(registration.id, -1)
            self._position = max(acknowledged + 1, -1 if after is None else after + 1)
        else:
            self._position = registration.since
            if after is not None and after + 1 < registration.since:
                self._gap = DeliveryGap(registration.id, after + 1, registration.since, None, "disconnected")

    @property
    def registration(self) -> Registration:
        return self._registration

    async def receive(self, limit: int, wait_seconds: float | None) -> list[Delivery | DeliveryGap]:
        try:
            async with asyncio.timeout(wait_seconds):
                while True:
                    self._check()
                    items = self.take(limit)
                    if items or wait_seconds == 0:
                        return items
                    await self._site.changed()
        except TimeoutError:
            return []

    def rewind(self, after: int) -> None:
        self._position = max(after + 1, self._site.acknowledged.get(self._registration.id, -1) + 1)

    async def acknowledge(self, offset: int) -> None:
        if not self._registration.durable:
            return
        if offset >= len(self._site.events):
            raise InvalidRequest(f"offset {offset} is not reached yet", field="delivery_id")
        name = self._registration.id
        self._site.acknowledged[name] = max(offset, self._site.acknowledged.get(name, -1))

    async def close(self) -> None:
        self.closed = True
        self._site.open_sessions.discard(self)
        if not self._registration.durable:
            self._site.registrations.pop(self._registration.id, None)

    def _check(self) -> None:
        if self._site.stopping:
            raise Unavailable("the site is stopping")
        self._site.fail("receive")
        if self._registration.id not in self._site.registrations:
            raise NotFound(f"subscription {self._registration.id!r} has ended", field="id")

    def take(self, limit: int) -> list[Delivery | DeliveryGap]:
        items: list[Delivery | DeliveryGap] = []
        if self._gap is not None:
            items.append(self._gap)
            self._gap = None
        while len(items) < limit and self._position < len(self._site.events):
            if self._site.matches(self._registration, self._position):
                payload = self._site.events[self._position].payload
                items.append(Delivery(self._registration.id, self._position, payload))
            self._position += 1
        self.received += len(items)
        return items


class FakeJointSession:
    """Has a session for each subscription, and joins what they receive."""

    def __init__(self, site: FakeSite) -> None:
        self._site = site
        self._singles: dict[str, FakeSession] = {}
        self._groups: dict[int, tuple[Selection, int | None]] = {}
        self._members: dict[tuple[int, str], FakeSession] = {}
        self._counts: dict[int, int] = {}
        self._waiting: list[MergedItem] = []
        self._ended = False

    def add(self, registration: Registration, after: int | None = None) -> None:
        self._singles[registration.id] = FakeSession(self._site, registration, after)
        self._site.open_sessions.add(self._singles[registration.id])
        self._site.wake()

    def follow(self, group: int, selection: Selection, after: int | None = None) -> int:
        self._groups[group] = selection, after
        self._site.wake()
        self._join()
        return self._counts[group]

    async def remove(self, key: str | int) -> None:
        if isinstance(key, str) and key in self._singles:
            await self._singles.pop(key).close()
        elif isinstance(key, int):
            self._groups.pop(key, None)
            self._members = {pair: each for pair, each in self._members.items() if pair[0] != key}

    async def receive(self, limit: int, wait_seconds: float | None) -> list[MergedItem]:
        try:
            async with asyncio.timeout(wait_seconds):
                while True:
                    if self._ended or self._site.stopping:
                        raise Unavailable("the session is closed")
                    self._site.fail("receive")
                    self._waiting += self._take()
                    items, self._waiting = self._waiting[:limit], self._waiting[limit:]
                    if items or wait_seconds == 0:
                        return items
                    await self._site.changed()
        except TimeoutError:
            return []

    async def acknowledge(self, subscription: str, offset: int) -> None:
        await self._singles[subscription].acknowledge(offset)

    async def acknowledge_group(self, group: int, offset: int) -> None:
        if group not in self._groups:
            raise NotFound(f"there is no group {group} on this connection", field="group")
        if offset >= len(self._site.events):
            raise InvalidRequest(f"offset {offset} is not reached yet", field="offset")
        for (number, _), session in self._members.items():
            if number == group:
                await session.acknowledge(offset)

    async def close(self) -> None:
        self._ended = True
        for session in self._singles.values():
            await session.close()
        self._site.wake()

    def _join(self) -> list[MergedItem]:
        """Bring the members up to date; returns the ends."""
        registrations, ends = self._site.registrations, list[MergedItem]()
        for name in [name for name in self._singles if name not in registrations]:
            self._site.open_sessions.discard(self._singles.pop(name))
            ends.append(MergedEnd(subscription=name))
        for group, (selection, after) in list(self._groups.items()):
            names = [
                name
                for name, each in registrations.items()
                if each.durable and selection.includes(name) and name not in self._site.ports
            ]
            for name in names:
                if (group, name) not in self._members:
                    self._members[group, name] = FakeSession(self._site, registrations[name], after)
            for pair in [pair for pair in self._members if pair[0] == group and pair[1] not in names]:
                del self._members[pair]
            if self._counts.get(group) and not names and selection.prefix is None:
                del self._groups[group]
                ends.append(MergedEnd(group=group))
            self._counts[group] = len(names)
        return ends

    def _take(self) -> list[MergedItem]:
        items = self._join()
        found: dict[int, MergedEvent] = {}
        everybody = [(None, name, session) for name, session in self._singles.items()]
        members = [(group, name, session) for (group, name), session in self._members.items()]
        for group, name, session in [*everybody, *members]:
            for item in session.take(1_000_000):
                if isinstance(item, DeliveryGap):
                    to, groups = ([name], {}) if group is None else ([], {group: [name]})
                    items.append(MergedGap(item.start, item.end, item.dropped, item.reason, to, groups))
                    continue
                event = found.setdefault(item.offset, MergedEvent(item.offset, item.payload, [], {}))
                (event.to if group is None else event.groups.setdefault(group, [])).append(name)
        return [*items, *(found[offset] for offset in sorted(found))]
