"""How a client publishes."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from culver.client.event_encoding import EventLike, encode_events
from culver.client.link import Link
from culver.client.publisher import Publisher, unknown_outcome
from culver.errors import RequestRefused
from culver.messages import AcceptedEvents, Receipt

Answer = TypeVar("Answer", bound=Receipt)

# A larger publication goes by HTTP, whose bodies may be larger than a WebSocket message (1 MiB by default).
_MESSAGE_BYTES = 512 * 1024


class PublicationCalls(ABC):
    """A part of Client, which makes the publisher when it is opened."""

    _publisher: Publisher

    @abstractmethod
    def _open_link(self) -> Link: ...

    async def publish(
        self, events: EventLike | Iterable[EventLike] | None = None, /, **attributes: Any
    ) -> Receipt:
        """Publish one event (a mapping, its JSON text, or keyword attributes) or several, all or none.
        Returns once they are on the site's disk.

        Calls may overlap and are then pipelined over the one connection, in their order and `max_in_flight` at
        most; the others wait. Calls with one event each that overlap share messages; each still has its own
        receipt or error. Raises InvalidEvent before anything is sent, and ConnectionFailed where the site cannot be
        reached, or the connection was lost and did not come back within `retry_seconds`, or so late that the site has
        forgotten the number of the publication: then it is unknown whether the events were stored.
        """
        encoded = encode_events(events, attributes)
        self._open_link()
        if _fits_a_message(encoded):
            return await self._publisher.publish(encoded)
        return await self._publish_over_http(encoded)

    async def publish_encoded(self, events: Sequence[bytes], *, over_http: bool = False) -> Receipt:
        """As `publish`, for events that are known to be JSON objects. The site ends a WebSocket after a
        hundred refused messages; `over_http` avoids that for events of which many may be refused."""
        self._open_link()
        if over_http or not _fits_a_message(events):
            return await self._publish_over_http(events)
        return await self._publisher.publish(events)

    async def publish_once(
        self, events: EventLike | Iterable[EventLike], *, publisher: str, sequence: int
    ) -> AcceptedEvents:
        """Publish events under numbers of your own: the first has that sequence under the publisher's id, and those
        behind it the following ones. Events that the site stored before under the same numbers are not stored again,
        also by another client or after a restart, as long as the site remembers them (`publishing.window_seconds`, or
        less where it has no room: `window_ranges`, `max_publishers`). `repeated` of the answer says how many these
        are.

        Raises as `publish`; RequestRefused with the code `conflict` where the site has forgotten such old numbers, or
        has other events under them."""
        encoded = encode_events(events, {})
        return await self.publish_encoded_once(encoded, publisher=publisher, sequence=sequence)

    async def publish_encoded_once(
        self, events: Sequence[bytes], *, publisher: str, sequence: int
    ) -> AcceptedEvents:
        """As `publish_once`, for events that are known to be JSON objects."""
        self._open_link()
        async with self._publisher.turn():
            return await self._post(AcceptedEvents, events, publisher=publisher, sequence=sequence)

    async def _publish_over_http(self, events: Sequence[bytes]) -> Receipt:
        async with self._publisher.turn():
            publisher, sequence = self._publisher.publisher, self._publisher.number(len(events))
            numbers = {} if publisher is None else {"publisher": publisher, "sequence": sequence}
            try:
                return await self._post(Receipt, events, **numbers)
            except RequestRefused as exc:
                if (unknown := unknown_outcome(exc)) is None:
                    raise
                raise unknown from exc

    async def _post(self, kind: type[Answer], events: Sequence[bytes], **numbers: Any) -> Answer:
        content = b"[%b]" % b",".join(events)
        link = self._open_link()
        return await self._publisher.insist(
            lambda: link.ask(kind, "POST", "/v1/events", content=content, **numbers)
        )


def _fits_a_message(events: Sequence[bytes]) -> bool:
    return sum(map(len, events)) + len(events) <= _MESSAGE_BYTES
