"""How events enter: JSON, NDJSON and CloudEvents 1.0, each checked once and turned into an `Event`."""

from culver.model.formats.event_bodies import (
    MEDIA_TYPES,
    NDJSON,
    decode_body,
    decode_lines,
    event_from_object,
    parse_event,
    plain_events,
)
from culver.model.formats.json_text import (
    Repeated,
    check_tree,
    decode_text,
    read_plain,
    read_value,
    strict_json,
)
from culver.model.formats.line_splitter import LineSplitter

__all__ = [
    "MEDIA_TYPES",
    "NDJSON",
    "LineSplitter",
    "Repeated",
    "check_tree",
    "decode_body",
    "decode_lines",
    "decode_text",
    "event_from_object",
    "parse_event",
    "plain_events",
    "read_plain",
    "read_value",
    "strict_json",
]
