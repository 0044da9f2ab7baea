"""The site as one of its other gateways has it: receiving is done here, everything else is asked of the site."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from culver.config import Settings
from culver.control import SiteObservation, SlicesView
from culver.delivery import Hub, Share, share_of
from culver.log import CommitReceipt
from culver.model import Event
from culver.registry import Block, BlockSpec, Registration, SetSummary, SubscriptionSpec
from culver.roles import Session
from culver.site.live_subscriptions import LiveSubscriptions
from culver.site.peer import Peer


class RemoteSlices:
    """Implements pipeline.slices.Slices; `told` is what the site told last."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self.told: SlicesView | None = None

    async def add(self, split: int | None = None) -> SlicesView:
        answer: SlicesView = await self._peer.request("add_slice", split)
        return answer

    async def remove(self, number: int) -> SlicesView:
        answer: SlicesView = await self._peer.request("remove_slice", number)
        return answer

    def view(self) -> SlicesView:
        assert self.told is not None, "refresh first"
        return self.told


class RemoteSite:
    """Implements gateway.site.Site. `ports` are those of all gateways, by number."""

    def __init__(self, settings: Settings, share: Share, ports: Sequence[int], peer: Peer, hub: Hub) -> None:
        self._settings = settings
        self._share = share
        self._ports = ports
        self._peer = peer
        self._hub = hub
        self._status: dict[str, Any] = {"ready": False}
        self._seen: SiteObservation | None = None
        self.slices = RemoteSlices(peer)
        self.live = LiveSubscriptions(self.unsubscribe)

    # --- of this gateway ------------------------------------------------------------------------------

    @property
    def settings(self) -> Settings:
        return self._settings

    def elsewhere(self, subscription: str) -> int | None:
        number = share_of(subscription, self._share.gateways)
        return None if number == self._share.number else self._ports[number]

    def new_live_id(self) -> str:
        return self._share.new_live_id()

    async def open_session(self, registration: Registration, after: int | None = None) -> Session:
        session = await self._hub.open_session(registration, after)
        return session if registration.durable else self.live.session(session)

    # --- of the site ----------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        return bool(self._status["ready"])

    def status(self) -> dict[str, Any]:
        return self._status

    def observe(self) -> SiteObservation:
        assert self._seen is not None, "refresh first"
        return self._seen

    async def refresh(self) -> None:
        self._status, self._seen, self.slices.told = await self._peer.request("look")

    def publish(self, events: Sequence[Event]) -> "asyncio.Future[CommitReceipt]":
        answer = self._peer.request("publish", events)
        answer.add_done_callback(partial(self._remember, events))
        return answer

    def _remember(self, events: Sequence[Event], answer: "asyncio.Future[CommitReceipt]") -> None:
        if not answer.cancelled() and answer.exception() is None:
            self._hub.payloads.remember(answer.result().first_offset, [event.payload for event in events])

    async def subscribe(self, specs: Sequence[SubscriptionSpec]) -> list[Registration]:
        answer: list[Registration] = await self._peer.request("subscribe", specs)
        return answer

    async def subscribe_block(self, spec: BlockSpec) -> Block:
        answer: Block = await self._peer.request("subscribe_block", spec)
        return answer

    async def sets(self, after: str | None, limit: int) -> list[SetSummary]:
        answer: list[SetSummary] = await self._peer.request("sets", after, limit)
        return answer

    async def unsubscribe_set(self, name: str) -> int:
        answer: int = await self._peer.request("unsubscribe_set", name)
        return answer

    async def replace(self, spec: SubscriptionSpec) -> Registration:
        answer: Registration = await self._peer.request("replace", spec)
        return answer

    async def unsubscribe(self, subscription: str) -> Registration:
        answer: Registration = await self._peer.request("unsubscribe", subscription)
        return answer

    async def subscription(self, subscription: str) -> Registration:
        answer: Registration = await self._peer.request("subscription", subscription)
        return answer

    async def subscriptions(self, after: str | None, limit: int) -> list[Registration]:
        answer: list[Registration] = await self._peer.request("subscriptions", after, limit)
        return answer

    async def pending(self, registrations: Sequence[Registration]) -> list[int]:
        answer: list[int] = await self._peer.request("pending", registrations)
        return answer
