"""The formats of events: JSON, NDJSON and CloudEvents 1.0, each checked once and turned into an `Event`."""

from culver.model.formats.event_bodies import (
    MEDIA_TYPES,
    NDJSON,
    decode_body,
    decode_lines,
    event_from_object,
    parse_event,
    plain_events,
)
from culver.model.formats.json_text import find_member, read_plain, strict_json
from culver.model.formats.line_splitter import LineSplitter
from culver.model.formats.media_types import parse_media_type, unsupported

__all__ = [
    "MEDIA_TYPES",
    "NDJSON",
    "LineSplitter",
    "decode_body",
    "decode_lines",
    "event_from_object",
    "find_member",
    "parse_event",
    "parse_media_type",
    "plain_events",
    "read_plain",
    "strict_json",
    "unsupported",
]
