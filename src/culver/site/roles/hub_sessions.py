"""The sessions of one gateway: subscribers connect to the hub of the process that they reached.

Live subscriptions end with their sessions, even if the disk or the site refuses at that moment.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from culver.delivery import Hub, MergedSession, Selection, Share, Waiting, share_of
from culver.errors import CulverError, NotFound, Unavailable
from culver.registry import Registration
from culver.roles import JointSession, Session

logger = logging.getLogger(__name__)

CountPending = Callable[[Sequence[Registration]], Awaitable[list[int]]]


class LiveSubscriptions:
    """`remove` takes a subscription out of the registry."""

    def __init__(self, remove: Callable[[str], Awaitable[Any]]) -> None:
        self._remove = remove
        self._left_behind: set[str] = set()

    async def end(self, subscription: str) -> None:
        """End a live subscription now, or in a later `try_again` if the disk refuses. Never fails."""
        self._left_behind.add(subscription)
        try:
            await self._remove(subscription)
        except NotFound:
            pass  # it has expired, or somebody removed it
        except Unavailable:
            return  # the site is stopping and drops all live subscriptions at its next start
        except CulverError as exc:
            logger.warning("cannot end %s yet: %s", subscription, exc)
            return
        self._left_behind.discard(subscription)

    async def try_again(self) -> None:
        """End the subscriptions that `end` could not. Housekeeping calls it about once a second."""
        for subscription in tuple(self._left_behind):
            await self.end(subscription)


class _LiveSession:
    """A session whose end is that of its subscription."""

    def __init__(self, session: Session, subscriptions: LiveSubscriptions) -> None:
        self._session = session
        self._subscriptions = subscriptions
        self.registration = session.registration
        self.receive = session.receive
        self.rewind = session.rewind
        self.acknowledge = session.acknowledge

    async def close(self) -> None:
        await self._session.close()
        await self._subscriptions.end(self.registration.id)


class _JointSession:
    """Ends its live subscriptions."""

    def __init__(self, merged: MergedSession, subscriptions: LiveSubscriptions) -> None:
        self._merged = merged
        self._subscriptions = subscriptions
        self._live: set[str] = set()
        self.follow = merged.follow
        self.receive = merged.receive
        self.acknowledge = merged.acknowledge
        self.acknowledge_group = merged.acknowledge_group

    def add(self, registration: Registration, after: int | None = None) -> None:
        self._merged.add(registration, after)
        if not registration.durable:
            self._live.add(registration.id)

    async def remove(self, key: str | int) -> None:
        self._merged.remove(key)
        if isinstance(key, str) and key in self._live:
            self._live.discard(key)
            await self._subscriptions.end(key)

    async def close(self) -> None:
        await self._merged.close()
        live, self._live = self._live, set()
        await asyncio.gather(*map(self._subscriptions.end, live))


class HubSessions:
    """Implements the role `sessions` over a hub with one share of the subscriptions. `ports` are those of all
    gateways, by number; `count_pending` reaches the mailboxes of all shares."""

    def __init__(
        self,
        hub: Hub,
        share: Share,
        ports: Sequence[int],
        live: LiveSubscriptions,
        count_pending: CountPending,
    ) -> None:
        self._hub = hub
        self._share = share
        self._ports = ports
        self._live = live
        self._count_pending = count_pending

    async def open(self, registration: Registration, after: int | None = None) -> Session:
        session = await self._hub.open_session(registration, after)
        return session if registration.durable else _LiveSession(session, self._live)

    def open_joint(self) -> JointSession:
        return _JointSession(self._hub.open_merged(), self._live)

    async def acknowledge_group(self, selection: Selection, offset: int) -> int:
        return await self._hub.acknowledge_selection(selection, offset)

    @property
    def share(self) -> Share:
        return self._share

    def other_ports(self) -> list[int]:
        return [port for number, port in enumerate(self._ports) if number != self._share.number]

    async def pending(self, registrations: Sequence[Registration]) -> list[int]:
        return await self._count_pending(registrations)

    def waiting(self, registration: Registration, start: int, limit: int) -> Waiting:
        return self._hub.waiting(registration, start, limit)

    def elsewhere(self, subscription: str) -> int | None:
        number = share_of(subscription, self._share.gateways)
        return None if number == self._share.number else self._ports[number]

    def new_live_id(self) -> str:
        return self._share.new_live_id()
