"""Events as a program has them: dictionaries and rows of Spark."""

from collections.abc import Iterable, Mapping
from typing import Any

from culver.config import EventSettings
from culver.errors import CulverError, InvalidEvent
from culver.inputs import plain_value, without_row
from culver.model import Event
from culver.model.formats import collect_attributes, event_from_object, too_many_attributes

# Nothing is stored, so the size of an event has no limit here.
_SETTINGS = EventSettings(max_bytes=2**63)
_CLOUDEVENT = "specversion"


def event_of(given: Any) -> Event:
    """The event that publishing `given` would make, without its payload. Raises InvalidEvent and TooLarge with the
    attribute."""
    if type(given) is dict and _CLOUDEVENT not in given:
        try:
            return _plain_event(given)
        except (InvalidEvent, TypeError):
            pass  # a value that is not JSON, a name that is no text, or wrong
    fields = without_row(given)
    if not isinstance(fields, Mapping):
        raise InvalidEvent(f"an event is a mapping, not {type(given).__name__}")
    try:
        document = plain_value(fields, "")
    except RecursionError:
        raise InvalidEvent("the event is nested too deeply, or contains itself") from None
    return event_from_object(document, _SETTINGS) if _CLOUDEVENT in document else _plain_event(document)


def _plain_event(document: dict[str, Any]) -> Event:
    attributes = collect_attributes(document, _SETTINGS)
    if len(attributes) > _SETTINGS.max_attributes:
        raise too_many_attributes(list(attributes), _SETTINGS)
    return Event({}, attributes, b"")


def events_of(given: Iterable[Any]) -> list[Event]:
    """The events of a list. An error names the place of its event."""
    events: list[Event] = []
    for place, each in enumerate(given):
        try:
            events.append(event_of(each))
        except CulverError as exc:
            field = f"[{place}].{exc.field}" if exc.field else f"[{place}]"
            raise type(exc)(f"event [{place}]: {exc.message}", field=field, **exc.details) from exc
    return events
