"""`/v1/channels`: the channels of the site's channel service over HTTP and Server-Sent Events.

event: subscribed      data: {"channel"}
event: message         id: NUMBER, data: {"data"}, with "encoding": "base64" where it is not UTF-8
event: gap             data: {"reason", ...}: messages are missing
: heartbeat            every 15 seconds without anything else
"""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Send

from culver.gateway.api.channel_encoding import bytes_of, content_of, gap_of
from culver.gateway.api.delivery_encoding import encode
from culver.gateway.api.operations import Operations
from culver.gateway.gateway_context import Gateway, gateway_of
from culver.gateway.routes.receiving_routes import (
    HEARTBEAT,
    LAST_ID,
    RETRY,
    SentEvents,
    send_part,
    sent_event,
)
from culver.messages import ChannelGap, ChannelStart, NewChannelMessage, PublishedMessage
from culver.roles import ChannelLoss, ChannelSession, ChannelsStatus

MESSAGES_AT_ONCE = 256

operations = Operations("channels", "Channels of the site's channel service")
_MESSAGES = "`subscribed`, `message`, `gap` and `error`; a comment as heartbeat"
_STREAM: dict[str, Any] = {
    "result": "A stream",
    "answer": {"text/event-stream": {"schema": {"type": "string", "description": _MESSAGES}}},
    "parameters": (
        {
            "name": "Last-Event-ID",
            "in": "header",
            "schema": {"type": "string"},
            "description": "The id of the last message before a reconnection: the stream begins with a gap",
        },
    ),
}


@operations.add("GET /v1/channels")
async def read_channels(request: Request) -> ChannelsStatus:
    """Tell what this gateway does with channels."""
    return gateway_of(request).site.channels.status()


@operations.add("POST /v1/channels/{channel}", problems=(409, 502))
async def publish_message(request: Request, body: NewChannelMessage) -> PublishedMessage:
    """Publish a message on a channel."""
    data = bytes_of(body)
    receivers = await gateway_of(request).site.channels.publish(request.path_params["channel"], data)
    return PublishedMessage(receivers=receivers)


@operations.add("GET /v1/channels/{channel}/stream", problems=(409, 413, 502), **_STREAM)
async def stream_channel(request: Request) -> Response:
    """Stream a channel as Server-Sent Events."""
    gateway, channel = gateway_of(request), request.path_params["channel"]
    reader = await gateway.site.channels.subscribe(channel)
    return ChannelStream(gateway, channel, reader, is_reconnection=bool(request.headers.get(LAST_ID)))


class ChannelStream(SentEvents):
    """Sends what a reader of a channel receives. Owns the reader, which drops messages, and tells so, if its client
    reads too slowly."""

    def __init__(
        self, gateway: Gateway, channel: str, reader: ChannelSession, *, is_reconnection: bool
    ) -> None:
        super().__init__(gateway)
        self._channel = channel
        self._reader = reader
        self._is_reconnection = is_reconnection
        self._sent = 0

    async def close(self) -> None:
        await self._reader.close()

    async def pump(self, send: Send) -> None:
        await send_part(send, RETRY + sent_event("subscribed", encode(ChannelStart(self._channel))))
        if self._is_reconnection:
            await send_part(send, self._gap(ChannelGap(reason="disconnected")))
        sent = self.gateway.metrics.channel_messages.labels("sse")
        while True:
            items = await self._reader.receive(MESSAGES_AT_ONCE, self.gateway.heartbeat_seconds)
            before = self._sent
            await send_part(send, b"".join(map(self._event, items)) or HEARTBEAT)
            sent.inc(self._sent - before)

    def _event(self, item: bytes | ChannelLoss) -> bytes:
        if isinstance(item, ChannelLoss):
            return self._gap(gap_of(item))
        self._sent += 1
        return b"id: %d\n%b" % (self._sent, sent_event("message", encode(content_of(item))))

    def _gap(self, gap: ChannelGap) -> bytes:
        self.gateway.metrics.channel_gaps.labels(gap.reason).inc()
        return sent_event("gap", encode(gap))
