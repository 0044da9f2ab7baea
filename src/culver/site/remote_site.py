"""The site as a further gateway process sees it: sessions are its own, and the site answers for the other roles."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, cast

from culver.config import Settings
from culver.control import SiteObservation, Slices, SlicesView
from culver.delivery import Hub, Share
from culver.log import CommitReceipt
from culver.model import Event
from culver.roles import Subscriptions
from culver.site.hub_sessions import HubSessions
from culver.site.live_subscriptions import LiveSubscriptions
from culver.site.peer import Peer


class ForwardedRole:
    """A role whose methods the site runs: every method that a subclass does not define becomes a request."""

    def __init__(self, name: str, peer: Peer) -> None:
        self._name = name
        self._peer = peer

    def __getattr__(self, method: str) -> Callable[..., Awaitable[Any]]:
        if method.startswith("_"):
            raise AttributeError(method)

        async def forward(*arguments: Any, **named: Any) -> Any:
            return await self._peer.request(f"{self._name}.{method}", *arguments, **named)

        return forward


class RemotePublications:
    """Keeps the payloads of events that are published here, because their subscribers may be here too."""

    def __init__(self, peer: Peer, hub: Hub) -> None:
        self._peer = peer
        self._hub = hub

    def publish(self, events: Sequence[Event]) -> "asyncio.Future[CommitReceipt]":
        answer = self._peer.request("publications.publish", events)
        answer.add_done_callback(partial(self._remember, events))
        return answer

    def _remember(self, events: Sequence[Event], answer: "asyncio.Future[CommitReceipt]") -> None:
        if not answer.cancelled() and answer.exception() is None:
            self._hub.payloads.remember(answer.result().first_offset, [event.payload for event in events])


class RemoteSlices(ForwardedRole):
    """`seen` is the view of the last refresh."""

    seen: SlicesView | None = None

    def view(self) -> SlicesView:
        assert self.seen is not None, "refresh first"
        return self.seen


class RemoteObservation:
    """Tells what the site told at the last refresh."""

    def __init__(self, peer: Peer, slices: RemoteSlices) -> None:
        self._peer = peer
        self._slices = slices
        self._status: dict[str, Any] = {"ready": False}
        self._seen: SiteObservation | None = None

    async def refresh(self) -> None:
        self._status, self._seen, self._slices.seen = await self._peer.request("look")

    @property
    def ready(self) -> bool:
        return bool(self._status["ready"])

    def status(self) -> dict[str, Any]:
        return self._status

    def observe(self) -> SiteObservation:
        assert self._seen is not None, "refresh first"
        return self._seen


class RemoteSite:
    """Implements `roles.Site`. The other end of the peer serves a `ServedSite`; `ports` are those of all gateways, by
    number."""

    def __init__(self, settings: Settings, share: Share, ports: Sequence[int], peer: Peer, hub: Hub) -> None:
        self.settings = settings
        self.publications = RemotePublications(peer, hub)
        self.subscriptions = cast(Subscriptions, ForwardedRole("subscriptions", peer))
        self.live = LiveSubscriptions(self.subscriptions.remove)
        count_pending = partial(peer.request, "sessions.pending")
        self.sessions = HubSessions(hub, share, ports, self.live, count_pending)
        slices = RemoteSlices("slices", peer)
        self.slices = cast(Slices, slices)
        self.observation = RemoteObservation(peer, slices)
