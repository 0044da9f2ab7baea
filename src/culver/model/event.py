"""An event as the site keeps it: parsed and checked once, where it enters."""

from collections.abc import Mapping

import msgspec

from culver.model.values import Value


class Origin(msgspec.Struct, frozen=True):
    """Where an event of another site was published: that site's name, and the event's offset in its log. The pair
    names the event in the whole overlay."""

    site: str
    offset: int


class PublicationNumber(msgspec.Struct, frozen=True):
    """The number that a publisher gave an event: its own id and a sequence. The pair names the event at the site that
    it was published at, so that a repeat is recognised."""

    publisher: str
    sequence: int


class Event(msgspec.Struct, frozen=True):
    """`context` holds CloudEvents context attributes (none for plain JSON), `data` the fields of the data by dotted
    path, `payload` the JSON text that subscribers receive. All values obey the value rules: strings are in NFC, reals
    finite, integers of 64 bits. `origin` names an event of another site, `number` one that its publisher has
    numbered: neither is stored twice, and an event has one of them at most."""

    context: Mapping[str, Value]
    data: Mapping[str, Value]
    payload: bytes
    origin: Origin | None = None
    number: PublicationNumber | None = None

    def value(self, name: str) -> Value | None:
        """The value that `name` means in a filter, or None where the event has none.

        `data.X` means the data's field X or, if there is none, the field with the path `data.X`. Any other name means
        the context attribute of that name or, if there is none, the data's field."""
        if name.startswith("data."):
            inner = self.data.get(name[5:])
            return inner if inner is not None else self.data.get(name)
        outer = self.context.get(name)
        return outer if outer is not None else self.data.get(name)
