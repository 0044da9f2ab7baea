"""A site used from a further gateway process, and both ends of that.

    gateway process                                      site
    RemoteSite                                           ServedSite
      subscriptions.add(specs)  --PeerRequest "subscriptions.add", specs-->  subscriptions.add(specs)

The sessions, channels and history of a gateway process are its own, though the site tells the history where the log
ends; the site answers for the other roles. A new method of those needs nothing here: the one end forwards it by its
name, and the other looks it up.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

from culver.config import Settings
from culver.control import SiteObservation, Slices, SlicesView
from culver.delivery import HistoryPage, Hub, LogBounds, LogHistory, Share
from culver.log import CommitReceipt, FollowedLog, ReadableLog
from culver.messages import OverlayStatus
from culver.model import Event
from culver.model.language import Predicate
from culver.registry import Registration, SubscriptionSpec
from culver.roles import NumberedPart, PublicationNumbers, Site, SiteChannels, Subscriptions, WideArea
from culver.site.peer import Peer
from culver.site.roles.hub_sessions import HubSessions, LiveSubscriptions


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

    def publish_once(
        self, events: Sequence[Event], numbers: PublicationNumbers
    ) -> "asyncio.Future[list[NumberedPart]]":
        answer = self._peer.request("publications.publish_once", events, numbers)
        answer.add_done_callback(partial(self._remember_new, events))
        return answer

    def _remember_new(self, events: Sequence[Event], answer: "asyncio.Future[list[NumberedPart]]") -> None:
        if answer.cancelled() or answer.exception() is not None:
            return
        at = 0
        for first, following, is_repeat in answer.result():
            part = events[at : at + following - first]
            if not is_repeat:
                self._hub.payloads.remember(first, [event.payload for event in part])
            at += len(part)

    def _remember(self, events: Sequence[Event], answer: "asyncio.Future[CommitReceipt]") -> None:
        if not answer.cancelled() and answer.exception() is None:
            self._hub.payloads.remember(answer.result().first_offset, [event.payload for event in events])


class RemoteHistory(LogHistory):
    """Reads the log itself, up to where the site says that it ends: this process hears of events only when they are
    matched."""

    def __init__(self, peer: Peer, log: FollowedLog) -> None:
        super().__init__(log)
        self._peer = peer
        self._followed = log

    async def bounds(self) -> LogBounds:
        await self._follow()
        return await super().bounds()

    async def offset_at(self, received_us: int) -> int:
        await self._follow()
        return await super().offset_at(received_us)

    async def read(self, start: int, end: int, limit: int, predicate: Predicate | None = None) -> HistoryPage:
        if end > self._followed.next_offset:
            await self._follow()
        return await super().read(start, end, limit, predicate)

    async def pick(self, offsets: Sequence[int]) -> HistoryPage:
        if offsets and offsets[-1] >= self._followed.next_offset:
            await self._follow()
        return await super().pick(offsets)

    async def _follow(self) -> None:
        bounds: LogBounds = await self._peer.request("history.bounds")
        self._followed.extend(bounds.next_offset)


class RemoteSlices(ForwardedRole):
    """`seen` is the view of the last refresh."""

    seen: SlicesView | None = None

    def view(self) -> SlicesView:
        assert self.seen is not None, "refresh first"
        return self.seen


class RemoteOverlay(ForwardedRole):
    """`seen` is the status of the last refresh."""

    seen: OverlayStatus | None = None

    def status(self) -> OverlayStatus | None:
        return self.seen


class RemoteObservation:
    """Tells what the site told at the last refresh, and the damage that this process has found in the log."""

    def __init__(self, peer: Peer, slices: RemoteSlices, overlay: RemoteOverlay, log: ReadableLog) -> None:
        self._peer = peer
        self._log = log
        self._slices = slices
        self._overlay = overlay
        self._status: dict[str, Any] = {"ready": False}
        self._seen: SiteObservation | None = None

    async def refresh(self) -> None:
        answer = await self._peer.request("look")
        self._status, self._seen, self._slices.seen, self._overlay.seen = answer

    @property
    def ready(self) -> bool:
        return bool(self._status["ready"])

    def status(self) -> dict[str, Any]:
        told = self._status.get("log_damage", [])
        found = [each._asdict() for each in self._log.damage]
        return {**self._status, "log_damage": told + [each for each in found if each not in told]}

    def observe(self) -> SiteObservation:
        assert self._seen is not None, "refresh first"
        return self._seen


class RemoteSite:
    """Implements `roles.Site`. The other end of the peer serves a `ServedSite`; `ports` are those of all gateways, by
    number. The process has `channels` of its own, as it has its own sessions."""

    def __init__(
        self,
        settings: Settings,
        share: Share,
        ports: Sequence[int],
        peer: Peer,
        hub: Hub,
        channels: SiteChannels,
        log: FollowedLog,
    ) -> None:
        self.settings = settings
        self.channels = channels
        self.publications = RemotePublications(peer, hub)
        self.subscriptions = cast(Subscriptions, ForwardedRole("subscriptions", peer))
        self.live = LiveSubscriptions(self.subscriptions.remove)
        count_pending = partial(peer.request, "sessions.pending")
        self.sessions = HubSessions(hub, share, ports, self.live, count_pending)
        slices, overlay = RemoteSlices("slices", peer), RemoteOverlay("overlay", peer)
        self.history = RemoteHistory(peer, log)
        self.slices = cast(Slices, slices)
        self.overlay = cast(WideArea, overlay)
        self.observation = RemoteObservation(peer, slices, overlay, log)


class ServedSite:
    """Has the roles of `site` under the same names. `is_gone` tells whether the gateway process has ended, and
    `sent_elsewhere` how many deliveries the other gateways have sent. The gateway asks to `give_up_reserve` before it
    writes an acknowledgement once more for which the disk had no space."""

    def __init__(
        self,
        site: Site,
        live: LiveSubscriptions,
        is_gone: Callable[[], bool],
        sent_elsewhere: Callable[[], int],
        give_up_reserve: Callable[[], Awaitable[None]],
    ) -> None:
        self.give_up_reserve = give_up_reserve
        self.publications = site.publications
        self.subscriptions = ServedSubscriptions(site.subscriptions, live, is_gone)
        self.sessions = site.sessions
        self.history = site.history
        self.slices = site.slices
        self.overlay = site.overlay
        self._observation = site.observation
        self._sent_elsewhere = sent_elsewhere

    def look(self) -> tuple[dict[str, Any], SiteObservation, SlicesView, OverlayStatus | None]:
        """Tell everything that the gateway's `observation.refresh` asks for, in one answer."""
        seen = replace(self._observation.observe(), deliveries_sent=self._sent_elsewhere())
        return self._observation.status(), seen, self.slices.view(), self.overlay.status()


class ServedSubscriptions:
    """Ends a live subscription if the process of its connection dies before it hears of it."""

    def __init__(
        self, subscriptions: Subscriptions, live: LiveSubscriptions, is_gone: Callable[[], bool]
    ) -> None:
        self._subscriptions = subscriptions
        self._live = live
        self._is_gone = is_gone

    def __getattr__(self, method: str) -> Any:
        return getattr(self._subscriptions, method)

    async def add(self, specs: Sequence[SubscriptionSpec]) -> list[Registration]:
        added = await self._subscriptions.add(specs)
        for each in added if self._is_gone() else ():
            if not each.durable:
                await self._live.end(each.id)
        return added
