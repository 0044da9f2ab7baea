"""The sessions of one gateway: subscribers connect to the hub of the process that they reached."""

from collections.abc import Awaitable, Callable, Sequence

from culver.delivery import Hub, Share, share_of
from culver.registry import Registration
from culver.roles import Session
from culver.site.live_subscriptions import LiveSubscriptions

CountPending = Callable[[Sequence[Registration]], Awaitable[list[int]]]


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
        return session if registration.durable else self._live.session(session)

    async def pending(self, registrations: Sequence[Registration]) -> list[int]:
        return await self._count_pending(registrations)

    def elsewhere(self, subscription: str) -> int | None:
        number = share_of(subscription, self._share.gateways)
        return None if number == self._share.number else self._ports[number]

    def new_live_id(self) -> str:
        return self._share.new_live_id()
