"""The mailboxes of the other sites, or of clusters of them: each has a registration of scheme `encoded`, and a task
that reads its mailbox.

    Register lyon  --> catalogue: subscription site~lyon~01..  --> registered, from position 512 on
    mailbox        --> offered, as much as the stream wants    --> flush, once for all mailboxes of a moment
    MoveCursor     --> the mailbox's cursor, at most every 200 ms

The core never takes for new what it has asked to read again: a `Rewind` moves the session before the loop turns, and
what a session hands out is offered before the loop turns.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from culver.control import Catalogue
from culver.delivery import Delivery, DeliveryGap, Hub
from culver.errors import Conflict, CulverError, InvalidFilter, NotFound, Unavailable
from culver.matching import NOTHING, EncodedPredicate, predicate_of
from culver.model import ENCODED, SITE_PREFIX
from culver.overlay import MailboxGap, Register, RoutingInstruction, RoutingNode
from culver.registry import Registration, SubscriptionSpec
from culver.roles import Session

logger = logging.getLogger(__name__)

# A write syncs the disk, which the log needs too: every 20 ms, it doubled the latency of events.
_CURSOR_SECONDS = 0.2
_FLUSH_SECONDS = 0.001
_MOST_ITEMS = 512
_FIRST_ITEM_BYTES = 512
_RETRY_SECONDS = 1.0


@dataclass(slots=True)
class _RemoteMailbox:
    """`woken` is set when the stream may want more. `cursor` is what the site has acknowledged, `written` what of
    that is on disk. `item_bytes` is about the size of an event."""

    registration: Registration
    session: Session
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    cursor: int = -1
    written: int = -1
    item_bytes: float = _FIRST_ITEM_BYTES


class RemoteMailboxes:
    """`carry_out` takes the instructions of the node, and `clock` tells its time. `has_mailbox` says which mailboxes
    the node can have. Lives on the event loop."""

    def __init__(
        self,
        hub: Hub,
        catalogue: Catalogue,
        node: RoutingNode,
        has_mailbox: Callable[[str], bool],
        carry_out: Callable[[Sequence[RoutingInstruction]], None],
        clock: Callable[[], float],
    ) -> None:
        self._hub = hub
        self._catalogue = catalogue
        self._node = node
        self._has_mailbox = has_mailbox
        self._carry_out = carry_out
        self._clock = clock
        self._mailboxes: dict[str, _RemoteMailbox] = {}
        # The last change of each site's registration, which the next one waits for.
        self._changes: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._writing: set[str] = set()
        self._flush_timer: asyncio.TimerHandle | None = None
        self._failing: set[str] = set()

    def __len__(self) -> int:
        return len(self._mailboxes)

    def pending(self, site: str) -> int:
        """The number of events that wait in a site's mailbox."""
        return self._hub.pending(SITE_PREFIX + site)

    async def restore(self) -> None:
        """Go on with the mailboxes of the last run. Those of another way to route are removed. Call it before the
        node hears of anything."""
        first: dict[str, int] = {}
        newest: dict[str, Registration] = {}
        for each in await asyncio.to_thread(self._stored):
            first[each.id] = min(each.since, first.get(each.id, each.since))
            if each.until is None:
                newest[each.id] = each
        for subscription, registration in newest.items():
            site = subscription.removeprefix(SITE_PREFIX)
            if not self._has_mailbox(site):
                logger.warning("%s is the mailbox of another way to route, and is dropped", site)
                await self._catalogue.remove(subscription)
                continue
            try:
                predicate = EncodedPredicate.parse(registration.filter)
            except InvalidFilter as exc:
                # Another version wrote it. The site tells its predicate anew.
                logger.warning("the predicate of %s cannot be read: %s", site, exc)
                predicate = NOTHING
            acknowledged = max(self._hub.cursor(subscription) + 1, first[subscription])
            self._node.restore(site, predicate, registration.since, acknowledged, first[subscription])
            await self._open(site, registration)

    async def close(self) -> None:
        if self._flush_timer is not None:
            self._flush_timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def remove_all(self) -> None:
        """Remove every mailbox, after `close`: the site takes a new key. Raises CulverError."""
        for mailbox in self._mailboxes.values():
            await mailbox.session.close()
        self._mailboxes.clear()
        for each in await asyncio.to_thread(self._stored):
            if each.until is None:
                await self._catalogue.remove(each.id)

    # --- instructions ---------------------------------------------------------------------------------

    def register(self, instruction: Register) -> None:
        self._change(instruction.site, partial(self._register, instruction))

    def unregister(self, site: str) -> None:
        self._change(site, partial(self._unregister, site))

    async def settled(self, site: str) -> None:
        """Wait for what was asked to be registered or unregistered."""
        change = self._changes.get(site)
        if change is not None:
            await asyncio.gather(change, return_exceptions=True)

    def move_cursor(self, site: str, offset: int) -> None:
        mailbox = self._mailboxes.get(site)
        if mailbox is not None:
            mailbox.cursor = max(mailbox.cursor, offset)
            mailbox.woken.set()
            if site not in self._writing:
                self._writing.add(site)
                self._start(self._write_cursor(site, mailbox))
        self.flush_soon()

    def rewind(self, site: str, after: int) -> None:
        mailbox = self._mailboxes.get(site)
        if mailbox is not None:
            mailbox.session.rewind(after)
            mailbox.woken.set()

    def make_room(self) -> None:
        """Streams may want more, though no cursor has moved."""
        for site, mailbox in self._mailboxes.items():
            if site in self._node.outgoing and self._node.outgoing.wanted_bytes(site):
                mailbox.woken.set()
        self.flush_soon()

    def flush_soon(self) -> None:
        """Send what is offered in a moment, when the other mailboxes have offered theirs."""
        if self._flush_timer is None:
            self._flush_timer = asyncio.get_running_loop().call_later(_FLUSH_SECONDS, self._flush)

    # --- registrations --------------------------------------------------------------------------------

    def _stored(self) -> list[Registration]:
        return [
            each
            for each in self._catalogue.registrations()
            if isinstance(each, Registration) and each.scheme == ENCODED and not each.removed
        ]

    def _change(self, site: str, change: Callable[[], Coroutine[Any, Any, None]]) -> None:
        before = self._changes.get(site)

        async def run() -> None:
            if before is not None:
                await asyncio.gather(before, return_exceptions=True)
            await change()

        self._changes[site] = task = self._start(run())

        def forget(done: "asyncio.Task[None]") -> None:
            if self._changes.get(site) is done:
                del self._changes[site]

        task.add_done_callback(forget)

    async def _register(self, instruction: Register) -> None:
        site, predicate = instruction.site, instruction.predicate
        mailbox = self._mailboxes.get(site)
        spec = SubscriptionSpec(
            predicate_of(predicate.text, ENCODED), SITE_PREFIX + site, durable=True, scheme=ENCODED
        )
        try:
            if mailbox is None:
                registration = await self._add(spec)
                await self._open(site, registration)
            else:
                mailbox.registration = registration = await self._catalogue.replace(spec)
        except CulverError as exc:
            if not isinstance(exc, Unavailable):
                self._complain(site, f"the predicate of {site} cannot be registered: {exc}")
            self._carry_out(self._node.registration_failed(site))
            return
        since = registration.since
        self._node.position = max(self._node.position, since)
        self._carry_out(self._node.registered(site, instruction.version, predicate, since, since))
        self._mailboxes[site].woken.set()

    async def _add(self, spec: SubscriptionSpec) -> Registration:
        try:
            (registration,) = await self._catalogue.add([spec])
        except Conflict:  # an earlier one could not be removed
            registration = await self._catalogue.replace(spec)
        return registration

    async def _unregister(self, site: str) -> None:
        mailbox = self._mailboxes.pop(site, None)
        if mailbox is not None:
            await mailbox.session.close()
            mailbox.woken.set()
            try:
                await self._catalogue.remove(mailbox.registration.id)
            except NotFound:
                pass
            except CulverError as exc:
                logger.warning("the mailbox of %s cannot be removed: %s", site, exc)

    async def _open(self, site: str, registration: Registration) -> None:
        session = await self._hub.open_session(registration)
        mailbox = self._mailboxes[site] = _RemoteMailbox(registration, session)
        self._start(self._offer(site, mailbox))

    # --- streams --------------------------------------------------------------------------------------

    async def _offer(self, site: str, mailbox: _RemoteMailbox) -> None:
        """Offer what a mailbox has and gets, as long as the site has one."""
        while True:
            try:
                await self._offer_next(site, mailbox)
            except (NotFound, Unavailable):
                return  # the mailbox is gone, or the site is stopping
            except Exception as exc:
                unexpected = None if isinstance(exc, CulverError) else exc
                self._complain(site, f"events for {site} wait: {exc}", unexpected)
                await asyncio.sleep(_RETRY_SECONDS)

    async def _offer_next(self, site: str, mailbox: _RemoteMailbox) -> None:
        if self._mailboxes.get(site) is not mailbox:
            raise NotFound(f"{site} has no mailbox any more")
        wanted = self._node.outgoing.wanted_bytes(site)
        if not wanted:
            mailbox.woken.clear()
            await mailbox.woken.wait()
            return
        limit = min(max(int(wanted / mailbox.item_bytes), 1), _MOST_ITEMS)
        items = await mailbox.session.receive(limit, None)
        if site not in self._node.outgoing:
            return
        self._node.offered(site, self._node.outgoing.generation(site), [_offered(item) for item in items])
        self.flush_soon()
        self._failing.discard(site)
        sizes = [len(item.payload) for item in items if isinstance(item, Delivery)]
        if sizes:
            mailbox.item_bytes += (max(sum(sizes) / len(sizes), 16) - mailbox.item_bytes) / 4

    def _flush(self) -> None:
        self._flush_timer = None
        self._carry_out(self._node.flush(self._clock()))

    async def _write_cursor(self, site: str, mailbox: _RemoteMailbox) -> None:
        try:
            while mailbox.written < mailbox.cursor:
                newest = mailbox.cursor
                await mailbox.session.acknowledge(newest)
                mailbox.written = newest
                await asyncio.sleep(_CURSOR_SECONDS)
        except (NotFound, Unavailable):
            pass
        except CulverError as exc:
            # The next acknowledgement tries again. Until then the site may get something twice, and drops it.
            self._complain(site, f"the acknowledgements of {site} cannot be stored: {exc}")
        finally:
            self._writing.discard(site)

    def _start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _complain(self, site: str, text: str, error: Exception | None = None) -> None:
        if site not in self._failing:
            self._failing.add(site)
            logger.warning("%s", text, exc_info=error)


def _offered(item: Delivery | DeliveryGap) -> "tuple[int, bytes] | MailboxGap":
    if isinstance(item, Delivery):
        return item.offset, item.payload
    return MailboxGap(item.start, item.end, _GAP_REASONS[item.reason])


_GAP_REASONS = {
    "overflow": "the site's mailbox there was full",
    "expired": "the events were too old to be kept there",
    "disconnected": "the site was away",
    "unavailable": "the log there no longer has them",
}
