"""Frames come out of the stream as they went in, however it is cut, and whatever breaks the format ends it."""

import zlib
from struct import pack

import pytest
from hypothesis import given, strategies as st

from culver.overlay.links.frame_format import Frame, FrameKind, FrameStream, pack_frame

frames = st.lists(st.builds(Frame, st.sampled_from(FrameKind), st.binary(max_size=300)), max_size=12)
sizes = st.lists(st.integers(1, 400), min_size=1, max_size=30)


def pieces(data: bytes, sizes: list[int]) -> list[bytes]:
    """Cuts data into pieces of these sizes, and the rest into pieces of the last size."""
    cut: list[bytes] = []
    start = 0
    while start < len(data):
        size = sizes[min(len(cut), len(sizes) - 1)]
        cut.append(data[start : start + size])
        start += size
    return cut


@given(frames, sizes)
def test_frames_survive_any_cut_of_the_stream(sent: list[Frame], sizes: list[int]) -> None:
    stream = FrameStream(300)
    data = b"".join(pack_frame(*frame) for frame in sent)
    assert [frame for piece in pieces(data, sizes) for frame in stream.split(piece)] == sent
    assert stream.violation is None


@given(frames.filter(bool), sizes, st.data())
def test_a_flipped_bit_never_gives_a_wrong_frame(
    sent: list[Frame], sizes: list[int], draw: st.DataObject
) -> None:
    data = bytearray(b"".join(pack_frame(*frame) for frame in sent))
    place = draw.draw(st.integers(0, len(data) - 1))
    data[place] ^= 1 << draw.draw(st.integers(0, 7))
    stream = FrameStream(300)
    got = [frame for piece in pieces(bytes(data), sizes) for frame in stream.split(piece)]
    # A flipped length may make the stream wait for more than there is; nothing wrong comes out.
    assert got == sent[: len(got)]
    assert len(got) < len(sent)


@given(st.binary(max_size=2_000), sizes)
def test_garbage_never_raises(data: bytes, sizes: list[int]) -> None:
    stream = FrameStream(300)
    for piece in pieces(data, sizes):
        list(stream.split(piece))
    assert list(stream.split(b"")) == []


def test_a_long_frame_is_refused_by_its_header() -> None:
    stream = FrameStream(100)
    fine = pack_frame(FrameKind.DATA, bytes(100))
    assert len(list(stream.split(fine))) == 1
    assert list(stream.split(pack(">II", 102, 0))) == []
    assert stream.violation is not None
    assert stream.violation.code == "oversized"
    assert list(stream.split(fine)) == []


def test_the_bound_may_change_between_two_frames_of_one_chunk() -> None:
    stream = FrameStream(10)
    got = []
    for frame in stream.split(pack_frame(FrameKind.HELLO, b"short") + pack_frame(FrameKind.DATA, bytes(50))):
        stream.most_content_bytes = 50
        got.append(frame.kind)
    assert got == [FrameKind.HELLO, FrameKind.DATA]


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (pack(">II", 0, 0), "garbage"),
        (pack(">IIB", 1, zlib.crc32(b"\x63"), 0x63), "garbage"),
        (pack(">IIB", 1, 0, 2), "damaged"),
    ],
)
def test_other_violations_are_told_apart(frame: bytes, code: str) -> None:
    stream = FrameStream(100)
    assert list(stream.split(frame)) == []
    assert stream.violation is not None
    assert stream.violation.code == code


def test_answer_of_a_web_server_is_called_by_its_name() -> None:
    stream = FrameStream(300)
    assert list(stream.split(b"HTTP/1.1 400 Bad Request\r\n\r\n")) == []
    assert stream.violation is not None
    assert stream.violation.words.startswith("the peer speaks HTTP")
