"""One TCP connection between two sites: frames in both directions, the order of the greeting, keep-alives, its end.

    greeting --HELLO--> waiting --OPEN, sent or received--> open
        \\____________________\\_________________________________\\____ ended

A connection knows the order of frames; its owner decides who may be greeted and which connection becomes a link.
Reading never waits for writing: what cannot be written waits in a bounded queue.
"""

import asyncio
import logging
import math
import ssl
import time
from enum import Enum, auto
from struct import Struct
from typing import TYPE_CHECKING, Protocol, cast

from culver.overlay.links import refusals
from culver.overlay.links.frame_format import KIND_AT, Frame, FrameKind, FrameStream, pack_frame
from culver.overlay.links.hello import MOST_HELLO_BYTES, SitePeer, certificate_names
from culver.overlay.links.link_settings import PeerAddress, SiteLinkSettings
from culver.overlay.links.output_queue import OutputQueue
from culver.overlay.links.refusals import LinkRefusal, decode_refusal, encode_refusal
from culver.overlay.links.tls_contexts import tls_words

if TYPE_CHECKING:
    from culver.overlay.links.site_link import SiteLink

logger = logging.getLogger(__name__)

#: How long a closed transport may take to send its last bytes.
LINGER_SECONDS = 1.0

# Urgent frames overtake data in the queue but not in the transport, so that little waits there.
_TRANSPORT_BYTES = 65_536
_WRITES_IN_A_TURN = 16
_URGENT_SHARE = 2
_TURNS_IN_A_KEEP_ALIVE = 2
_MOST_PINGS = 64
_NUMBER = Struct(">Q")


class ConnectionOwner(Protocol):
    def made(self, connection: "SiteConnection") -> None: ...

    def greeted(self, connection: "SiteConnection", content: bytes) -> None:
        """The peer's hello has arrived; it is unchecked."""

    def chosen(self, connection: "SiteConnection") -> None:
        """The peer says that this connection is the link."""

    def received(self, connection: "SiteConnection", body: bytes) -> None: ...

    def ended(self, connection: "SiteConnection") -> None:
        """Called soon after the end, for the reason in ``refusal``."""

    def lost(self, connection: "SiteConnection") -> None:
        """The socket is closed."""


class _Phase(Enum):
    GREETING = auto()
    WAITING = auto()
    OPEN = auto()
    ENDED = auto()


