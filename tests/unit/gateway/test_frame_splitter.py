"""Short texts are read from a client's stream, and everything else is passed on as it came."""

import struct

import pytest
from websockets.frames import Frame, Opcode

from culver.gateway.server.frame_splitter import MAX_SHORT_BYTES, FrameSplitter

TEXT, BINARY, CLOSE, PING = 1, 2, 8, 9


def frame(payload: bytes, opcode: int = TEXT, *, final: bool = True) -> bytes:
    return Frame(Opcode(opcode), payload, fin=final).serialize(mask=True)


MESSAGE = frame(b'{"op": "ping"}')


@pytest.mark.parametrize("length", [0, 1, 125, 126, MAX_SHORT_BYTES])
def test_a_short_text_is_read_as_clients_write_it_and_a_part_of_one_is_passed_on(length: int) -> None:
    data = Frame(Opcode.TEXT, b"x" * length).serialize(mask=True)
    splitter = FrameSplitter(65_536)
    assert list(splitter.split(data + data)) == ["x" * length] * 2
    for cut in range(1, min(len(data), 20)):
        pieces = [*splitter.split(data[:cut]), *splitter.split(data[cut:] + data)]
        assert pieces.pop() == "x" * length
        assert pieces in (["x" * length], [data[:cut], data[cut:]]), cut


@pytest.mark.parametrize(
    "data",
    [
        frame(b"x", BINARY), frame(b"x", PING), frame(struct.pack("!H", 1000), CLOSE), frame(b"\xff\xfe"),
        frame(b"x", opcode=0), b"\x83" + MESSAGE[1:],
        frame(b"x", final=False), b"\xc1" + MESSAGE[1:], Frame(Opcode.TEXT, b"xxxxxxx").serialize(mask=False),
        frame(b"x" * 1_001),
    ],
    ids=[
        "binary", "ping", "close", "no UTF-8", "continuation", "reserved opcode",
        "fragment", "reserved bit", "unmasked", "long",
    ],
)  # fmt: skip
def test_anything_but_a_short_text_is_passed_on(data: bytes) -> None:
    assert list(FrameSplitter(1_000).split(data)) == [data]


def test_a_text_between_fragments_is_passed_on() -> None:
    stream = [frame(b"x", final=False), frame(b"", PING), MESSAGE]
    assert list(FrameSplitter(1_000).split(b"".join(stream))) == stream
