"""The streams that reach a site: one from each other site.

    stream of paris   accepted up to 18, on disk up to 16
    window 7          previous 18, end 25, 2 parts: both are here -> append 19, 22, 24 in order -> accepted up to 25
    window 9          previous 31: something is missing -> ask for the stream again from 16

A window is appended when all its parts are here. What the site has already is dropped, so a stream that is sent again
does no harm. What is acknowledged is on disk. The log gets one piece of a stream at a time: if it refuses one, it has
nothing of what follows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from culver.overlay.core.overlay_messages import StreamPart

_ASK_SECONDS = 0.2
_NO_WINDOW = -1
# An honest origin has less than half of this under way.
_MOST_BYTES = 16 * 1024 * 1024
_EVENT_BYTES = 64


@dataclass(slots=True)
class _Stream:
    """`accepted` is how far complete windows go, and `durable` what the log has of them: it `is_appending` a piece,
    and the `waiting` events come next. `window` is being put together from `parts`, each known by its first offset:
    a packet may come twice. What waits takes `waiting_bytes`, and the packets of the window `window_bytes`."""

    accepted: int
    durable: int
    is_appending: bool = False
    waiting: list[tuple[int, bytes]] = field(default_factory=list)
    window: int = _NO_WINDOW
    parts: set[int] = field(default_factory=set)
    events: dict[int, bytes] = field(default_factory=dict)
    waiting_bytes: int = 0
    window_bytes: int = 0
    asked_at: float = float("-inf")

    def begin(self, window: int) -> None:
        self.window, self.parts, self.events, self.window_bytes = window, set(), {}, 0


@dataclass(frozen=True, slots=True)
class StreamPiece:
    """Events to append, ascending by offset; the stream is at `end` then."""

    end: int
    events: tuple[tuple[int, bytes], ...]


@dataclass(frozen=True, slots=True)
class AnswerNeeded:
    """The sender must be told how far the stream is: the packet brought nothing new, or something is missing."""

    position: int
    wants_more: bool


class IncomingStreams:
    """`positions` are those that the log had reached in other sites' logs when it was opened."""

    def __init__(self, positions: Mapping[str, int]) -> None:
        self._streams = {origin: _Stream(position, position) for origin, position in positions.items()}
        # Their origins may be back later, and what is on its way to the log gets there.
        self._forgotten: dict[str, _Stream] = {}

    def __contains__(self, origin: str) -> bool:
        return origin in self._streams

    def positions(self) -> dict[str, int]:
        """The position on disk in the log of every origin."""
        return {origin: stream.durable for origin, stream in self._streams.items()}

    def durable(self, origin: str) -> int:
        stream = self._streams.get(origin)
        return 0 if stream is None else stream.durable

    def is_settled(self, origin: str) -> bool:
        """Whether the log has everything that was accepted."""
        stream = self._streams.get(origin)
        return stream is None or stream.accepted == stream.durable

    def held_bytes(self, origin: str) -> int:
        """The bytes of an origin that wait in memory: for the rest of its window, or for the log."""
        stream = self._streams.get(origin)
        return 0 if stream is None else stream.window_bytes + stream.waiting_bytes

    def receive(
        self,
        origin: str,
        window: int,
        part: StreamPart,
        events: Sequence[tuple[int, bytes]],
        now: float,
    ) -> StreamPiece | AnswerNeeded | None:
        """Take a packet. Returns what can be appended now, or that the sender needs an answer."""
        stream = self._streams.setdefault(origin, _Stream(0, 0))
        if part.end <= stream.accepted:
            return (
                AnswerNeeded(stream.durable, wants_more=False) if stream.accepted == stream.durable else None
            )
        if part.previous > stream.accepted:
            return self._ask(stream, now)
        if stream.window != window:
            stream.begin(window)
        stream.window_bytes += sum(len(payload) + _EVENT_BYTES for _, payload in events)
        if stream.window_bytes + stream.waiting_bytes > _MOST_BYTES:
            stream.begin(_NO_WINDOW)
            return None
        stream.parts.add(events[0][0] if events else -1)
        for offset, payload in events:
            if stream.accepted <= offset < part.end:
                stream.events[offset] = payload
        if len(stream.parts) < part.parts:
            return None
        complete, size = sorted(stream.events.items()), stream.window_bytes
        stream.begin(_NO_WINDOW)
        if not complete or complete[-1][0] != part.end - 1:
            return self._ask(stream, now)  # a window ends with an event: this one is not what it says
        stream.accepted = part.end
        stream.waiting += complete
        stream.waiting_bytes += size
        return self._next_piece(stream)

    def appended(self, origin: str, end: int) -> StreamPiece | None:
        """The log has everything up to a position on disk; returns what can be appended next."""
        stream = self._streams.get(origin) or self._forgotten.get(origin)
        if stream is None:
            return None
        stream.is_appending = False
        stream.durable = max(stream.durable, end)
        return self._next_piece(stream)

    def failed(self, origin: str) -> None:
        """The log has refused a piece: the stream must come again from what is on disk."""
        stream = self._streams.get(origin) or self._forgotten.get(origin)
        if stream is not None:
            stream.is_appending = False
            stream.waiting.clear()
            stream.waiting_bytes = 0
            stream.accepted = stream.durable
            stream.begin(_NO_WINDOW)

    def skip(self, origin: str, start: int, position: int) -> tuple[int, int] | None:
        """The origin has nothing below a position, or no longer. Returns what may be missing: from `start`, or from
        what the site has, if that is more. None where the site is past it, or waits for its disk."""
        stream = self._streams.setdefault(origin, _Stream(0, 0))
        if position <= stream.accepted or stream.accepted > stream.durable:
            return None
        missing = max(start, stream.durable), position
        stream.accepted = stream.durable = position
        stream.begin(_NO_WINDOW)
        return missing

    def forget(self, origin: str) -> None:
        """End a stream. If it goes on later after all, it does so from where it was."""
        if origin in self._streams:
            self._forgotten[origin] = self._streams.pop(origin)

    def resume(self, origin: str) -> None:
        """Go on with a stream, if it was forgotten."""
        if origin in self._forgotten:
            self._streams[origin] = self._forgotten.pop(origin)

    def _next_piece(self, stream: _Stream) -> StreamPiece | None:
        if stream.is_appending or not stream.waiting:
            return None
        piece = StreamPiece(stream.accepted, tuple(stream.waiting))
        stream.is_appending = True
        stream.waiting.clear()
        stream.waiting_bytes = 0
        return piece

    def _ask(self, stream: _Stream, now: float) -> AnswerNeeded | None:
        if now - stream.asked_at < _ASK_SECONDS:
            return None
        stream.asked_at = now
        return AnswerNeeded(stream.durable, wants_more=True)
