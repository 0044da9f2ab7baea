"""An open link to another site, as the rest of the overlay sees it, and what it hears from its links."""

import time
from typing import Protocol

from culver.errors import TooLarge
from culver.overlay.links.hello import SitePeer
from culver.overlay.links.refusals import CLOSED, LinkRefusal
from culver.overlay.links.site_connection import SiteConnection


class SiteLink:
    """One open connection to a peer; use it on the thread of its event loop. A link is opened once and closed once:
    a connection that comes later is another link with another number.

    Frames of one urgency arrive in the order in which they were sent. What was queued or on its way when a link
    closes may be lost; nothing arrives twice or damaged.
    """

    def __init__(self, number: int, peer: SitePeer, most_body_bytes: int, connection: SiteConnection) -> None:
        self.number = number
        self.peer = peer
        #: The longest body that both sides take.
        self.most_body_bytes = most_body_bytes
        #: Seconds since the epoch.
        self.since = time.time()
        self._connection = connection

    def __repr__(self) -> str:
        return f"<SiteLink {self.number} to {self.peer.key} {self.peer.label!r}>"

    def send(self, body: bytes, *, urgent: bool) -> bool:
        """Queues a frame and returns at once. Urgent frames (routes, acknowledgements) go before data.

        False: the frame is dropped, because the link is closed or its queue of data is full. A link whose urgent
        frames reach their larger bound closes as stuck. The observer is never called from within this method.

        :raises TooLarge: the body exceeds ``most_body_bytes``.
        """
        if len(body) > self.most_body_bytes:
            raise TooLarge(
                f"a frame of {len(body)} bytes exceeds the {self.most_body_bytes} of the link to {self.peer.key}",
                field="overlay.max_frame_bytes",
                limit=self.most_body_bytes,
            )
        return self._connection.send(body, urgent=urgent)

    def close(self, reason: str) -> None:
        """Tells the peer the reason and closes; what is queued is dropped. The observer's ``closed`` follows soon,
        not from within this method. Closing twice is harmless."""
        self._connection.end(LinkRefusal(CLOSED, reason), say=True)

    @property
    def is_open(self) -> bool:
        return self._connection.is_open

    @property
    def bytes_sent(self) -> int:
        """Bytes handed to the transport, keep-alives included."""
        return self._connection.bytes_sent

    @property
    def bytes_received(self) -> int:
        return self._connection.bytes_received

    @property
    def frames_sent(self) -> int:
        """Frames of ``send`` that were handed to the transport."""
        return self._connection.frames_sent

    @property
    def frames_received(self) -> int:
        return self._connection.frames_received

    @property
    def frames_dropped(self) -> int:
        """Frames for which ``send`` returned False."""
        return self._connection.frames_dropped

    @property
    def queued_bytes(self) -> int:
        """Bytes that wait here, in the queue or in the transport; what the kernel holds is not among them."""
        return self._connection.queued_bytes

    @property
    def rtt_seconds(self) -> float | None:
        """The time between a ping and its answer, the last that came; it includes the wait behind frames on their
        way. None until the first answer."""
        return self._connection.rtt_seconds


class LinkObserver(Protocol):
    """Hears of all links of a site, on the event loop's thread. It may send on links and close them from within; an
    exception closes the link that it is about."""

    def opened(self, link: SiteLink) -> None: ...

    def received(self, link: SiteLink, body: bytes) -> None:
        """A frame has arrived, between ``opened`` and ``closed`` of its link."""

    def closed(self, link: SiteLink, reason: str) -> None:
        """Called exactly once for each link that was opened; when another link takes its place, before that opens."""

    def refused(self, address: str, reason: str) -> None:
        """A connection has ended that never became a link: a wrong certificate, a name that is not allowed, a bad
        hello. The same reason of the same host is reported once a minute."""
