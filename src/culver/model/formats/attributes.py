"""Turns the members of a JSON object into attributes: names are dotted paths, values follow the value rules.

{"a": {"b": 1}, "tags": ["x"], "at": {"$timestamp": "2030-01-01T00:00:00Z"}, "none": null, "mix": [1]}

a.b   1                    integer
tags  ("x",)               list of strings
at    Timestamp(...)       timestamp
                           `none` is absent; `mix` is only in the payload
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from culver.config import EventSettings
from culver.errors import InvalidEvent, TooLarge
from culver.model.event import Event
from culver.model.formats.json_text import (
    LARGEST_INTEGER,
    SMALLEST_INTEGER,
    check_value,
    fault,
    integer_too_large,
    not_finite,
    refuse_repeated,
    show,
    too_deep,
)
from culver.model.text import normalise_text
from culver.model.timestamps import parse_timestamp
from culver.model.values import Timestamp, Value

_TIMESTAMP_KEY = "$timestamp"


def collect_attributes(
    members: dict[str, Any], settings: EventSettings, *, depth: int = 1, label: str = ""
) -> dict[str, Value]:
    """The attributes of an object at `depth` levels of nesting. Errors put `label` before an attribute's path."""
    attributes: dict[str, Value] = {}
    _collect(members, "", depth, attributes, settings, label)
    return attributes


def make_event(
    context: Mapping[str, Value], data: Mapping[str, Value], document: dict[str, Any], settings: EventSettings
) -> Event:
    """The event with `document` as its payload. Raises TooLarge."""
    if len(context) + len(data) > settings.max_attributes:
        raise too_many_attributes([*context, *data], settings)
    payload = msgspec.json.encode(document)
    if len(payload) > settings.max_bytes:
        raise event_too_large(settings)
    return Event(context, data, payload)


def too_many_attributes(names: Sequence[str], settings: EventSettings) -> TooLarge:
    return TooLarge(
        f"the event has {len(names)} attributes, more than the limit of {settings.max_attributes}",
        field=show(names[settings.max_attributes]),
        limit=settings.max_attributes,
    )


def event_too_large(settings: EventSettings) -> TooLarge:
    return TooLarge(
        f"the event is larger than the limit of {settings.max_bytes} bytes; "
        "send large content elsewhere and its address here",
        limit=settings.max_bytes,
    )


def timestamp_value(text: Any, name: str) -> Timestamp:
    """The moment that an RFC 3339 text with an offset names; raises InvalidEvent with `name`."""
    if not isinstance(text, str):
        raise fault(name, "must be a timestamp as an RFC 3339 text")
    try:
        return parse_timestamp(text)
    except ValueError as exc:
        raise fault(name, f"cannot be used: {exc}") from None


def text_value(text: str, name: str) -> str:
    """A string in the form in which filters compare it; raises InvalidEvent with `name`."""
    try:
        return normalise_text(text)
    except ValueError as exc:
        raise fault(name, f"cannot be used: it holds {exc}") from None


def _collect(
    members: dict[str, Any],
    prefix: str,
    depth: int,
    attributes: dict[str, Value],
    settings: EventSettings,
    label: str,
) -> None:
    # Hot: runs for every event that enters. The common kinds come first, and an ASCII name or string, which is in
    # normal form, costs no call.
    if depth > settings.max_depth:
        raise too_deep((label + prefix)[:-1], settings.max_depth)
    if type(members) is not dict:
        refuse_repeated(members, label + prefix)
    for key, value in members.items():
        name = prefix + key
        if not key or len(name) > settings.max_name_length or not name.isascii():
            name = _checked_name(key, name, label, settings)
        kind = type(value)
        if kind is str:
            if not value.isascii():
                value = text_value(value, label + name)
        elif kind is float:
            if not math.isfinite(value):
                raise not_finite(label + name)
        elif kind is int:
            if not SMALLEST_INTEGER <= value <= LARGEST_INTEGER:
                raise integer_too_large(label + name)
        elif value is None:
            continue
        elif kind is list:
            strings = _strings(value, label + name, depth + 1, settings)
            if strings is None:
                continue
            value = strings
        elif isinstance(value, dict):
            if len(value) != 1 or _TIMESTAMP_KEY not in value or type(value) is not dict:
                _collect(value, name + ".", depth + 1, attributes, settings, label)
                continue
            if depth >= settings.max_depth:
                raise too_deep(label + name, settings.max_depth)
            value = timestamp_value(value[_TIMESTAMP_KEY], label + name)
        elif kind is not bool:
            raise fault(label + name, "has a value that is not JSON")
        if name in attributes:
            shown = show(label + name)
            raise InvalidEvent(f"two members of the event both have the name {shown!r}", field=shown)
        attributes[name] = value


def _checked_name(key: str, name: str, label: str, settings: EventSettings) -> str:
    shown = show(label + name)
    if not key:
        raise InvalidEvent("a member's name is empty; give it one", field=shown)
    name = text_value(name, label + name)
    if len(name) > settings.max_name_length:
        raise InvalidEvent(
            f"the name {shown!r} is longer than {settings.max_name_length} characters",
            field=shown,
            limit=settings.max_name_length,
        )
    return name


def _strings(items: list[Any], name: str, depth: int, settings: EventSettings) -> tuple[str, ...] | None:
    """The list as a value where all its items are strings; None for any other, which stays in the payload only."""
    if all(type(item) is str for item in items):
        if depth > settings.max_depth:
            raise too_deep(name, settings.max_depth)
        return tuple(text_value(item, f"{name}[{index}]") for index, item in enumerate(items))
    check_value(items, name, depth, settings.max_depth)
    return None
