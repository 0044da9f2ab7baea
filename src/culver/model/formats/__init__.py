"""The formats of events: JSON, NDJSON and CloudEvents 1.0, each checked once and turned into an `Event`."""

from culver.model.formats.attributes import (
    collect_attributes as collect_attributes,
    too_many_attributes as too_many_attributes,
)
from culver.model.formats.event_bodies import (
    MEDIA_TYPES as MEDIA_TYPES,
    NDJSON as NDJSON,
    decode_body as decode_body,
    decode_lines as decode_lines,
    event_from_object as event_from_object,
    parse_event as parse_event,
    plain_events as plain_events,
)
from culver.model.formats.json_text import (
    check_value as check_value,
    find_member as find_member,
    read_plain as read_plain,
    read_value as read_value,
    strict_json as strict_json,
)
from culver.model.formats.line_splitter import LineSplitter as LineSplitter
from culver.model.formats.media_types import parse_media_type as parse_media_type, unsupported as unsupported
