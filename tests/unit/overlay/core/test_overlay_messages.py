import msgspec
import pytest

from culver.overlay.core.overlay_messages import (
    AdvertisementDigest,
    LinkState,
    OverlayMessage,
    Packet,
    StreamAcknowledgement,
    StreamPart,
    decode_message,
    encode_message,
)
from support.linked_nodes import LYON, PARIS

PACKET = Packet(PARIS, 7, 1, b"\x01", (StreamPart(0, 10, 1),), (9,), (b"event",))


@pytest.mark.parametrize(
    "message", [PACKET, LinkState(PARIS, 3, ((LYON, 1),), 12), AdvertisementDigest(((PARIS, 4),))]
)
def test_a_message_is_read_as_it_was_written(message: OverlayMessage) -> None:
    assert decode_message(encode_message(message)) == message


@pytest.mark.parametrize(
    "message",
    [
        LinkState(PARIS, (1 << 64) - 1, (), 0),
        LinkState(PARIS, 1, ((LYON, -1),), 0),
        AdvertisementDigest(((PARIS, 1 << 63),)),
        StreamAcknowledgement(PARIS, LYON, -5, 0, False),
        msgspec.structs.replace(PACKET, streams=(StreamPart(0, -1, 1),)),
        msgspec.structs.replace(PACKET, offsets=(-1,)),
    ],
)
def test_numbers_from_which_nobody_can_count_on_are_refused(message: OverlayMessage) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_message(encode_message(message))


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x90", msgspec.msgpack.encode([99, 1]), b"\x91\x01"])
def test_anything_else_is_no_message(body: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_message(body)
