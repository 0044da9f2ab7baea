"""The answer of `/v1/overlay`: a site's place in the overlay, and what it knows of the other sites.

Sites appear by their names. A key is the name and a part of the data directory's identity: a site that was set up
anew has the same name and another key.
"""

from typing import Annotated

from msgspec import Meta, Struct

SiteKey = Annotated[str, Meta(examples=["paris~0123456789abcdef"])]
SiteName = Annotated[str, Meta(examples=["paris"])]
_Count = Annotated[int, Meta(ge=0)]
_Position = Annotated[int, Meta(ge=0, description="A position in a log")]
_Seconds = Annotated[float, Meta(ge=0)]


class AdvertisementStatus(Struct, frozen=True, kw_only=True):
    """The encoded predicate of a site: Bloom filters of so many bits and hashes. An advertisement that
    `matches_everything` lets every event through. `refusal` says why it is not in effect, and is empty otherwise."""

    version: _Count
    vectors: _Count
    bits: Annotated[int, Meta(ge=0, description="Of each vector")]
    hashes: _Count
    bytes: Annotated[int, Meta(ge=0, description="Of its text")]
    age_seconds: Annotated[_Seconds, Meta(description="Since it changed")] | None
    matches_everything: bool
    refusal: str = ""


class LoadStatus(Struct, frozen=True, kw_only=True):
    """The load of a site. Above 0.9, it hands streams that it carries over to other sites of its cluster."""

    use: Annotated[float, Meta(ge=0, description="Messages a second, as a share of the capacity")]
    capacity: Annotated[float, Meta(ge=0, description="Messages a second that the site can handle, measured")]


class ClusteringStatus(Struct, frozen=True, kw_only=True):
    """The clusters for this site's own events. Where their number is measured, the last revision has counted so many
    publications of this site, and its share of the changes of predicates; earlier revisions count for less and less.
    An event was for that share of the other sites. Without a revision yet, these are null."""

    clusters: _Count
    publications: Annotated[float, Meta(ge=0)] | None = None
    changes: Annotated[float, Meta(ge=0)] | None = None
    matching_ratio: Annotated[float, Meta(ge=0, le=1)] | None = None


class OwnSite(Struct, frozen=True, kw_only=True):
    """This site. `address` is where it listens for others; it is empty for one that only dials. It has a `cluster`, a
    `clustering` and a `load` with the routing `clusters` only, once it has found them."""

    name: SiteName
    key: SiteKey
    address: str
    routing: str
    cluster: _Count | None = None
    clustering: ClusteringStatus | None = None
    load: LoadStatus | None = None
    advertisement: AdvertisementStatus


class OtherSite(Struct, frozen=True, kw_only=True):
    """Another site. The first half is what it gets from here, the second what came from there. With the routing
    `clusters`, it gets its events from the mailbox of its cluster."""

    name: SiteName
    key: SiteKey
    reachable: bool
    distance: Annotated[int, Meta(ge=0, description="The cost of the shortest way")] | None
    next_hop: SiteName | None
    path: list[SiteName]
    member: Annotated[str, Meta(description="By gossip: alive, suspect, dead, left or unknown")]
    addresses: Annotated[list[str], Meta(description="Where it can be dialled, by its own word")]
    events_per_second: Annotated[float, Meta(ge=0, description="That its log gets")] | None
    cluster: Annotated[int, Meta(ge=0, description="That it is in, for the events of this site")] | None = (
        None
    )
    clusters: Annotated[int, Meta(ge=0, description="How many there are for its own events")] | None = None
    shares_cluster: Annotated[bool, Meta(description="For the events of any site")] = False

    advertisement: AdvertisementStatus | None
    in_effect_from: Annotated[_Position, Meta(description="Of this log; null while not in effect")] | None
    acknowledged: Annotated[_Position, Meta(description="Of this log: it has everything below")] | None
    pending: Annotated[int, Meta(ge=0, description="Events in its mailbox")]
    bytes_under_way: _Count
    bytes_waiting: _Count
    resends: _Count

    applied_from: (
        Annotated[
            _Position, Meta(description="Of its log: from where on this site's advertisement is in effect")
        ]
        | None
    )
    own_refusal: Annotated[str, Meta(description="Why it refuses this site's advertisement")]
    received: Annotated[int, Meta(ge=0, description="Position in its log up to which events are here")]
    events_received: _Count
    false_positives: Annotated[int, Meta(ge=0, description="Of those, how many matched no subscription")]
    skipped: Annotated[int, Meta(ge=0, description="Events of it that this site's limits refuse")]


