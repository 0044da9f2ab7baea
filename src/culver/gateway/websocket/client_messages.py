"""Reads the messages that clients send over a WebSocket."""

import math
from typing import Any, get_args

import msgspec

from culver.config import EventSettings
from culver.errors import CulverError, InvalidEvent, InvalidRequest, TooLarge
from culver.gateway.api.request_reader import (
    REQUEST_DEPTH,
    WHOLE_BODY,
    as_request_error,
    prefixed,
    read_as,
)
from culver.messages import LONGEST_REFERENCE, ClientMessage, Publish, Reference
from culver.model import Event
from culver.model.formats import (
    event_from_object,
    find_member,
    plain_events,
    read_plain,
    strict_json,
)

_KINDS: dict[str, Any] = {str(kind.__struct_config__.tag): kind for kind in get_args(ClientMessage)}
_decode_publication = msgspec.json.Decoder(Publish).decode

# The quotes of "op", "publish" and "events".
_PUBLICATION_QUOTES = 6


def read_quickly(text: str, settings: EventSettings) -> tuple[list[Event], Reference] | None:
    """The events and the reference of a publication that is plain JSON; None for any other message."""
    message = read_plain(text, _decode_publication)
    if message is None:
        return None
    reference, quotes = message.ref, _PUBLICATION_QUOTES
    if reference is msgspec.UNSET:
        reference = None
    else:
        quotes += 4 if type(reference) is str else 2
    events = plain_events(text, message.events, settings, quotes)
    return None if events is None else (events, reference)


def read_message(
    text: str, settings: EventSettings
) -> tuple[Reference, ClientMessage | list[Event] | CulverError]:
    """The reference and the content of any message: the events of a publication, another message, or what is
    wrong with it. The error is returned, not raised, so that the answer can name the message that it is about."""
    reference: Reference = None
    try:
        try:
            value = strict_json(text, max(REQUEST_DEPTH, settings.max_depth + 2))
        except InvalidEvent as exc:
            reference = find_reference(text)
            raise as_request_error(exc, "events") from exc
        if not isinstance(value, dict):
            raise InvalidRequest("the message must be a JSON object", field=WHOLE_BODY)
        reference = check_reference(value.get("ref"))
        message = read_as(_kind_of(value), value)
        return reference, _events(message, settings) if isinstance(message, Publish) else message
    except CulverError as exc:
        return reference, exc


def check_reference(value: Any) -> Reference:
    """The `ref` of a message that was read strictly. Raises InvalidRequest."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, str | int | float)):
        raise InvalidRequest("ref must be a string or a number", field="ref")
    if isinstance(value, str) and len(value) > LONGEST_REFERENCE:
        raise InvalidRequest(f"ref must not be longer than {LONGEST_REFERENCE} characters", field="ref")
    return value


def find_reference(text: str) -> Reference:
    """The `ref` of a message that strict reading refused; None where it has none, or several, or one that strict
    JSON has no form for. Never raises."""
    try:
        reference: Reference = msgspec.convert(find_member(text, "ref"), Reference)
        msgspec.json.encode(reference)
    except (msgspec.ValidationError, UnicodeEncodeError):
        return None
    return None if isinstance(reference, float) and not math.isfinite(reference) else reference


def _kind_of(members: dict[str, Any]) -> Any:
    operation = members.get("op")
    if operation is None:
        raise InvalidRequest("op is missing", field="op")
    if not isinstance(operation, str):
        raise InvalidRequest("op must be a string", field="op")
    if operation not in _KINDS:
        raise InvalidRequest(f"unknown op {operation[:100]!r}; known: {', '.join(_KINDS)}", field="op")
    return _KINDS[operation]


def _events(message: Publish, settings: EventSettings) -> list[Event]:
    """Raises InvalidRequest, InvalidEvent and TooLarge, with the place of the event."""
    limit = settings.max_batch
    if not message.events:
        raise InvalidRequest("events holds no event", field="events")
    if len(message.events) > limit:
        raise TooLarge(f"at most {limit} events fit one message", field="events", limit=limit)
    events: list[Event] = []
    for index, item in enumerate(message.events):
        try:
            events.append(event_from_object(item, settings))
        except CulverError as exc:
            raise prefixed(exc, f"events[{index}]") from exc
    return events
