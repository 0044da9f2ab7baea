"""Messages of channels as JSON has them, and back."""

import base64
import binascii

from culver.errors import InvalidRequest
from culver.messages import ChannelContent, ChannelGap, ChannelPublish, NewChannelMessage
from culver.roles import ChannelLoss


def content_of(data: bytes) -> ChannelContent:
    try:
        return ChannelContent(data=data.decode())
    except UnicodeDecodeError:
        return ChannelContent(data=base64.b64encode(data).decode(), encoding="base64")


def bytes_of(message: NewChannelMessage | ChannelPublish) -> bytes:
    """Raises InvalidRequest."""
    if message.encoding == "text":
        return message.data.encode()
    try:
        return base64.b64decode(message.data, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidRequest("data is not base64, as encoding says", field="data") from None


def gap_of(loss: ChannelLoss) -> ChannelGap:
    return ChannelGap(
        reason="overflow" if loss.is_slow else "lost",
        publisher=f"{loss.publisher:016x}",
        first=loss.first,
        last=loss.last,
    )
