"""The streams that leave a site: one for each other site, from its mailbox.

    mailbox of lyon   12  15  16        offered, in order; what is not acknowledged stays in the mailbox
    mailbox of bonn   12  16  17
    window 1          packet {bonn, lyon}: 12, 16     packet {lyon}: 15     packet {bonn}: 17

A window takes what is offered for all sites at a moment and groups it by the set of destinations, so that an event
travels once where ways are shared. Each packet tells every destination from where to where its stream goes in the
window, and how many packets of the window are for it. A destination that misses one asks for the stream again from
what it has, and a stream without acknowledgement is sent again from there after a while.

How much of a stream may be under way follows from its acknowledgements. While they come as fast as they ever did, it
grows by what each of them covers, as in TCP's slow start. Where they come later, something waits on the way, and it
shrinks (LEDBAT, RFC 6817), so that about 10 ms are waited, or half of a round trip: a site that catches up leaves
room for what is new. It is halved after a loss. So a slow site holds up itself only: the others' windows go on
without it, and it gets windows of its own until it has caught up.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from culver.overlay.core.overlay_messages import StreamPart

_FIRST_BYTES = 64 * 1024
_LEAST_BYTES = 4 * 1024
_MOST_BYTES = 4 * 1024 * 1024
_PACKET_BYTES = 64 * 1024
# What an event takes besides its payload, in a packet and in memory.
_EVENT_BYTES = 16
# So much later than after the shortest round trip an acknowledgement may come; or later by half of that round trip.
_WAIT_SECONDS = 0.01
# A way may become longer: the shortest round trip of so long ago no longer counts.
_SHORTEST_KEPT_SECONDS = 60.0
_FIRST_TIMEOUT_SECONDS = 1.0
_SHORTEST_TIMEOUT_SECONDS = 0.3
_LONGEST_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class MailboxGap:
    """The mailbox no longer has what it had in `[start, end)`."""

    start: int
    end: int
    reason: str


Offered = tuple[int, bytes] | MailboxGap
"""The offset and the payload of an event, or what is missing."""


@dataclass(frozen=True, slots=True)
class WindowPacket:
    """Events, ascending by offset, and what they mean to each destination."""

    window: int
    streams: dict[str, StreamPart]
    offsets: tuple[int, ...]
    payloads: tuple[bytes, ...]


@dataclass(slots=True)
class _Flight:
    end: int
    bytes: int
    sent_at: float


@dataclass(slots=True)
class _ShortestRoundTrip:
    """The shortest round trip of the last one or two minutes."""

    _of_now: float = float("inf")
    _of_before: float = float("inf")
    _since: float = float("-inf")

    def take(self, seconds: float, now: float) -> float:
        """Take note of a round trip; returns the shortest one."""
        if now - self._since >= _SHORTEST_KEPT_SECONDS:
            self._of_before, self._of_now, self._since = self._of_now, seconds, now
        self._of_now = min(self._of_now, seconds)
        return min(self._of_now, self._of_before)


@dataclass(slots=True)
class _Stream:
    """`acknowledged` is the position up to which the site has everything, `sent` that up to which it was sent, and
    `begun` that where the stream began. What is offered waits in `queue`."""

    acknowledged: int
    sent: int
    begun: int
    generation: int = 0
    is_reachable: bool = False
    allowed_bytes: int = _FIRST_BYTES
    queue: deque[Offered] = field(default_factory=deque)
    queued_bytes: int = 0
    flights: deque[_Flight] = field(default_factory=deque)
    flying_bytes: int = 0
    round_trip_seconds: float | None = None
    shortest: _ShortestRoundTrip = field(default_factory=_ShortestRoundTrip)
    timeout_seconds: float = _FIRST_TIMEOUT_SECONDS
    heard_at: float = 0.0
    resends: int = 0

    def send(self, end: int, size: int, now: float) -> None:
        if not self.flights:
            self.heard_at = now
        self.flights.append(_Flight(end, size, now))
        self.flying_bytes += size
        self.sent = end

    def land(self, position: int, now: float) -> None:
        """Take what was sent below a position off the flights, and learn from it."""
        while self.flights and self.flights[0].end <= position:
            flight = self.flights.popleft()
            self.flying_bytes -= flight.bytes
            sample = now - flight.sent_at
            before = self.round_trip_seconds
            self.round_trip_seconds = sample if before is None else before + (sample - before) / 8
            shortest = self.shortest.take(sample, now)
            allowed_wait = max(_WAIT_SECONDS, shortest / 2)
            growth = flight.bytes * max(1 - (sample - shortest) / allowed_wait, -1.0)
            self.allowed_bytes = min(max(self.allowed_bytes + int(growth), _LEAST_BYTES), _MOST_BYTES)
        self.heard_at = now
        if self.round_trip_seconds is not None:
            wanted = 4 * self.round_trip_seconds
            self.timeout_seconds = min(max(wanted, _SHORTEST_TIMEOUT_SECONDS), _LONGEST_TIMEOUT_SECONDS)

    def restart(self) -> None:
        """Begin again behind what is acknowledged."""
        self.generation += 1
        self.queue.clear()
        self.flights.clear()
        self.queued_bytes = self.flying_bytes = 0
        self.sent = self.acknowledged


class OutgoingStreams:
    """Time is an argument. Whoever owns the mailboxes offers their content, as much as `wanted_bytes` says."""

    def __init__(self) -> None:
        self._streams: dict[str, _Stream] = {}
        self._windows = 0

    def __contains__(self, site: str) -> bool:
        return site in self._streams

    def open(self, site: str, acknowledged: int, first_window: int, begun: int | None = None) -> None:
        """Begin a stream at a position, or go on with one that an earlier run has `begun`. Windows count on from
        `first_window`, which no earlier run may have reached."""
        begun = acknowledged if begun is None else min(begun, acknowledged)
        self._streams.setdefault(site, _Stream(acknowledged, acknowledged, begun))
        self._windows = max(self._windows, first_window)

    def close(self, site: str) -> None:
        self._streams.pop(site, None)

    def generation(self, site: str) -> int:
        """Changes whenever the mailbox must be read again; an offer from before is of no use then."""
        return self._streams[site].generation

    def acknowledged_position(self, site: str) -> int:
        return self._streams[site].acknowledged

    def begun_position(self, site: str) -> int:
        return self._streams[site].begun

    def next_number(self) -> int:
        """A number that is above those of all windows so far, and below those of all later ones."""
        self._windows += 1
        return self._windows

    def backlog(self, site: str) -> tuple[int, int, int]:
        """The bytes under way and waiting, and how often the stream was sent again."""
        stream = self._streams[site]
        return stream.flying_bytes, stream.queued_bytes, stream.resends

    def wanted_bytes(self, site: str) -> int:
        """The bytes that may still be offered. 0 where the site cannot be reached, or enough is under way or
        waiting."""
        stream = self._streams.get(site)
        if stream is None or not stream.is_reachable:
            return 0
        return max(0, 2 * stream.allowed_bytes - stream.flying_bytes - stream.queued_bytes)

    def offer(self, site: str, generation: int, items: Iterable[Offered]) -> None:
        """Take what a mailbox has next, in order. Ignores an offer of an earlier generation."""
        stream = self._streams.get(site)
        if stream is None or stream.generation != generation:
            return
        for item in items:
            stream.queue.append(item)
            stream.queued_bytes += _size(item)

    def reach(self, site: str, reachable: bool) -> int | None:
        """Take note of whether there is a way to a site. Returns the position from which its mailbox must be read
        again, if so."""
        stream = self._streams.get(site)
        if stream is None or stream.is_reachable == reachable:
            return None
        stream.is_reachable = reachable
        stream.restart()
        stream.timeout_seconds = _FIRST_TIMEOUT_SECONDS
        return stream.acknowledged

    def acknowledge(self, site: str, position: int, now: float) -> bool:
        """The site has everything below a position; returns whether that is news."""
        stream = self._streams.get(site)
        if stream is None or position <= stream.acknowledged:
            return False
        stream.acknowledged = position
        stream.land(position, now)
        if position > stream.sent:
            # It has more than this run has sent: an earlier run did.
            while stream.queue and _end(stream.queue[0]) <= position:
                stream.queued_bytes -= _size(stream.queue.popleft())
            stream.sent = position
        return True

    def land(self, site: str, position: int, now: float) -> None:
        """What was sent below a position has arrived, though it is not acknowledged yet."""
        stream = self._streams.get(site)
        if stream is not None and stream.flights and stream.flights[0].end <= position:
            stream.land(position, now)

    def go_to(self, site: str, position: int) -> int:
        """Go on from a position, or from what is acknowledged, if that is more. Returns the position from which the
        mailbox must be read again."""
        stream = self._streams[site]
        stream.restart()
        stream.sent = max(position, stream.acknowledged)
        return stream.sent

    def sent_position(self, site: str) -> int:
        return self._streams[site].sent

    def resend(self, site: str, now: float) -> int | None:
        """The site misses something behind what it has acknowledged. Returns the position from which its mailbox must
        be read again; None where that happened a moment ago, and what was sent then may still arrive."""
        stream = self._streams.get(site)
        if stream is None or not stream.flights:
            return None
        oldest = stream.flights[0].sent_at
        if stream.resends and now - oldest < (stream.round_trip_seconds or _SHORTEST_TIMEOUT_SECONDS):
            return None
        return self._send_again(stream)

    def tick(self, now: float) -> list[tuple[str, int]]:
        """The sites that have not answered in time, each with the position from which its mailbox must be read
        again."""
        late = []
        for site, stream in self._streams.items():
            if stream.flights and now - stream.heard_at >= stream.timeout_seconds:
                stream.timeout_seconds = min(2 * stream.timeout_seconds, _LONGEST_TIMEOUT_SECONDS)
                late.append((site, self._send_again(stream)))
        return late

    def flush(self, now: float) -> tuple[list[WindowPacket], list[tuple[str, MailboxGap]]]:
        """Make a window of what is offered, as far as it may be under way. Also returns the gaps that come next in
        their streams: a gap waits until all before it has arrived, and is not part of a window."""
        taken: dict[int, list[str]] = {}
        payloads: dict[int, bytes] = {}
        ends: dict[str, tuple[int, int, int]] = {}  # previous, end, bytes
        gaps: list[tuple[str, MailboxGap]] = []
        for site, stream in self._streams.items():
            if not stream.queue or not stream.is_reachable:
                continue
            previous, size = stream.sent, 0
            while stream.queue:
                item = stream.queue[0]
                if isinstance(item, MailboxGap):
                    if item.end > previous:
                        if not size and not stream.flights:
                            gaps.append((site, item))
                            stream.queue.popleft()
                            stream.queued_bytes -= _size(item)
                            stream.send(item.end, 0, now)
                        break
                elif item[0] >= previous:
                    offset, payload = item
                    step = len(payload) + _EVENT_BYTES
                    if size + stream.flying_bytes + step > stream.allowed_bytes and (size or stream.flights):
                        break
                    taken.setdefault(offset, []).append(site)
                    payloads[offset] = payload
                    size += step
                    ends[site] = previous, offset + 1, size
                stream.queue.popleft()
                stream.queued_bytes -= _size(item)
        if not taken:
            return [], gaps
        self._windows += 1
        groups: dict[tuple[str, ...], list[int]] = {}
        for offset in sorted(taken):
            groups.setdefault(tuple(taken[offset]), []).append(offset)
        pieces = [
            (sites, piece) for sites, offsets in groups.items() for piece in packet_pieces(offsets, payloads)
        ]
        parts: dict[str, int] = {}
        for sites, _ in pieces:
            for site in sites:
                parts[site] = parts.get(site, 0) + 1
        streams = {site: StreamPart(ends[site][0], ends[site][1], parts[site]) for site in ends}
        for site, (_, end, size) in ends.items():
            self._streams[site].send(end, size, now)
        packets = [
            WindowPacket(
                self._windows,
                {site: streams[site] for site in sites},
                tuple(piece),
                tuple(payloads[offset] for offset in piece),
            )
            for sites, piece in pieces
        ]
        return packets, gaps

    def _send_again(self, stream: _Stream) -> int:
        stream.resends += 1
        stream.allowed_bytes = max(stream.allowed_bytes // 2, _LEAST_BYTES)
        stream.restart()
        return stream.acknowledged


def packet_pieces(offsets: Sequence[int], payloads: Mapping[int, bytes]) -> list[list[int]]:
    """The offsets in pieces that fit into a packet each."""
    pieces: list[list[int]] = [[]]
    size = 0
    for offset in offsets:
        step = len(payloads[offset]) + _EVENT_BYTES
        if pieces[-1] and size + step > _PACKET_BYTES:
            pieces.append([])
            size = 0
        pieces[-1].append(offset)
        size += step
    return pieces


def _size(item: Offered) -> int:
    return _EVENT_BYTES if isinstance(item, MailboxGap) else len(item[1]) + _EVENT_BYTES


def _end(item: Offered) -> int:
    return item.end if isinstance(item, MailboxGap) else item[0] + 1
