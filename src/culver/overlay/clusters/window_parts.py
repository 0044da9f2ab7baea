"""Windows of events: divided into packets where they are sent, and put together where they arrive.

    lyon: 12, 16    bonn: 12, 17     ->    packet {bonn, lyon}: 12     packet {lyon}: 16     packet {bonn}: 17

Each packet tells every destination how many packets of the window are for it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from culver.overlay.core.outgoing_streams import WindowPacket, packet_pieces
from culver.overlay.core.overlay_messages import StreamPart

_EVENT_BYTES = 64
# Packets of some windows may arrive in turn. More unfinished ones mean that packets are lost.
_MOST_WINDOWS = 4
# An honest origin has less than half of this under way.
_MOST_BYTES = 16 * 1024 * 1024

Events = list[tuple[int, bytes]]


@dataclass(frozen=True, slots=True)
class MemberShare:
    """What a window has for one destination: everything of `[previous, end)` that it wants, at these offsets."""

    previous: int
    end: int
    version: int
    offsets: Sequence[int]


def divide_window(
    window: int, shares: Mapping[str, MemberShare], payloads: Mapping[int, bytes]
) -> list[WindowPacket]:
    """The packets of a window. An event for many destinations is in one of them."""
    takers: dict[int, list[str]] = {}
    for site, share in shares.items():
        for offset in share.offsets:
            takers.setdefault(offset, []).append(site)
    groups: dict[tuple[str, ...], list[int]] = {}
    for offset in sorted(takers):
        groups.setdefault(tuple(takers[offset]), []).append(offset)
    pieces = [
        (sites, piece) for sites, offsets in groups.items() for piece in packet_pieces(offsets, payloads)
    ]
    parts = dict.fromkeys(shares, 0)
    for sites, _ in pieces:
        for site in sites:
            parts[site] += 1
    streams = {
        site: StreamPart(share.previous, share.end, parts[site], share.version)
        for site, share in shares.items()
    }
    return [
        WindowPacket(
            window,
            {site: streams[site] for site in sites},
            tuple(piece),
            tuple(payloads[offset] for offset in piece),
        )
        for sites, piece in pieces
    ]


@dataclass(slots=True)
class _Unfinished:
    firsts: set[int] = field(default_factory=set)
    events: dict[int, bytes] = field(default_factory=dict)
    bytes: int = 0


class WindowAssembly:
    """Puts the windows of one sender together. A packet may come twice, and is known by its first offset."""

    def __init__(self) -> None:
        self._windows: dict[int, _Unfinished] = {}

    def take(
        self, window: int, part: StreamPart, offsets: Sequence[int], payloads: Sequence[bytes]
    ) -> Events | None:
        """Take a packet. Returns the events of the window, ascending, if that is complete now."""
        found = self._windows.setdefault(window, _Unfinished())
        first = offsets[0] if offsets else -1
        if first not in found.firsts:
            found.firsts.add(first)
            found.events.update(
                (offset, payload)
                for offset, payload in zip(offsets, payloads, strict=True)
                if offset < part.end
            )
            found.bytes += sum(len(payload) + _EVENT_BYTES for payload in payloads)
        if len(found.firsts) >= part.parts:
            del self._windows[window]
            return sorted(found.events.items())
        while len(self._windows) > _MOST_WINDOWS or (
            sum(each.bytes for each in self._windows.values()) > _MOST_BYTES
        ):
            del self._windows[min(self._windows)]
        return None
