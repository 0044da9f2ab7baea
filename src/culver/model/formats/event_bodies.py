"""Turns the body of a request into events: finds its format, and names the event that an error is about."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from culver.config import EventSettings
from culver.errors import CulverError, InvalidEvent, TooLarge
from culver.model.event import Event
from culver.model.formats.attributes import collect_attributes, event_too_large, make_event
from culver.model.formats.cloudevents import HEADER_PREFIX, binary_document, structured_event
from culver.model.formats.json_text import (
    OVERSIZED,
    decode_text,
    read_items,
    read_plain,
    read_value,
    skip_space,
    too_deep,
)
from culver.model.formats.media_types import parse_media_type, unsupported

JSON = "application/json"
NDJSON = "application/x-ndjson"
CLOUDEVENT = "application/cloudevents+json"
CLOUDEVENT_BATCH = "application/cloudevents-batch+json"
MEDIA_TYPES = (JSON, NDJSON, CLOUDEVENT, CLOUDEVENT_BATCH)

_ANY_CLOUDEVENT = "application/cloudevents"
_MARK = "specversion"
_DEFAULTS = EventSettings()
_decode_plain = msgspec.json.Decoder(dict[str, Any] | list[dict[str, Any]]).decode


def event_from_object(obj: Any, settings: EventSettings) -> Event:
    """The event of a decoded JSON value, a CloudEvent if it has `specversion`. Raises InvalidEvent and TooLarge."""
    if not isinstance(obj, dict):
        raise InvalidEvent('an event must be a JSON object, such as {"price": 12.5}')
    try:
        if _MARK in obj:
            return structured_event(obj, settings)
        return make_event({}, collect_attributes(obj, settings), obj, settings)
    except RecursionError:
        # The settings allow more levels than Python's stack has.
        raise too_deep("", settings.max_depth) from None


def plain_events(
    text: str, objects: Sequence[Any], settings: EventSettings, other_quotes: int = 0
) -> list[Event] | None:
    """The events of objects that `read_plain` read from a text, to which all but `other_quotes` of its quotes belong.
    None where anything is wrong or in doubt; the careful way then raises, or finds it right.

    A payload is the JSON of the object that was read: it has the same quotes unless a key was repeated."""
    try:
        events = [event_from_object(each, settings) for each in objects]
    except CulverError:
        return None
    quotes = other_quotes
    for event in events:
        quotes += event.payload.count(b'"')
    return events if quotes == text.count('"') and 0 < len(events) <= settings.max_batch else None


def parse_event(body: bytes, settings: EventSettings = _DEFAULTS) -> Event:
    """The event of one JSON object as text. Raises InvalidEvent and TooLarge."""
    _refuse_too_large(body, settings)
    text = decode_text(body)
    document = read_plain(text, _decode_plain)
    if type(document) is dict and (events := plain_events(text, (document,), settings)):
        return events[0]
    return event_from_object(read_value(text), settings)


def decode_body(
    content_type: str | None, headers: Mapping[str, str], body: bytes, settings: EventSettings
) -> list[Event]:
    """The events of a request, in their order; `headers` have names in lower case.

    Raises InvalidRequest (`field` is "content-type", `details` has `status=415`) for an unknown content type. Raises
    InvalidEvent and TooLarge: in an array, `field` begins with the event's place, as in "[3].price", and in NDJSON
    `details` holds `line`, from 1."""
    media = parse_media_type(content_type)
    is_cloudevents_format = media.name.startswith(_ANY_CLOUDEVENT)
    if HEADER_PREFIX + _MARK in headers and not is_cloudevents_format:
        _refuse_too_large(body, settings)
        return [event_from_object(binary_document(content_type, headers, body), settings)]
    if media.name not in MEDIA_TYPES:
        raise unsupported(
            f"the content type {media.name[:100]!r} is not supported; use one of {', '.join(MEDIA_TYPES)}"
        )
    if not media.is_utf8:
        raise unsupported(f"the charset {media.charset!r:.100} is not supported; send UTF-8")
    if media.name == NDJSON:
        events, error = decode_lines(list(enumerate(body.split(b"\n"), 1)), settings)
        if error is not None:
            raise error
        return events
    if media.name == CLOUDEVENT:
        _refuse_too_large(body, settings)
        document = read_value(decode_text(body))
        _refuse_plain(document)
        return [event_from_object(document, settings)]
    return _decode_json(body, settings, cloudevents_only=media.name == CLOUDEVENT_BATCH)


def decode_lines(
    lines: Sequence[tuple[int, bytes]], settings: EventSettings
) -> tuple[list[Event], CulverError | None]:
    """The events of numbered lines of NDJSON up to the first wrong line, and the error of that line, whose `details`
    hold `line`. Blank lines hold no event."""
    events: list[Event] = []
    for number, line in lines:
        if not line or line.isspace():
            continue
        try:
            events.append(parse_event(line, settings))
        except CulverError as exc:
            details = {**exc.details, "line": number}
            return events, type(exc)(f"line {number}: {exc.message}", field=exc.field, **details)
    return events, None


def _decode_json(body: bytes, settings: EventSettings, *, cloudevents_only: bool) -> list[Event]:
    text = decode_text(body)
    # A larger array is read item by item: a small text can become a large tree.
    if len(body) <= settings.max_bytes and not cloudevents_only:
        read = read_plain(text, _decode_plain)
        objects = [read] if isinstance(read, dict) else read
        if objects and (plain := plain_events(text, objects, settings)) is not None:
            return plain
    start = skip_space(text, 0)
    if text[start : start + 1] != "[":
        if cloudevents_only:
            raise InvalidEvent(f"a body of {CLOUDEVENT_BATCH} must be a JSON array of events")
        _refuse_too_large(body, settings)
        return [event_from_object(read_value(text), settings)]
    events: list[Event] = []
    for index, item in enumerate(read_items(text, settings.max_bytes)):
        if index == settings.max_batch:
            raise TooLarge(
                f"the batch has more than {settings.max_batch} events; send them in several requests",
                limit=settings.max_batch,
            )
        try:
            if item is OVERSIZED:
                raise event_too_large(settings)
            if cloudevents_only:
                _refuse_plain(item)
            events.append(event_from_object(item, settings))
        except CulverError as exc:
            place = f"[{index}]"
            field = f"{place}.{exc.field}" if exc.field else place
            raise type(exc)(f"event {place}: {exc.message}", field=field, **exc.details) from exc
    return events


def _refuse_too_large(body: bytes, settings: EventSettings) -> None:
    # Before the body is read: a small text can become a large tree.
    if len(body) > settings.max_bytes:
        raise event_too_large(settings)


def _refuse_plain(document: Any) -> None:
    if isinstance(document, dict) and _MARK not in document:
        raise InvalidEvent(f"the CloudEvents attribute {_MARK!r} is missing", field=_MARK)
