"""How events enter: JSON, NDJSON and CloudEvents 1.0, each checked once and turned into an `Event`."""

from culver.model.formats.event_bodies import (
    MEDIA_TYPES,
    decode_body,
    decode_lines,
    event_from_object,
    parse_event,
)
from culver.model.formats.json_text import strict_json

__all__ = [
    "MEDIA_TYPES",
    "decode_body",
    "decode_lines",
    "event_from_object",
    "parse_event",
    "strict_json",
]
