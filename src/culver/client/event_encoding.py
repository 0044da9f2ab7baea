"""Events as JSON text, and the one thing that JSON has no form for: timestamps."""

import json
import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from culver.errors import InvalidEvent, InvalidRequest

EventLike = Mapping[str, Any] | bytes
"""A mapping of attributes, or one event that is JSON text already."""

_DEEPEST = 64


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
    they cannot break the message they become part of. Raises InvalidEvent."""
    if isinstance(event, bytes):
        return _checked(event)
    if not isinstance(event, Mapping):
        raise InvalidEvent(f"an event is a mapping, not {type(event).__name__}")
    try:
        plain = _plain(event, "")
    except RecursionError:
        raise InvalidEvent("the event is nested too deeply, or contains itself") from None
    return json.dumps(plain, separators=(",", ":")).encode()


def _checked(text: bytes) -> bytes:
    # The model's reader knows all the rules for JSON text; programs that only send mappings do without it.
    from culver.model.formats import strict_json

    if not isinstance(strict_json(text, _DEEPEST), dict):
        raise InvalidEvent("an event is a JSON object, and this text is not")
    return text


def encode_timestamp(moment: datetime, path: str) -> dict[str, str]:
    """The JSON form of a timestamp; a naive one names no moment and is refused."""
    if moment.utcoffset() is None:
        raise InvalidEvent(
            f"{path}: the timestamp {moment.isoformat()} has no time zone; add one, such as UTC", field=path
        )
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


def _plain(value: Any, path: str) -> Any:
    """The value as JSON has it, checked by the rules for values."""
    if isinstance(value, str):
        if not value.isascii():
            _refuse_surrogates(value, path)
        return value
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise InvalidEvent(f"{path} is an integer beyond 64 bit", field=path)
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidEvent(f"{path} is {value}, which an event cannot hold", field=path)
        return float(value)
    if isinstance(value, Mapping):
        return {
            _name(key, path): _plain(inner, f"{path}.{key}" if path else str(key))
            for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [_plain(inner, f"{path}[{index}]") for index, inner in enumerate(value)]
    if isinstance(value, datetime):
        return encode_timestamp(value, path)
    raise InvalidEvent(f"{path} is of type {type(value).__name__}, which an event cannot hold", field=path)


def _name(key: Any, path: str) -> str:
    if not isinstance(key, str):
        raise InvalidEvent(f"{path or 'the event'} has a name that is not text: {key!r}", field=path or None)
    if not key.isascii():
        _refuse_surrogates(key, path)
    return key


def _refuse_surrogates(text: str, path: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidEvent(
            f"{path or 'a name'} has half a character (a lone surrogate)", field=path or None
        ) from None
