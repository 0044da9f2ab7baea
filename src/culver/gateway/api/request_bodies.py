"""Reads request bodies within a bound, and checks their media types."""

import asyncio

from starlette.datastructures import Headers
from starlette.requests import Request

from culver.errors import InvalidRequest, TooLarge
from culver.model.formats import parse_media_type, unsupported

STALL_SECONDS = 30.0


async def read_body(request: Request, limit: int, stall_seconds: float = STALL_SECONDS) -> bytes:
    """Read the whole body, at most `limit` bytes. Raises TooLarge as soon as the declared or the received
    length passes it, InvalidRequest when nothing arrives for `stall_seconds`."""
    check_declared_length(request.headers, limit)
    chunks: list[bytes] = []
    total = 0
    stream = request.stream()
    while True:
        try:
            async with asyncio.timeout(stall_seconds):
                chunk = await anext(stream, b"")
        except TimeoutError:
            raise InvalidRequest(
                f"the body stopped arriving for {stall_seconds:g} seconds; send it again", field="body"
            ) from None
        if not chunk:
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)
        total += len(chunk)
        if total > limit:
            raise _too_large(limit)
        chunks.append(chunk)


def check_declared_length(headers: Headers, limit: int) -> None:
    declared = headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared[:20]) > limit:
        raise _too_large(limit)


def media_type(headers: Headers) -> str:
    """The media type in lower case without parameters; empty where the header is missing. Raises
    InvalidRequest for a charset that is not UTF-8."""
    # An empty header is no JSON: a page of another origin may send one without asking first.
    media = parse_media_type(headers.get("content-type", "").strip() or ";")
    if media.charset not in (None, "utf-8", "utf8"):
        raise unsupported("the charset must be utf-8")
    return media.name


def require_json(headers: Headers) -> None:
    """Raises InvalidRequest (status 415) unless the body says it is JSON. A page of another origin cannot
    say so without asking first, which keeps such pages from sending anything."""
    kind = media_type(headers)
    if kind != "application/json":
        raise unsupported(f"send the body as application/json, not {kind or 'without a content type'}")


def _too_large(limit: int) -> TooLarge:
    return TooLarge(
        f"the body is larger than {limit} bytes; send less at once, or raise gateway.max_body_bytes",
        field="body",
        limit=limit,
    )


def line_too_large(limit: int, line: int) -> TooLarge:
    return TooLarge(
        f"a line is longer than {limit} bytes; send smaller events, or raise gateway.max_message_bytes",
        field="line",
        limit=limit,
        line=line,
    )