class ClusterStatus(Struct, frozen=True, kw_only=True):
    """A cluster that gets this site's events, through its `carrier`. It has a mailbox here. All members have
    everything below `acknowledged`, and those that can be reached below `carried`."""

    cluster: _Count
    members: Annotated[list[SiteName], Meta(description="That ask for something")]
    carrier: SiteName | None
    is_confirmed: Annotated[bool, Meta(description="Whether the carrier has answered")]
    acknowledged: _Position
    carried: _Position
    pending: Annotated[int, Meta(ge=0, description="Events in its mailbox")]
    bytes_under_way: _Count
    bytes_waiting: _Count
    resends: _Count


class CarriageStatus(Struct, frozen=True, kw_only=True):
    """A stream that this site carries: it matches the events of an origin for the members of a cluster. Positions are
    those of the origin's log."""

    origin: SiteName
    cluster: _Count
    members: list[SiteName]
    matched: _Position
    position: Annotated[_Position, Meta(description="All members have everything below")]
    carried: Annotated[_Position, Meta(description="Those that can be reached have everything below")]


class LinkStatus(Struct, frozen=True, kw_only=True):
    """An open link to a neighbour."""

    peer: SiteName
    key: SiteKey
    address: str
    label: str
    cost: _Count
    bytes_sent: _Count
    bytes_received: _Count
    frames_sent: _Count
    frames_received: _Count
    frames_dropped: _Count
    queued_bytes: _Count
    rtt_seconds: _Seconds | None
    since: Annotated[float, Meta(description="Seconds since the epoch")]


class DialledPeer(Struct, frozen=True, kw_only=True):
    """An address that this site dials, and how that goes."""

    address: str
    name: SiteName | None
    state: str
    attempts: _Count
    failure: str


class SiteRoute(Struct, frozen=True, kw_only=True):
    """One direction of a link between two sites of the overlay, wherever they are."""

    site: SiteName
    neighbour: SiteName
    cost: _Count


class OverlayGap(Struct, frozen=True, kw_only=True):
    """Events of another site with offsets in `[start, end)` may be missing here."""

    site: SiteName
    key: SiteKey
    start: _Position
    end: _Position
    reason: str
    at: Annotated[float, Meta(description="Seconds since the epoch")]


class OverlayRefusal(Struct, frozen=True, kw_only=True):
    """How often something of a source was refused or dropped for one reason."""

    source: str
    reason: str
    count: _Count


class OverlayTotals(Struct, frozen=True, kw_only=True):
    """Counts since the start. Links that are closed are included."""

    packets_sent: _Count = 0
    packets_received: _Count = 0
    packets_dropped: Annotated[int, Meta(ge=0, description="Because a link's queue was full")] = 0
    bytes_sent: _Count = 0
    bytes_received: _Count = 0
    frames_dropped: _Count = 0
    links_opened: _Count = 0
    gaps: _Count = 0
    refusals: _Count = 0


class OverlayStatus(Struct, frozen=True, kw_only=True):
    """The overlay as this site sees it. Of gaps and refusals, it lists the last hundred. `troubles` says what an
    operator must see to: names that several sites have, or that this site has taken a new key."""

    site: OwnSite
    sites: list[OtherSite]
    links: list[LinkStatus]
    peers: list[DialledPeer]
    routes: list[SiteRoute]
    gaps: list[OverlayGap]
    refusals: list[OverlayRefusal]
    troubles: list[str]
    totals: OverlayTotals
    clusters: list[ClusterStatus] = []
    carriages: list[CarriageStatus] = []


class ForgottenSite(Struct, frozen=True, kw_only=True):
    """A site that is forgotten here. `events` waited for it, and are dropped."""

    name: SiteName
    keys: list[SiteKey]
    events: _Count
