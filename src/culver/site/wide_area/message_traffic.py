"""Sends messages on links and receives them: encodes, counts, and drops packets where a link's queue is full."""

from collections.abc import Callable

import msgspec

from culver.errors import TooLarge
from culver.overlay import Link, Packet, RoutingFrame, encode_frame


class MessageTraffic:
    """`decode` reads a frame, and raises msgspec.DecodeError. `refuse` hears of what cannot be sent or read. The
    counts include links that are closed."""

    def __init__(
        self, key: str, decode: Callable[[bytes], RoutingFrame], refuse: Callable[[str, str], None]
    ) -> None:
        self.packets_sent = self.packets_received = self.packets_dropped = 0
        self.links_opened = 0
        self.links: dict[int, Link] = {}
        """The open links by number."""
        self._key = key
        self._decode = decode
        self._refuse = refuse
        self._bytes_sent = self._bytes_received = self._frames_dropped = 0
        # A message that is flooded is encoded once.
        self._last: tuple[RoutingFrame, bytes] | None = None

    def opened(self, link: Link) -> None:
        self.links_opened += 1
        self.links[link.number] = link

    def closed(self, link: Link) -> None:
        del self.links[link.number]
        self._bytes_sent += link.bytes_sent
        self._bytes_received += link.bytes_received
        self._frames_dropped += link.frames_dropped

    def send(self, number: int, message: RoutingFrame) -> None:
        """Send on the link of that number, if it is still open. Packets may be dropped."""
        link = self.links.get(number)
        if link is None:
            return
        if self._last is None or self._last[0] is not message:
            self._last = message, encode_frame(message)
        is_packet = isinstance(message, Packet)
        try:
            sent = link.send(self._last[1], urgent=not is_packet)
        except TooLarge as exc:
            self._refuse(self._key, f"a {type(message).__name__} cannot be sent: {exc.message}")
            return
        if is_packet:
            self.packets_sent += sent
            self.packets_dropped += not sent

    def read(self, link: Link, body: bytes) -> RoutingFrame | None:
        """The message of a frame. A peer that sends anything else is not linked any longer."""
        try:
            message = self._decode(body)
        except msgspec.DecodeError as exc:
            self._refuse(link.peer.key, "a frame that is no message")
            link.close(f"a frame that is no message: {exc}")
            return None
        self.packets_received += isinstance(message, Packet)
        return message

    def close(self, number: int, reason: str) -> None:
        link = self.links.get(number)
        if link is not None:
            link.close(reason)

    def bytes_sent(self) -> int:
        return self._bytes_sent + sum(link.bytes_sent for link in self.links.values())

    def bytes_received(self) -> int:
        return self._bytes_received + sum(link.bytes_received for link in self.links.values())

    def frames_dropped(self) -> int:
        return self._frames_dropped + sum(link.frames_dropped for link in self.links.values())
