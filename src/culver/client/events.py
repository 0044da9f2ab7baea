"""Events as JSON text, and the one thing that JSON has no form for: timestamps."""

import json
import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from culver.errors import InvalidEvent, InvalidRequest

EventLike = Mapping[str, Any] | bytes
"""A mapping of attributes, or one event that is JSON text already."""

_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])


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
    if isinstance(events, Mapping | bytes):
        return [encode_event(events)]
    if isinstance(events, str) or not isinstance(events, Iterable):
        raise InvalidEvent(f"an event is a mapping, not {type(events).__name__}")
    encoded = [encode_event(event) for event in events]
    if not encoded:
        raise InvalidRequest("there is no event to publish", field="events")
    return encoded


def encode_event(event: EventLike) -> bytes:
    """One event's JSON text. Bytes pass as they are once they are known to be one JSON object, so that
    they cannot break the message they become part of; the site checks the rest."""
    if isinstance(event, bytes):
        return _checked(event)
    if not isinstance(event, Mapping):
        raise InvalidEvent(f"an event is a mapping, not {type(event).__name__}")
    try:
        return json.dumps(
            event if isinstance(event, dict) else dict(event),
            default=_encode_other,
            allow_nan=False,
            separators=(",", ":"),
        ).encode()
    except (ValueError, TypeError, RecursionError) as exc:
        raise _explain(event, exc) from exc


def _checked(text: bytes) -> bytes:
    try:
        text.decode()
        _OBJECT.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise InvalidEvent(f"not a JSON object: {exc}") from exc
    return text


def encode_timestamp(moment: datetime) -> dict[str, str]:
    """The JSON form of a timestamp; a naive one names no moment and is refused."""
    if moment.utcoffset() is None:
        raise InvalidEvent(f"the timestamp {moment.isoformat()} has no time zone; add one, such as UTC")
    return {"$timestamp": moment.astimezone(UTC).isoformat().replace("+00:00", "Z")}


def decode_timestamp(value: dict[str, Any]) -> Any:
    """The datetime that `{"$timestamp": ...}` stands for; any other object as it is."""
    text = value.get("$timestamp")
    if len(value) != 1 or not isinstance(text, str):
        return value
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return value


def _encode_other(value: object) -> Any:
    if isinstance(value, datetime):
        return encode_timestamp(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not a type that an event can hold")


def _explain(event: Mapping[Any, Any], exc: Exception) -> InvalidEvent:
    """Find the first attribute at fault, so that the error can name it."""
    if isinstance(exc, RecursionError):
        return InvalidEvent("the event is nested too deeply")
    if isinstance(exc, ValueError) and "ircular" in str(exc):
        return InvalidEvent("the event contains itself")
    path, value = _first_fault(event, "") or ("", None)
    if isinstance(value, float):
        return InvalidEvent(f"{path} is {value}, which an event cannot hold", field=path)
    return InvalidEvent(f"{path or 'the event'}: {exc}", field=path or None)


def _first_fault(value: Any, path: str) -> tuple[str, Any] | None:
    if isinstance(value, Mapping):
        members = [(f"{path}.{key}" if path else str(key), inner) for key, inner in value.items()]
    elif isinstance(value, list | tuple):
        members = [(f"{path}[{index}]", inner) for index, inner in enumerate(value)]
    elif isinstance(value, float):
        return None if math.isfinite(value) else (path, value)
    elif value is None or isinstance(value, str | int | datetime):
        return None
    else:
        return path, value
    return next((fault for name, inner in members if (fault := _first_fault(inner, name))), None)
