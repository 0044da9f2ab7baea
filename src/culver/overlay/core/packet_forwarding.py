"""Dynamic receiver partitioning (B-DRP, section 2.2 and figure 1).

    packet of paris for {bonn, lyon, oslo}
        next hop lyon    lyon, bonn     ->  one copy to lyon, for {bonn, lyon}
        next hop oslo    oslo           ->  one copy to oslo, for {oslo}

A packet carries the set of its destinations, and each site divides the set by the next hop in the tree of the
packet's origin, or of the site that carries it for its origin. A broadcast packet goes to all sites behind this one
in that tree, whatever its destinations (section 2.3).
"""

from collections.abc import Mapping

import msgspec

from culver.overlay.core.link_states import LinkStates
from culver.overlay.core.neighbours import Neighbours
from culver.overlay.core.node_instructions import CloseLink, Refuse, SendMessage
from culver.overlay.core.outgoing_streams import WindowPacket
from culver.overlay.core.overlay_messages import MOST_HOPS, Packet, SiteNumbers, StreamPart
from culver.overlay.core.site_numbers import UnknownNumber


class PacketRefused(Exception):
    """A packet must not be taken. `source` is who is to blame, and `reason` why."""

    def __init__(self, source: str, reason: str) -> None:
        super().__init__(reason)
        self.source = source
        self.reason = reason


class PacketForwarding:
    """Reads the states and the neighbours that its owner changes, and numbers sites on their links.
    `broadcast_threshold` is the share of all other sites beyond which a packet goes to every site."""

    def __init__(self, states: LinkStates, neighbours: Neighbours, broadcast_threshold: float) -> None:
        self._states = states
        self._neighbours = neighbours
        self._threshold = broadcast_threshold

    def send(self, window: WindowPacket, origin: str | None = None) -> list[SendMessage | Refuse]:
        """Send a packet of this site's own; or, with an `origin`, one that this site carries for that one."""
        own = self._states.own
        others = sum(1 for _ in self._states.reachable())
        packet = Packet(
            origin or own,
            window.window,
            0,
            b"",
            (),
            window.offsets,
            window.payloads,
            broadcast=len(window.streams) > self._threshold * others,
            carrier=own if origin else "",
        )
        return self._divide(packet, window.streams, came_from=None)

    def learn(self, link: int, numbers: SiteNumbers) -> list[Refuse | CloseLink]:
        """Take the numbers that a neighbour gives to sites."""
        if self._neighbours[link].numbers.learn(numbers):
            return []
        # No later number would be right either. A new link begins at 0.
        reason = "site numbers out of turn"
        return [Refuse(self._neighbours[link].site, reason), CloseLink(link, reason)]

    def destinations(self, link: int, packet: Packet) -> dict[str, StreamPart]:
        """Check a packet that came on a link; returns the sites that it is for. Raises PacketRefused."""
        peer = self._neighbours[link].site
        try:
            sites = self._neighbours[link].numbers.sites(packet.destinations)
        except UnknownNumber:
            raise PacketRefused(peer, "a packet for a site number that was never told") from None
        if len(sites) != len(packet.streams) or len(packet.offsets) != len(packet.payloads):
            raise PacketRefused(peer, "a packet whose parts do not fit together")
        if packet.root == self._states.own:
            raise PacketRefused(peer, "a packet of this site's own came back")
        if packet.origin not in self._states.states or packet.root not in self._states.states:
            raise PacketRefused(peer, "a packet of an unknown origin")
        if packet.hops >= MOST_HOPS:
            raise PacketRefused(packet.origin, "a packet in a loop")
        return dict(zip(sites, packet.streams, strict=True))

    def forward(
        self, link: int, packet: Packet, streams: Mapping[str, StreamPart]
    ) -> list[SendMessage | Refuse]:
        """Send a packet on that came on a link, to those of its destinations that are not this site."""
        peer = self._neighbours[link].site
        if packet.broadcast and self._states.parent(packet.root) != peer:
            # Sites that see different graphs for a moment would multiply it (reverse-path forwarding).
            return [Refuse(packet.origin, "a broadcast packet that came another way")]
        return self._divide(packet, streams, came_from=peer)

    def _divide(
        self, packet: Packet, streams: Mapping[str, StreamPart], came_from: str | None
    ) -> list[SendMessage | Refuse]:
        out: list[SendMessage | Refuse] = []
        parts: dict[str | None, dict[str, StreamPart]] = {}
        if packet.broadcast:
            # Only sites that exist get numbers, whatever a neighbour makes up.
            known = {site: part for site, part in streams.items() if self._states.reaches(site)}
            parts = dict.fromkeys(self._states.children(packet.root), known)
        else:
            for site, part in streams.items():
                parts.setdefault(self._states.next_hop_of(packet.root, site), {})[site] = part
        for neighbour, behind in parts.items():
            link = None if neighbour in (None, came_from) else self._neighbours.link_to(neighbour)
            if link is None:
                out.append(Refuse(packet.origin, "no way to a destination"))
                continue
            numbers = self._neighbours[link].numbers
            news = numbers.number(behind)
            if news is not None:
                out.append(SendMessage(link, news))
            ordered = sorted(behind, key=numbers.number_of)
            copy = msgspec.structs.replace(
                packet,
                hops=packet.hops + 1,
                destinations=numbers.bits(ordered),
                streams=tuple(behind[site] for site in ordered),
            )
            out.append(SendMessage(link, copy))
        return out
