"""Frames of a WebSocket without a library: clients that cost as little as a benchmark's clients should."""

# RFC 6455, section 5.2: a first byte that says that the frame is the whole message, and of what kind.
TEXT, BINARY, CLOSE, PING, PONG = 0x81, 0x82, 0x88, 0x89, 0x8A


def client_frame(kind: int, payload: bytes) -> bytes:
    """A client's frame. Its mask is zero, which leaves the payload as it is and costs the client nothing."""
    size = len(payload)
    if size < 126:
        header = bytes((kind, 0x80 | size))
    elif size < 1 << 16:
        header = bytes((kind, 0xFE)) + size.to_bytes(2, "big")
    else:
        header = bytes((kind, 0xFF)) + size.to_bytes(8, "big")
    return b"".join((header, bytes(4), payload))


def whole_frame(data: bytes, at: int) -> tuple[int, int, int] | None:
    """The kind of the server's frame at `at`, and the start and end of its payload; None if the frame is not
    complete."""
    if len(data) - at < 2:
        return None
    length, begin = data[at + 1], at + 2
    if length == 126:
        length, begin = int.from_bytes(data[at + 2 : at + 4], "big"), at + 4
    elif length == 127:
        length, begin = int.from_bytes(data[at + 2 : at + 10], "big"), at + 10
    return (data[at], begin, begin + length) if begin + length <= len(data) else None
