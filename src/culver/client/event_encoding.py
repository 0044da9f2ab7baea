"""Events as JSON text; `culver.inputs` has the values that JSON has no form for."""

import json
import math
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from culver.errors import InvalidEvent, InvalidRequest
from culver.inputs import plain_value, without_row

EventLike = Mapping[str, Any] | bytes
"""A mapping of attributes (or a Row of Spark), or one event that is JSON text already."""

_DEEPEST = 64
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def encode_events(
    events: EventLike | Iterable[EventLike] | None, attributes: Mapping[str, Any]
) -> list[bytes]:
    """The JSON text of each event of a publication: either `events` or the keyword `attributes`.

    Raises InvalidEvent with the attribute's name, InvalidRequest where there is nothing or both.
    """
    if attributes:
        if events is not None:
            raise InvalidRequest("give events or keyword attributes, not both", field="events")
        return [encode_event(attributes)]
    if events is None:
        raise InvalidRequest("there is no event to publish", field="events")
    given: Any = without_row(events)
    if isinstance(given, Mapping | bytes):
        return [encode_event(given)]
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InvalidEvent(f"an event is a mapping, not {type(given).__name__}")
    encoded = [encode_event(event) for event in given]
    if not encoded:
        raise InvalidRequest("there is no event to publish", field="events")
    return encoded


def encode_event(event: EventLike) -> bytes:
    """One event's JSON text. Bytes pass as they are once they are known to be one JSON object, so that
    they cannot break the message they become part of. Raises InvalidEvent."""
    if isinstance(event, bytes):
        return _checked(event)
    if type(event) is dict and (text := _encode_plain(event)) is not None:
        return text
    event = without_row(event)
    if not isinstance(event, Mapping):
        raise InvalidEvent(f"an event is a mapping, not {type(event).__name__}")
    try:
        plain = plain_value(event, "")
    except RecursionError:
        raise InvalidEvent("the event is nested too deeply, or contains itself") from None
    return json.dumps(plain, separators=(",", ":")).encode()


def _encode_plain(event: dict[str, Any]) -> bytes | None:
    """The text of an event that holds only what JSON has too, as most do; None for any other. It takes
    2 µs for an event of seven attributes, and the careful way 15 µs. It escapes no letters, and so the gateway reads
    the text the quick way."""
    try:
        return msgspec.json.encode(event) if _is_plain(event) else None
    except (UnicodeEncodeError, RecursionError):
        return None


def _is_plain(values: dict[str, Any]) -> bool:
    for key, value in values.items():
        kind = type(value)
        if type(key) is not str:
            return False
        if kind is float:
            if not math.isfinite(value):
                return False
        elif kind is int:
            if not -(2**63) <= value < 2**63:
                return False
        elif kind is dict:
            if not _is_plain(value):
                return False
        elif kind is not str and kind is not bool and value is not None:
            return False
    return True


def _checked(text: bytes) -> bytes:
    # The model's reader knows all the rules for JSON text; programs that only send mappings do without it.
    from culver.model.formats import strict_json

    if not isinstance(strict_json(text, _DEEPEST), dict):
        raise InvalidEvent("an event is a JSON object, and this text is not")
    return text.removeprefix(_BYTE_ORDER_MARK)


def decode_timestamp(value: dict[str, Any]) -> Any:
    """The datetime that `{"$timestamp": ...}` stands for; any other object as it is."""
    text = value.get("$timestamp")
    if len(value) != 1 or not isinstance(text, str):
        return value
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return value
