"""The events of a publication that comes over a WebSocket: read strictly, or with less work where nothing about it is
unusual, as in most of them."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec

from culver.config import EventSettings
from culver.errors import CulverError, InvalidRequest, TooLarge
from culver.gateway.api.request_fields import Fields, prefixed
from culver.gateway.websocket.message_references import MAX_LENGTH, Reference
from culver.model import Event
from culver.model.formats import event_from_object, plain_events, read_plain


def read_items(fields: Fields, settings: EventSettings) -> list[Any]:
    """The members of `events`, the last that a publication may have. Raises InvalidRequest and TooLarge."""
    items = fields.list("events")
    fields.close()
    limit = settings.max_batch
    if not items:
        raise InvalidRequest("events holds no event", field="events")
    if len(items) > limit:
        raise TooLarge(f"at most {limit} events fit one message", field="events", limit=limit)
    return items


def decode_items(items: Sequence[Any], settings: EventSettings) -> list[Event]:
    """Raises InvalidEvent and TooLarge, with the place of the event."""
    events: list[Event] = []
    for index, item in enumerate(items):
        try:
            events.append(event_from_object(item, settings))
        except CulverError as exc:
            raise prefixed(exc, f"events[{index}]") from exc
    return events


_Text = Annotated[str, msgspec.Meta(max_length=MAX_LENGTH)]
_Integer = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class _Message(msgspec.Struct, forbid_unknown_fields=True):
    op: Literal["publish"]
    events: list[dict[str, Any]]
    ref: _Text | _Integer | float | msgspec.UnsetType | None = msgspec.UNSET


_decode = msgspec.json.Decoder(_Message).decode

# The quotes of "op", "publish" and "events".
_QUOTES = 6


def read_quickly(text: str, settings: EventSettings) -> tuple[list[Event], Reference] | None:
    """The events and the reference of a publication that is plain JSON; None for any other message, which may turn
    out to be right."""
    message = read_plain(text, _decode)
    if message is None:
        return None
    reference, quotes = message.ref, _QUOTES
    if reference is msgspec.UNSET:
        reference = None
    else:
        quotes += 4 if type(reference) is str else 2
    events = plain_events(text, message.events, settings, quotes)
    return None if events is None else (events, reference)
