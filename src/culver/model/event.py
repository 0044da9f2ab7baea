"""An event: what a publisher sent, taken apart once, where it enters."""

from collections.abc import Mapping

import msgspec

from culver.model.values import Value


class Event(msgspec.Struct, frozen=True):
    """`context` holds CloudEvents context attributes (none for plain JSON), `data` the fields of the data
    by dotted path, `payload` the JSON text that subscribers receive.

    All values obey the value rules: NFC strings, finite reals, 64-bit integers. A struct, not a dataclass, for it is
    made once for every event.
    """

    context: Mapping[str, Value]
    data: Mapping[str, Value]
    payload: bytes

    def value(self, name: str) -> Value | None:
        """The value that `name` means in a filter, or None where the event has none.

        `data.X` is the data's field X; failing that, a field whose own path is `data.X`. Any other name is
        the context attribute of that name where the event has one, and otherwise the data's field.
        """
        if name.startswith("data."):
            inner = self.data.get(name[5:])
            return inner if inner is not None else self.data.get(name)
        outer = self.context.get(name)
        return outer if outer is not None else self.data.get(name)
