"""Reads the messages that clients send over a WebSocket."""

import math
from dataclasses import dataclass, field
from typing import Any, get_args

import msgspec

from culver.config import EventSettings
from culver.errors import CulverError, InvalidEvent, InvalidRequest, TooLarge
from culver.gateway.api.publication_numbers import publication_numbers, without_refused
from culver.gateway.api.request_reader import (
    REQUEST_DEPTH,
    WHOLE_BODY,
    as_request_error,
    prefixed,
    read_as,
)
from culver.messages import LONGEST_REFERENCE, ClientMessage, Publish, PublishEach, Reference
from culver.model import Event
from culver.model.formats import (
    check_value,
    event_from_object,
    find_member,
    plain_events,
    read_plain,
    read_value,
    strict_json,
)
from culver.roles import PublicationNumbers

_KINDS: dict[str, Any] = {str(kind.__struct_config__.tag): kind for kind in get_args(ClientMessage)}
_decode_publication = msgspec.json.Decoder(Publish | PublishEach).decode

# The quotes of "op", "publish" or "publish_each", and "events".
_PUBLICATION_QUOTES = 6


@dataclass(slots=True)
class PublishRequest:
    """The events of a message that are valid, in order. With `each`, every event is a publication of its own, and
    `refused` says what is wrong with the others, by their place in the message."""

    events: list[Event]
    each: bool = False
    refused: list[tuple[int, CulverError]] = field(default_factory=list)
    numbers: PublicationNumbers | None = None


def read_quickly(text: str, settings: EventSettings) -> tuple[PublishRequest, Reference] | None:
    """The events and the reference of a message of publications that is plain JSON and has nothing wrong in it; None
    for any other message."""
    message = read_plain(text, _decode_publication)
    if message is None:
        return None
    reference, quotes = message.ref, _PUBLICATION_QUOTES
    if reference is msgspec.UNSET:
        reference = None
    else:
        quotes += 4 if type(reference) is str else 2
    is_numbered = message.publisher is not None and message.sequence is not None
    if is_numbered:
        quotes += 6
    events = plain_events(text, message.events, settings, quotes)
    if events is None:
        return None
    request = PublishRequest(events, each=type(message) is PublishEach)
    if is_numbered:
        try:
            request.numbers = publication_numbers(message.publisher, message.sequence, len(events))
        except CulverError:
            return None
    return request, reference


def read_message(
    text: str, settings: EventSettings
) -> tuple[Reference, ClientMessage | PublishRequest | CulverError]:
    """The reference and the content of any message: its publications, another message, or what is wrong with it.
    The error is returned, not raised, so that the answer can name the message that it is about."""
    reference: Reference = None
    try:
        try:
            value = _read_strictly(text, max(REQUEST_DEPTH, settings.max_depth + 2))
        except InvalidEvent as exc:
            reference = find_reference(text)
            raise as_request_error(exc, "events") from exc
        if not isinstance(value, dict):
            raise InvalidRequest("the message must be a JSON object", field=WHOLE_BODY)
        reference = check_reference(value.get("ref"))
        message = read_as(_kind_of(value), value)
        if isinstance(message, Publish | PublishEach):
            return reference, _publications(message, settings)
        return reference, message
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


def _read_strictly(text: str, max_depth: int) -> Any:
    """The value of a text. In a `publish_each`, only what is outside of its events must be right, because they are
    judged one by one. Raises InvalidEvent."""
    try:
        return strict_json(text, max_depth)
    except InvalidEvent as exc:
        if not (exc.field or "").startswith("events["):
            raise
        value = read_value(text.removeprefix("\ufeff"))
        if type(value) is not dict or value.get("op") != PublishEach.__struct_config__.tag:
            raise
        check_value({**value, "events": None}, "", 1, max_depth)
        return value


def _kind_of(members: dict[str, Any]) -> Any:
    operation = members.get("op")
    if operation is None:
        raise InvalidRequest("op is missing", field="op")
    if not isinstance(operation, str):
        raise InvalidRequest("op must be a string", field="op")
    if operation not in _KINDS:
        raise InvalidRequest(f"unknown op {operation[:100]!r}; known: {', '.join(_KINDS)}", field="op")
    return _KINDS[operation]


def _publications(message: Publish | PublishEach, settings: EventSettings) -> PublishRequest:
    """Raises InvalidRequest and TooLarge; for one publication also InvalidEvent, with the place of the event."""
    limit = settings.max_batch
    numbers = publication_numbers(message.publisher, message.sequence, len(message.events))
    if not message.events:
        raise InvalidRequest("events holds no event", field="events")
    if len(message.events) > limit:
        raise TooLarge(f"at most {limit} events fit one message", field="events", limit=limit)
    found = PublishRequest([], each=isinstance(message, PublishEach))
    for index, item in enumerate(message.events):
        try:
            found.events.append(event_from_object(item, settings))
        except CulverError as exc:
            if not found.each:
                raise prefixed(exc, f"events[{index}]") from exc
            found.refused.append((index, exc))
    if numbers is not None:
        found.numbers = (
            without_refused(numbers, [index for index, _ in found.refused]) if found.refused else numbers
        )
    return found
