"""How frames lie in the stream of bytes between two sites.

 0        4        8      9            9 + n
+--------+--------+------+------------+
| length | CRC-32 | kind | content    |
+--------+--------+------+------------+
           length = 1 + n: kind and content
           CRC-32 of kind and content; numbers are big endian

kind      content                              who, when
HELLO     see ``hello``                        the first frame each way; the dialler speaks first
OPEN      nothing                              the site with the smaller key: this connection is the link
DATA      what the site sends                  both, once the link is open
PING      a number of 8 bytes                  both, once the link is open
PONG      the number of the ping               its answer
REFUSE    code and words, see ``refusals``     both, at any time; the sender closes after it
"""

import zlib
from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from culver.overlay.links.refusals import DAMAGED, GARBAGE, OVERSIZED, LinkRefusal


class FrameKind(IntEnum):
    HELLO = 1
    OPEN = 2
    DATA = 3
    PING = 4
    PONG = 5
    REFUSE = 6


class Frame(NamedTuple):
    kind: FrameKind
    content: bytes


_HEADER = Struct(">II")
_HEADER_AND_KIND = Struct(">IIB")
_KINDS = {int(kind): kind for kind in FrameKind}
_CRC_OF_KIND = {kind: zlib.crc32(bytes((kind,))) for kind in FrameKind}

#: How the answer of a web server begins, read as a length.
_HTTP = int.from_bytes(b"HTTP")

#: The place of the kind in a packed frame.
KIND_AT = _HEADER.size


def pack_frame(kind: FrameKind, content: bytes = b"") -> bytes:
    return _HEADER_AND_KIND.pack(len(content) + 1, zlib.crc32(content, _CRC_OF_KIND[kind]), kind) + content


class FrameStream:
    """Cuts a stream into frames. Memory stays within the longest frame that ``most_content_bytes`` allows and one
    chunk: a longer frame is refused by its header, before anything of it is kept."""

    def __init__(self, most_content_bytes: int) -> None:
        #: May be changed between two frames, even while ``split`` is underway.
        self.most_content_bytes = most_content_bytes
        #: Set when the stream breaks the format. No frame comes after that.
        self.violation: LinkRefusal | None = None
        self._chunks: list[bytes] = []
        self._kept_bytes = 0
        self._needed_bytes = _HEADER.size

    def split(self, chunk: bytes) -> Iterator[Frame]:
        """Yields the frames that are complete with this chunk, in order; take them all, or use the splitter no more.
        An empty result is usual, as is one of many frames."""
        self._chunks.append(chunk)
        self._kept_bytes += len(chunk)
        if self._kept_bytes < self._needed_bytes or self.violation is not None:
            return
        # Joining only when a frame or its header is complete keeps a long frame in small chunks linear.
        data = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        view = memoryview(data)
        start, end = 0, len(data)
        while True:
            self._needed_bytes = _HEADER.size
            if end - start < _HEADER.size:
                break
            length, checksum = _HEADER.unpack_from(data, start)
            if (violation := self._violation_of(length)) is not None:
                self.violation = violation
                return
            self._needed_bytes = _HEADER.size + length
            if end - start < self._needed_bytes:
                break
            first = start + _HEADER.size
            start = first + length
            if zlib.crc32(view[first:start]) != checksum:
                self.violation = LinkRefusal(DAMAGED, "a frame does not have its checksum")
                return
            if (kind := _KINDS.get(data[first])) is None:
                self.violation = LinkRefusal(GARBAGE, f"a frame has the unknown kind {data[first]}")
                return
            yield Frame(kind, data[first + 1 : start])
        self._kept_bytes = end - start
        if self._kept_bytes:
            self._chunks.append(data[start:])

    def _violation_of(self, length: int) -> LinkRefusal | None:
        if length == 0:
            return LinkRefusal(GARBAGE, "a frame has not even a kind")
        if length == _HTTP:
            words = "the peer speaks HTTP: this is the port of a gateway, and not the one for other sites"
            return LinkRefusal(GARBAGE, words)
        if length - 1 > self.most_content_bytes:
            return LinkRefusal(OVERSIZED, f"a frame of {length - 1} bytes exceeds {self.most_content_bytes}")
        return None
