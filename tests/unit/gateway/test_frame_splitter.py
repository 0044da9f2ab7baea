"""Short messages are read from a client's stream, and everything else is passed on as it came."""

import struct

import pytest
from websockets.frames import Frame, Opcode

from culver.gateway.server.frame_splitter import MAX_SHORT_BYTES, FrameSplitter, Unread

TEXT, BINARY, CLOSE, PING = 1, 2, 8, 9


def frame(payload: bytes, opcode: int = TEXT, *, final: bool = True) -> bytes:
    return Frame(Opcode(opcode), payload, fin=final).serialize(mask=True)


MESSAGE = frame(b'{"op": "ping"}')


@pytest.mark.parametrize("kind", [TEXT, BINARY])
@pytest.mark.parametrize("length", [0, 1, 125, 126, MAX_SHORT_BYTES])
def test_a_short_message_is_read_as_clients_write_it_and_a_part_of_one_is_passed_on(
    length: int, kind: int
) -> None:
    message: str | bytes = "x" * length if kind == TEXT else b"\xff" * length
    data = frame(message.encode() if isinstance(message, str) else message, kind)
    splitter = FrameSplitter(65_536)
    assert list(splitter.split(data + data)) == [message] * 2
    for cut in range(1, min(len(data), 20)):
        pieces = [*splitter.split(data[:cut]), *splitter.split(data[cut:] + data)]
        assert pieces.pop() == message
        assert pieces in ([message], [Unread(data[:cut]), Unread(data[cut:])]), cut


@pytest.mark.parametrize(
    "data",
    [
        frame(b"x", PING), frame(struct.pack("!H", 1000), CLOSE), frame(b"\xff\xfe"),
        frame(b"x", opcode=0), b"\x83" + MESSAGE[1:],
        frame(b"x", final=False), b"\xc1" + MESSAGE[1:], Frame(Opcode.TEXT, b"xxxxxxx").serialize(mask=False),
        frame(b"x" * 1_001), frame(b"x" * 1_001, BINARY), frame(b"x", BINARY, final=False), b"\xc2" + MESSAGE[1:],
    ],
    ids=[
        "ping", "close", "no UTF-8", "continuation", "reserved opcode",
        "fragment", "reserved bit", "unmasked", "long", "long binary", "binary fragment", "binary reserved bit",
    ],
)  # fmt: skip
def test_anything_but_a_short_message_is_passed_on(data: bytes) -> None:
    assert list(FrameSplitter(1_000).split(data)) == [Unread(data)]


@pytest.mark.parametrize("message", [MESSAGE, frame(b"x", BINARY)], ids=["text", "binary"])
def test_a_message_between_fragments_is_passed_on(message: bytes) -> None:
    stream = [frame(b"x", final=False), frame(b"", PING), message]
    assert list(FrameSplitter(1_000).split(b"".join(stream))) == [Unread(data) for data in stream]
