"""The channels of one WebSocket connection."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import msgspec

from culver.errors import Conflict, NotFound
from culver.gateway.api.channel_encoding import bytes_of, content_of, gap_of
from culver.gateway.gateway_context import Gateway
from culver.gateway.routes.channel_routes import MESSAGES_AT_ONCE
from culver.messages import (
    ChannelGapNotice,
    ChannelMessages,
    ChannelPublish,
    ChannelPublished,
    ChannelSubscribe,
    ChannelSubscribed,
    ChannelUnsubscribe,
    ChannelUnsubscribed,
    Reference,
    ServerMessage,
)
from culver.roles import ChannelLoss, ChannelSession

ChannelRequest = ChannelPublish | ChannelSubscribe | ChannelUnsubscribe


@dataclass(slots=True)
class _Attached:
    """A channel on this connection. It has no reader while it is being subscribed to."""

    reader: ChannelSession | None = None
    pump: asyncio.Task[None] | None = None


class ChannelAttachments:
    """`send` sends a message, `wait_for_space` waits until the client has read enough for more, and `start` runs the
    task of a channel, which pumps its messages out."""

    def __init__(
        self,
        gateway: Gateway,
        send: Callable[[ServerMessage], Awaitable[None]],
        wait_for_space: Callable[[], Awaitable[None]],
        start: Callable[[str, Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self._gateway = gateway
        self._send = send
        self._wait_for_space = wait_for_space
        self._start = start
        self._attached: dict[str, _Attached] = {}

    def __len__(self) -> int:
        return len(self._attached)

    async def perform(self, message: ChannelRequest, reference: Reference) -> None:
        match message:
            case ChannelPublish(channel=channel):
                receivers = await self._gateway.site.channels.publish(channel, bytes_of(message))
                await self._send(ChannelPublished(ref=reference, channel=channel, receivers=receivers))
            case ChannelSubscribe(channel=channel):
                await self._subscribe(channel, reference)
            case ChannelUnsubscribe(channel=channel):
                await self._unsubscribe(channel)
                await self._send(ChannelUnsubscribed(ref=reference, channel=channel))

    async def close(self) -> None:
        """Call it when the tasks of the connection have ended."""
        attached, self._attached = self._attached, {}
        for each in attached.values():
            if each.reader is not None:
                await each.reader.close()

    async def drop(self, channel: str) -> None:
        """Let go of a channel whose task has failed."""
        attached = self._attached.pop(channel, None)
        if attached is not None and attached.reader is not None:
            await attached.reader.close()

    async def _subscribe(self, channel: str, reference: Reference) -> None:
        if channel in self._attached:
            raise Conflict(f"channel {channel[:200]!r} is on this connection already", field="channel")
        attached = self._attached[channel] = _Attached()
        try:
            attached.reader = reader = await self._gateway.site.channels.subscribe(channel)
        except BaseException:
            self._attached.pop(channel, None)
            raise
        await self._send(ChannelSubscribed(channel, ref=reference))
        attached.pump = self._start(channel, self._pump(channel, reader))

    async def _unsubscribe(self, channel: str) -> None:
        attached = self._attached.get(channel)
        if attached is None or attached.reader is None or attached.pump is None:
            raise NotFound(f"channel {channel[:200]!r} is not on this connection", field="channel")
        del self._attached[channel]
        attached.pump.cancel()
        await asyncio.wait([attached.pump])
        await attached.reader.close()

    async def _pump(self, channel: str, reader: ChannelSession) -> None:
        metrics = self._gateway.metrics
        sent = metrics.channel_messages.labels("websocket")
        while True:
            await self._wait_for_space()
            items = await reader.receive(MESSAGES_AT_ONCE, None)
            for is_loss, run in groupby(items, lambda item: isinstance(item, ChannelLoss)):
                if not is_loss:
                    messages = [content_of(item) for item in run if isinstance(item, bytes)]
                    await self._send(ChannelMessages(channel, messages))
                    sent.inc(len(messages))
                    continue
                for item in run:
                    assert isinstance(item, ChannelLoss)
                    gap = gap_of(item)
                    await self._send(ChannelGapNotice(channel=channel, **msgspec.structs.asdict(gap)))
                    metrics.channel_gaps.labels(gap.reason).inc()
