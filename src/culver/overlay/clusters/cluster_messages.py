"""The messages between sites that route by clusters. Each travels in a ClusterNote, hop by hop, to one site.

    member                      mates of its cluster
      | MemberAdvertisement 8 ---->  stored on disk
      | <---- AdvertisementStored 8
      |
      |                         origin, every one
      | Claim 8, cluster 2 ------->  stored on disk, in effect from the end of the log on
      | <------------- ClaimAnswer     position 512

    origin                      carrier                            member of the cluster
      | CarrierTerms 31 ---------> |                                  |
      | <-- CarriageReport 31      | StreamNews --------------------> |   "what do you have?"
      |                            | <--------------- MemberPosition  |
      | Packet, carries ---------> | Packet, carrier ---------------> |   appends what is matched
      | <-- CarriageReport 31      | <--------------- MemberPosition  |
      | CarriageGap -------------> | MemberGap ---------------------> |   announces it

A carrier that lacks the predicate of a member asks with AdvertisementWanted, and a site that does not want to carry a
cluster says so with CarrierRefusal. Sites of a cluster speak of their load with the messages of `load_messages`, and
notes carry its figures along now and then. Everything may be lost: whoever waits asks again every second.
"""

import msgspec

from culver.overlay.clusters.load.load_messages import LoadFigures, LoadMessage
from culver.overlay.core.overlay_messages import Count, OverlayMessage

MOST_CLUSTER = 4096
"""No overlay has so many clusters: an overlay has at most as many as sites."""

ANY_VERSION = 1 << 62


class MemberAdvertisement(msgspec.Struct, frozen=True, array_like=True, tag=21):
    """The predicate of a site, exact or encoded, for those of its cluster. The sender may pass on that of another."""

    site: str
    version: Count
    predicate: str


class AdvertisementStored(msgspec.Struct, frozen=True, array_like=True, tag=22):
    """The sender has this version of the receiver's advertisement on disk."""

    version: Count


class AdvertisementWanted(msgspec.Struct, frozen=True, array_like=True, tag=23):
    site: str


class Claim(msgspec.Struct, frozen=True, array_like=True, tag=24):
    """The sender wants the receiver's events through a cluster, as its advertisement of that version asks for; no
    event at all if it is not `active`. A higher `number` replaces a lower one: a member may go to and fro between
    clusters with one version, and claims may overtake one another."""

    version: Count
    cluster: Count
    active: bool
    number: Count = 0


class ClaimAnswer(msgspec.Struct, frozen=True, array_like=True, tag=25):
    """The claim with that version is on disk, and in effect from `position` on; `before`, it was another version.
    The member is in `cluster`, where its claim of that `number` has left it. Its first claim was made at `begun`. The
    sender may have dropped events from `missing_from` on that were for the member, or for its predecessor, for that
    `reason`."""

    version: Count
    before: Count
    position: Count
    begun: Count
    cluster: Count
    missing_from: Count | None
    reason: str
    number: Count = 0


class TermsMember(msgspec.Struct, frozen=True, array_like=True):
    """A member of a cluster, as its claim says. `version` is in effect from `position` on. What is for the member
    comes through this cluster from `since` on: before, it had claimed nothing, or was in one that it is leaving. From
    `until` on it comes through another one, unless that is 0."""

    site: str
    version: Count
    position: Count
    since: Count
    until: Count


class CarrierTerms(msgspec.Struct, frozen=True, array_like=True, tag=26):
    """The sender, an origin, asks the receiver to carry its events to the members of a cluster. A higher `number`
    replaces a lower one. All members have what is for them below `floor`, the cursor of the cluster; most of them
    have it below `start`, where the stream goes on. A sender that `insists` finds nobody who has less to do."""

    number: Count
    cluster: Count
    start: Count
    floor: Count
    members: tuple[TermsMember, ...]
    insists: bool = False


class CarrierRefusal(msgspec.Struct, frozen=True, array_like=True, tag=27):
    """The sender does not want to carry a cluster: it is not in it, or `is_overloaded`. It goes on until another one
    does. That should be `instead`, which has agreed, if that is not empty."""

    number: Count
    cluster: Count
    is_overloaded: bool = False
    instead: str = ""


class CarriageReport(msgspec.Struct, frozen=True, array_like=True, tag=28):
    """All members under the terms of that number have what is for them below `position`. Those that can be reached
    now have it below `carried`. The carrier wants the stream `again` from a position, where that is not None. The
    `finished` members have everything up to their `until`. Of the last thousands of events, a thousand were for so
    many members (`taken`), each member counted once for each event; None before the first one."""

    number: Count
    cluster: Count
    position: Count
    carried: Count
    again: Count | None
    finished: tuple[str, ...]
    taken: Count | None = None


class CarriageGap(msgspec.Struct, frozen=True, array_like=True, tag=29):
    """The origin no longer has what is in `[start, end)`."""

    cluster: Count
    start: Count
    end: Count
    reason: str


class StreamNews(msgspec.Struct, frozen=True, array_like=True, tag=30):
    """Whoever has everything of the origin below `given` has everything below `position` too: nothing in between is
    for the receiver, as that `version` of its advertisement has it. The receiver says what it has."""

    origin: str
    version: Count
    given: Count
    position: Count


class MemberPosition(msgspec.Struct, frozen=True, array_like=True, tag=31):
    """The sender has everything of the origin below `position` that is for it, on disk. With `wants_more` it has
    missed something, and wants it again from there."""

    origin: str
    position: Count
    wants_more: bool


class MemberGap(msgspec.Struct, frozen=True, array_like=True, tag=32):
    """The origin no longer has what is in `[start, end)`. The receiver has everything before it."""

    origin: str
    start: Count
    end: Count
    reason: str


class GossipNote(msgspec.Struct, frozen=True, array_like=True, tag=33):
    """A message from one member of the overlay to another (see `gossip_messages`), as bytes."""

    body: bytes


ClusterBody = (
    MemberAdvertisement
    | AdvertisementStored
    | AdvertisementWanted
    | Claim
    | ClaimAnswer
    | CarrierTerms
    | CarrierRefusal
    | CarriageReport
    | CarriageGap
    | StreamNews
    | MemberPosition
    | MemberGap
    | GossipNote
    | LoadMessage
)


class ClusterNote(msgspec.Struct, frozen=True, array_like=True, tag=20):
    """`load` is that of the source. It is there now and then, for whoever sees it on its way."""

    source: str
    destination: str
    hops: Count
    body: ClusterBody
    load: LoadFigures | None = None


ClusterFrame = OverlayMessage | ClusterNote

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(ClusterFrame)


def encode_frame(frame: ClusterFrame) -> bytes:
    return _encoder.encode(frame)


def decode_frame(body: bytes) -> ClusterFrame:
    """Raises msgspec.DecodeError for anything that is no frame."""
    frame: ClusterFrame = _decoder.decode(body)
    return frame
