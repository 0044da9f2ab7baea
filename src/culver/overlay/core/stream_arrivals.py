"""Takes what reaches this site of other sites' streams: their packets, and where they begin.

StreamBeginning 50, "full"     announces a gap up to 50, and goes on from there
StreamBeginning, floor 5       and this site has 9: the origin runs on an older copy of its data directory, and
                               gives the offsets from 5 on anew; announces a gap from 5 on
"""

from culver.overlay.core.advertisement_book import AdvertisementBook
from culver.overlay.core.incoming_streams import AnswerNeeded, IncomingStreams, StreamPiece
from culver.overlay.core.node_instructions import AnnounceGap, Append
from culver.overlay.core.outbox import NodeOutbox
from culver.overlay.core.overlay_messages import Packet, StreamAcknowledgement, StreamBeginning, StreamPart

RESTORED = "the site runs on an older copy of its data directory, and gives these offsets anew"
"""The reason of a gap whose events were published anew there: this site drops them, because it has their offsets."""

_BEGUN_ANEW = "the site has begun the stream anew"


class StreamArrivals:
    """`run` is the number of this run. Changes the incoming streams, and the answers in the book. `promised_ends` are
    the positions in other sites' logs from which this site's advertisement was ever said to be in effect."""

    def __init__(self, run: int, incoming: IncomingStreams, book: AdvertisementBook, out: NodeOutbox) -> None:
        self._run = run
        self._incoming = incoming
        self._book = book
        self._out = out
        self.promised_ends: dict[str, int] = {}
        # Of sites on older copies of their data: the version that must be in effect, and where the gap ends so far.
        self._restored: dict[str, tuple[int, int]] = {}

    def on_packet(self, packet: Packet, part: StreamPart, now: float) -> None:
        self._incoming.resume(packet.origin)
        events = list(zip(packet.offsets, packet.payloads, strict=True))
        match self._incoming.receive(packet.origin, packet.window, part, events, now):
            case StreamPiece(end, piece):
                self._out.append(Append(packet.origin, end, piece))
            case AnswerNeeded(position, wants_more):
                self.acknowledge(packet.origin, position, wants_more)

    def acknowledge(self, origin: str, position: int, wants_more: bool) -> None:
        self._out.route(StreamAcknowledgement(self._book.own, origin, 0, position, wants_more))

    def on_beginning(self, message: StreamBeginning) -> None:
        source, start, reason, meeting = message.source, message.start, message.reason, message.meeting
        if meeting and (message.run != self._run or not self._incoming.is_settled(source)):
            return  # it asks again
        self._incoming.resume(source)
        has_begun, had = source in self._incoming, 0
        if meeting:
            is_new = not self._incoming.has_met(source, meeting)
            known = max(self._incoming.durable(source), self.promised_ends.get(source, 0))
            had = self._incoming.meet(source, meeting, known)
            if is_new and had > message.floor:
                self._on_older_copy(message)
                has_begun, reason = False, ""
        if not reason and has_begun:
            # The site has let this one go, and come to know it again: nobody has what was between.
            start, reason = 0, _BEGUN_ANEW
        missing = self._incoming.skip(source, start, message.position)
        if missing is not None and reason and missing[0] < missing[1]:
            self._out.append(AnnounceGap(source, *missing, reason))
        position = self._incoming.durable(source)
        self._out.route(StreamAcknowledgement(self._book.own, source, 0, position, False, meeting, had))

    def promised(self, site: str, version: int, position: int) -> None:
        """A version of this site's advertisement is in effect from a position of the site's log on."""
        self.promised_ends[site] = max(position, self.promised_ends.get(site, 0))
        wanted, end = self._restored.get(site, (version, position))
        if version >= wanted:
            self._restored.pop(site, None)
            if position > end:  # the older copy did not have the advertisement
                self._out.append(AnnounceGap(site, end, position, RESTORED))

    def forget(self, site: str) -> None:
        self._incoming.forget(site)
        self.promised_ends.pop(site, None)
        self._restored.pop(site, None)

    def _on_older_copy(self, message: StreamBeginning) -> None:
        """The origin gives offsets anew from `floor` on. It may also have lost what this site asks for."""
        source = message.source
        end = max(self._incoming.durable(source), message.position, message.floor)
        self._out.append(AnnounceGap(source, message.floor, end, RESTORED))
        self._restored[source] = self._book.version, end
        self.promised_ends.pop(source, None)
        self._book.forget_answers(source)
