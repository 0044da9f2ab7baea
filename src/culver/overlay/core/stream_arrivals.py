"""Takes what reaches this site of other sites' streams: their questions, their packets, and where they begin.

StreamQuestion 17               tells what this site has; drops all packets that were sent before
StreamBeginning 17, 50          announces a gap from what this site has up to 50, and goes on from there
"""

from culver.overlay.core.advertisement_book import AdvertisementBook
from culver.overlay.core.incoming_streams import AnswerNeeded, IncomingStreams, StreamPiece
from culver.overlay.core.node_instructions import AnnounceGap, Append, NodeOutbox
from culver.overlay.core.overlay_messages import (
    Packet,
    StreamAcknowledgement,
    StreamAnswer,
    StreamBeginning,
    StreamPart,
    StreamQuestion,
)

_BEGUN_ANEW = "the site has begun the stream anew"


class StreamArrivals:
    """Changes the incoming streams. `run` is the number of this run, and `promised_ends` are the positions in other
    sites' logs from which this site's advertisement was ever said to be in effect."""

    def __init__(self, run: int, incoming: IncomingStreams, book: AdvertisementBook, out: NodeOutbox) -> None:
        self._run = run
        self._incoming = incoming
        self._book = book
        self._out = out
        self._meetings: dict[str, int] = {}
        self.promised_ends: dict[str, int] = {}

    def on_packet(self, packet: Packet, part: StreamPart, now: float) -> None:
        meeting = self._meetings.get(packet.origin)
        if meeting is None or packet.window < meeting:
            return  # an earlier run sent it, or it was for one: what it holds may not exist any more
        self._incoming.resume(packet.origin)
        events = list(zip(packet.offsets, packet.payloads, strict=True))
        match self._incoming.receive(packet.origin, packet.window, part, events, now):
            case StreamPiece(end, piece):
                self._out.append(Append(packet.origin, end, piece))
            case AnswerNeeded(position, wants_more):
                self.acknowledge(packet.origin, position, wants_more)

    def acknowledge(self, origin: str, position: int, wants_more: bool, meeting: int = 0) -> None:
        self._out.route(StreamAcknowledgement(self._book.own, origin, 0, position, wants_more, meeting))

    def on_question(self, message: StreamQuestion) -> None:
        source = message.source
        self._incoming.resume(source)
        if message.run != self._run or not self._incoming.is_settled(source):
            return  # it asks again
        if message.meeting >= self._meetings.get(source, 0):
            self._meetings[source] = message.meeting
            promised = self.promised_ends.get(source, 0)
            had = max(self._incoming.durable(source), promised)
            self._out.route(StreamAnswer(self._book.own, source, 0, message.meeting, had, promised))

    def on_beginning(self, message: StreamBeginning) -> None:
        source, start, reason = message.source, message.start, message.reason
        self._incoming.resume(source)
        if message.meeting != self._meetings.get(source) or not self._incoming.is_settled(source):
            return  # it tells this again, or an earlier run has told it
        if source in self._incoming and not message.goes_on:
            # The site has let this one go, or this one has lost something: nobody has what was between.
            start, reason = 0, reason or _BEGUN_ANEW
        missing = self._incoming.skip(source, start, message.position)
        if missing is not None and reason and missing[0] < missing[1]:
            self._out.append(AnnounceGap(source, *missing, reason))
        self.acknowledge(source, self._incoming.durable(source), wants_more=False, meeting=message.meeting)

    def promised(self, site: str, position: int) -> None:
        """This site's advertisement is in effect from a position of the site's log on."""
        self.promised_ends[site] = max(position, self.promised_ends.get(site, 0))

    def forget(self, site: str) -> None:
        self._incoming.forget(site)
        self.promised_ends.pop(site, None)