class SiteConnection(asyncio.Protocol):
    """``dialled`` is None on the accepting side. ``settled`` is set once the connection is open or has ended,
    ``over`` once the owner has heard of its end, ``gone`` once the socket is closed."""

    def __init__(
        self, owner: ConnectionOwner, settings: SiteLinkSettings, address: str, dialled: PeerAddress | None
    ) -> None:
        self.address = address
        self.dialled = dialled
        self.peer: SitePeer | None = None
        self.most_body_bytes = 0
        self.link: SiteLink | None = None
        self.refusal: LinkRefusal | None = None
        self.certificate_names: frozenset[str] | None = None
        self.settled = asyncio.Event()
        self.over = asyncio.Event()
        self.gone = asyncio.Event()
        self.bytes_sent = self.bytes_received = 0
        self.frames_sent = self.frames_received = self.frames_dropped = 0
        self.rtt_seconds: float | None = None
        self._owner = owner
        self._settings = settings
        self._phase = _Phase.GREETING
        self._frames = FrameStream(MOST_HELLO_BYTES)
        self._queue = OutputQueue(settings.queue_bytes, _URGENT_SHARE * settings.queue_bytes)
        self._paused = False
        self._flushing = False
        self._turn_seconds = settings.keep_alive_seconds / _TURNS_IN_A_KEEP_ALIVE
        self._dead_turns = math.ceil(settings.dead_seconds / self._turn_seconds)
        self._silent_turns = 0
        self._pings: dict[int, float] = {}
        self._last_ping = 0
        self._timer: asyncio.TimerHandle | None = None
        self._made = False

    @property
    def is_made(self) -> bool:
        """There is a socket, past the handshake of TLS."""
        return self._made

    @property
    def is_open(self) -> bool:
        return self._phase is _Phase.OPEN

    @property
    def is_silent(self) -> bool:
        """Nothing has arrived for longer than a keep-alive, though the peer sends a ping in every half of one."""
        return self._silent_turns > _TURNS_IN_A_KEEP_ALIVE

    @property
    def queued_bytes(self) -> int:
        return self._queue.queued_bytes + (
            0 if self.gone.is_set() else self._transport.get_write_buffer_size()
        )

    def say(self, kind: FrameKind, content: bytes = b"") -> None:
        """Writes a frame of the greeting, before anything is queued."""
        self._write(pack_frame(kind, content))

    def open(self, link: "SiteLink") -> None:
        """From now on, this connection is a link."""
        self._stop_timer()
        self.link = link
        self._phase = _Phase.OPEN
        self._frames.most_content_bytes = self._settings.max_frame_bytes
        self.settled.set()
        self._turn()

    def send(self, body: bytes, *, urgent: bool) -> bool:
        if self.is_open and self._enqueue(pack_frame(FrameKind.DATA, body), urgent=urgent):
            return True
        self.frames_dropped += 1
        return False

    def end(self, refusal: LinkRefusal, *, say: bool) -> None:
        """Ends the connection; only the first reason counts. With ``say``, the peer hears it, and the socket may
        linger for a second."""
        if self.refusal is not None:
            return
        self.refusal = refusal
        self._phase = _Phase.ENDED
        self._stop_timer()
        self._queue.clear()
        if not self.gone.is_set():
            if say:
                self._write(pack_frame(FrameKind.REFUSE, encode_refusal(refusal)))
                self._transport.close()
                self._timer = self._loop.call_later(LINGER_SECONDS, self._transport.abort)
            else:
                self._transport.abort()
        self.settled.set()
        self._loop.call_soon(self._owner.ended, self)

    def abandon(self) -> None:
        """Whoever waited for the connection was cancelled just after it was made. The event loop closes the socket
        then, and uvloop does not tell the protocol."""
        if self._made:
            self._transport.abort()
            self.connection_lost(None)

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._made = True
        self._loop = asyncio.get_running_loop()
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_TRANSPORT_BYTES, low=_TRANSPORT_BYTES // 4)
        certificate = transport.get_extra_info("peercert")
        self.certificate_names = certificate_names(certificate) if certificate is not None else None
        self._timer = self._loop.call_later(self._settings.hello_seconds, self._late)
        self._owner.made(self)

    def data_received(self, data: bytes) -> None:
        self._silent_turns = 0
        self.bytes_received += len(data)
        for frame in self._frames.split(data):
            if self._phase is _Phase.ENDED:
                return
            self._take(frame)
        if self._frames.violation is not None:
            self.end(self._frames.violation, say=True)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.gone.is_set():
            return
        self.gone.set()
        self.end(self._end_by(exc), say=False)
        self._stop_timer()
        self._owner.lost(self)

    # Frames.

    def _take(self, frame: Frame) -> None:
        kind, content = frame
        if kind is FrameKind.DATA and self.is_open:
            self.frames_received += 1
            self._owner.received(self, content)
        elif kind is FrameKind.PING and self.is_open and len(content) == _NUMBER.size:
            self._enqueue(pack_frame(FrameKind.PONG, content), urgent=True)
        elif kind is FrameKind.PONG and self.is_open and len(content) == _NUMBER.size:
            sent = self._pings.pop(_NUMBER.unpack(content)[0], None)
            if sent is not None:
                self.rtt_seconds = time.perf_counter() - sent
        elif kind is FrameKind.HELLO and self._phase is _Phase.GREETING:
            self._phase = _Phase.WAITING
            self._owner.greeted(self, content)
        elif kind is FrameKind.OPEN and self._phase is _Phase.WAITING and not content:
            self._owner.chosen(self)
        elif kind is FrameKind.REFUSE:
            self.end(decode_refusal(content), say=False)
        else:
            words = f"a frame of kind {kind.name} has a wrong length or comes out of turn"
            self.end(LinkRefusal(refusals.GARBAGE, words), say=True)

    def _enqueue(self, frame: bytes, *, urgent: bool) -> bool:
        if not self._queue.add(frame, urgent=urgent):
            if urgent:
                words = f"stuck: {self._queue.queued_bytes} bytes wait for a peer that takes none"
                self.end(LinkRefusal(refusals.STUCK, words), say=False)
            return False
        if not self._flushing and not self._paused:
            self._flushing = True
            self._loop.call_soon(self._flush)
        return True

    def _flush(self) -> None:
        self._flushing = False
        for _ in range(_WRITES_IN_A_TURN):
            if self._paused or not (frames := self._queue.take(_TRANSPORT_BYTES)):
                return
            self.frames_sent += sum(frame[KIND_AT] == FrameKind.DATA for frame in frames)
            self._write(frames[0] if len(frames) == 1 else b"".join(frames))
        # Other connections get their turn.
        self._flushing = True
        self._loop.call_soon(self._flush)

    def _write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self.bytes_sent += len(data)
            self._transport.write(data)

    # Time and the end.

    def _turn(self) -> None:
        """Pings the peer, and counts turns without data instead of measuring time: a loop that was busy for seconds
        reads what has arrived meanwhile before it calls a peer silent."""
        if self._silent_turns >= self._dead_turns:
            words = f"silent for {self._settings.dead_seconds:.1f} s"
            self.end(LinkRefusal(refusals.SILENT, words), say=False)
            return
        self._silent_turns += 1
        self._timer = self._loop.call_later(self._turn_seconds, self._turn)
        if len(self._pings) >= _MOST_PINGS:
            self._pings.clear()
        self._last_ping += 1
        # uvloop's own clock stands still within a turn and counts milliseconds.
        self._pings[self._last_ping] = time.perf_counter()
        self._enqueue(pack_frame(FrameKind.PING, _NUMBER.pack(self._last_ping)), urgent=True)

    def _late(self) -> None:
        words = f"the greeting was not over after {self._settings.hello_seconds:g} s"
        self.end(LinkRefusal(refusals.LATE, words), say=True)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end_by(self, error: Exception | None) -> LinkRefusal:
        if isinstance(error, ssl.SSLError):
            return LinkRefusal(refusals.TLS, f"TLS failed: {tls_words(error)}")
        words = "the peer closed the connection" if error is None else f"the connection broke: {error}"
        if self.link is not None:
            return LinkRefusal(refusals.LOST, words)
        # asyncio closes the socket after a failed handshake and does not send what OpenSSL has to say about it.
        why = "may not accept this site's certificate" if self._settings.tls else "may want TLS"
        hint = f"; it {why}" if self.dialled is not None else ""
        return LinkRefusal(refusals.UNGREETED, f"{words} before the greeting was over{hint}")
