"""Events as a program has them: dictionaries and rows of Spark."""

from collections.abc import Iterable, Mapping
from typing import Any

from culver.config import EventSettings
from culver.errors import InvalidEvent
from culver.inputs import plain_value, without_row
from culver.model import Event
from culver.model.formats import collect_attributes, event_from_object

_SETTINGS = EventSettings()
_CLOUDEVENT = "specversion"


def event_of(given: Any) -> Event:
    """The event that publishing `given` would make, without its payload. Raises InvalidEvent with the attribute."""
    if type(given) is dict and _CLOUDEVENT not in given:
        try:
            return Event({}, collect_attributes(given, _SETTINGS), b"")
        except InvalidEvent:
            pass  # a value that is not JSON, or wrong
    fields = without_row(given)
    if not isinstance(fields, Mapping):
        raise InvalidEvent(f"an event is a mapping, not {type(given).__name__}")
    try:
        document = plain_value(fields, "")
    except RecursionError:
        raise InvalidEvent("the event is nested too deeply, or contains itself") from None
    if _CLOUDEVENT in document:
        return event_from_object(document, _SETTINGS)
    return Event({}, collect_attributes(document, _SETTINGS), b"")


def events_of(given: Iterable[Any]) -> list[Event]:
    """The events of a list. An error names the place of its event."""
    events: list[Event] = []
    for place, each in enumerate(given):
        try:
            events.append(event_of(each))
        except InvalidEvent as exc:
            field = f"[{place}].{exc.field}" if exc.field else f"[{place}]"
            raise InvalidEvent(f"event [{place}]: {exc.message}", field=field, **exc.details) from exc
    return events
