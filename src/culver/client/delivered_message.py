"""The events that the client yields; its other answers are the structs of `culver.messages`."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from culver.client.event_encoding import decode_timestamp


class Delivered(Mapping[str, Any]):
    """An event that a subscription received, and a mapping over the members of its JSON object.

    `event` is that object as it came. Looked up by name, a top-level `{"$timestamp": ...}` comes out as an
    aware datetime instead. A redelivery has the same `delivery_id`.
    """

    __slots__ = ("_acknowledge", "event", "offset", "subscription")

    def __init__(
        self, event: dict[str, Any], offset: int, subscription: str, acknowledge: Callable[[int], Any]
    ) -> None:
        self.event = event
        self.offset = offset
        self.subscription = subscription
        self._acknowledge = acknowledge

    @property
    def delivery_id(self) -> str:
        return f"{self.subscription}:{self.offset}"

    def __getitem__(self, name: str) -> Any:
        value = self.event[name]
        return decode_timestamp(value) if isinstance(value, dict) else value

    def __iter__(self) -> Iterator[str]:
        return iter(self.event)

    def __len__(self) -> int:
        return len(self.event)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.delivery_id} {self.event!r}>"


class Message(Delivered):
    """What the asynchronous client yields."""

    __slots__ = ()

    async def ack(self) -> None:
        """This message and all before it in the subscription are done with; durable on return. Does
        nothing for a live subscription. Raises ConnectionFailed; doing it again is harmless."""
        await self._acknowledge(self.offset)


class SyncMessage(Delivered):
    """What the synchronous client yields."""

    __slots__ = ()

    def ack(self) -> None:
        """As `Message.ack`, blocking."""
        self._acknowledge(self.offset)
