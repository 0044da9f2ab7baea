"""The messages between sites, each one frame.

Flooded, from link to link, so that every site knows them:

    LinkState        who a site is linked with, and how far its log is
    Advertisement    a site's encoded predicate: whole, or as the difference from an earlier version

Between neighbours:

    AdvertisementDigest    the versions of all advertisements that the sender has
    AdvertisementRequest   asks for a whole advertisement
    SiteNumbers            numbers that the sender's packets use for sites on this link

Routed, hop by hop, to one site:

    AdvertisementCheck     asks whether a version is in effect
    AdvertisementApplied   a version is in effect, from a position of the sender's log on; or why it is refused
    StreamQuestion         asks what a site has of its stream, before anything of it is sent
    StreamAnswer           what that is
    StreamBeginning        the stream begins at a position, and why not before
    StreamAcknowledgement  the sender has a stream up to a position, on disk; or wants it again from there

    GossipEnvelope         a message of the membership

Routed to many sites:

    Packet           events of one origin, for a set of destinations that is divided where their ways part
"""

from typing import Annotated

import msgspec

MOST_HOPS = 64
"""A frame that has crossed so many links is in a loop."""

Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
"""A site counts on from numbers that others tell it. The bound leaves room for that: msgpack has 64 bits."""


class LinkState(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """`links` holds (site, cost) of every neighbour. A higher `sequence` replaces a lower one. `position` is the
    end of the site's log when it was said, and `run` a number that each run of the site has for itself. A site that
    was found on an older copy of its data directory, and took a new key, has given offsets from `given_anew` on twice
    under its old key. With clusters, the site has `published` so many events in this run, and there are so many
    `clusters` for them; 0 is about the square root of the number of sites."""

    site: str
    sequence: Count
    links: tuple[tuple[str, Count], ...]
    position: Count
    run: Count = 0
    given_anew: Count | None = None
    clusters: Count = 0
    published: Count = 0


class Advertisement(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """`predicate` is the whole text of an encoded predicate where `base` is 0. Otherwise `delta` leads from version
    `base` to this one."""

    site: str
    version: Count
    base: Count
    predicate: str
    delta: bytes


class AdvertisementDigest(msgspec.Struct, frozen=True, array_like=True, tag=9):
    versions: tuple[tuple[str, Count], ...]


class AdvertisementRequest(msgspec.Struct, frozen=True, array_like=True, tag=3):
    site: str


class SiteNumbers(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """The sites with the numbers from `first` on, in packets that follow on this link in this direction."""

    first: Count
    sites: tuple[str, ...]


class AdvertisementCheck(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """The source's advertisement has had this version for a while, and no answer to it."""

    source: str
    destination: str
    hops: Count
    version: Count


class AdvertisementApplied(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Version `version` of the destination's advertisement is in effect at the source, for events from `position` on.
    Where `refusal` is not empty it is not, for that reason."""

    source: str
    destination: str
    hops: Count
    version: Count
    position: Count
    refusal: str


class StreamAcknowledgement(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """The source has everything below `position` of the destination's log that is meant for it, on disk. With
    `wants_more` it has missed something, and wants the stream again from there. With a `meeting`, it answers the
    StreamBeginning of that number."""

    source: str
    destination: str
    hops: Count
    position: Count
    wants_more: bool
    meeting: Count = 0


class StreamQuestion(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """The source wants to know what that `run` of the destination has of its stream (see `stream_meetings`)."""

    source: str
    destination: str
    hops: Count
    meeting: Count
    run: Count


class StreamAnswer(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """Answers a StreamQuestion: the source knew of the destination's log up to `had`. Its advertisement was last said
    to be in effect there from `promised` on."""

    source: str
    destination: str
    hops: Count
    meeting: Count
    had: Count
    promised: Count = 0


class StreamBeginning(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """The source has nothing for the destination below `position`, or has it no longer: then `reason` says why. The
    events from `start` on may be missing where the destination has nothing of the stream, or where the stream
    `goes_on`: the destination has everything before `start`. Otherwise what it does not have is missing. `meeting` is
    the last one of the two."""

    source: str
    destination: str
    hops: Count
    start: Count
    position: Count
    reason: str
    meeting: Count
    goes_on: bool


class GossipEnvelope(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """A message from one member to another (see `gossip_messages`), as bytes."""

    source: str
    destination: str
    hops: Count
    body: bytes


class StreamPart(msgspec.Struct, frozen=True, array_like=True):
    """The meaning of a packet for one destination: its stream goes from `previous` to `end` in this window, which has
    `parts` packets for it. With clusters, the events were matched with that `version` of the destination's
    advertisement; or the destination carries them to the members of a cluster, whose number is `carries` less 1."""

    previous: Count
    end: Count
    parts: Count
    version: Count = 0
    carries: Count = 0


class Packet(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """Events of `origin`, with their offsets there. Bit i of `destinations` stands for the site with the number i on
    this link, and `streams` has an entry for each bit that is set, in their order. With `broadcast`, the packet
    goes to every site of the origin's tree, and those without a bit ignore it (B-DRP, section 2.3). A packet follows
    the tree of its origin, or of the `carrier` that has matched it."""

    origin: str
    window: Count
    hops: Count
    destinations: bytes
    streams: tuple[StreamPart, ...]
    offsets: tuple[Count, ...]
    payloads: tuple[bytes, ...]
    broadcast: bool = False
    carrier: str = ""

    @property
    def root(self) -> str:
        """The site whose tree the packet follows."""
        return self.carrier or self.origin


Routed = (
    AdvertisementCheck
    | AdvertisementApplied
    | StreamQuestion
    | StreamAnswer
    | StreamBeginning
    | StreamAcknowledgement
    | GossipEnvelope
)
OverlayMessage = (
    LinkState | Advertisement | AdvertisementDigest | AdvertisementRequest | SiteNumbers | Routed | Packet
)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(OverlayMessage)


def encode_message(message: OverlayMessage) -> bytes:
    return _encoder.encode(message)


def decode_message(body: bytes) -> OverlayMessage:
    """Raises msgspec.DecodeError for anything that is no message."""
    message: OverlayMessage = _decoder.decode(body)
    return message
