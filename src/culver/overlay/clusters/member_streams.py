"""A member's side: its claims at all origins, and the streams that reach it through its clusters.

    paris    version 8 in effect from 512 on, and 7 before    a part of version 7 counts up to 512 and no further
    lyon     no answer in this run                            parts of lyon are not taken

A part says: of the origin's events in `[previous, end)`, those for you are in this window, as that version of your
advertisement asks for. Any carrier may send it. The member takes it if it has everything before `previous`, up to
where a later version is in effect.

Invariant: what the member has of an origin below a position is everything that it was promised there. So its
positions are true whoever asks, and whatever version a carrier knew.
"""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field

from culver.matching import NOTHING, SitePredicate
from culver.overlay.clusters.cluster_instructions import ClusterOutbox
from culver.overlay.clusters.cluster_messages import Claim, ClaimAnswer, MemberGap, MemberPosition, StreamNews
from culver.overlay.clusters.window_parts import Events, WindowAssembly
from culver.overlay.core.incoming_streams import AnswerNeeded, IncomingStreams, StreamPiece
from culver.overlay.core.node_instructions import AnnounceGap, Append
from culver.overlay.core.overlay_messages import StreamPart

_VERSIONS_KEPT = 1024
BEGUN_ANEW = "the site has begun the stream anew"
_NO_LIMIT = 1 << 62


@dataclass(slots=True)
class ClaimedOrigin:
    """An origin. `applied` holds the versions in effect there, ascending, and from where. Parts of versions before
    `least_version` come from carriers that know too little. `accepted` bounds what the stream has taken so far."""

    applied: list[tuple[int, int]] = field(default_factory=list)
    least_version: int | None = None
    cluster: int | None = None
    # The number of the claim that has brought the site into that cluster.
    number: int = 0
    accepted: int = 0
    # The carriers that wait for word of what the log has.
    carriers: dict[str, None] = field(default_factory=dict)


class MemberClaims:
    """This site's own advertisement, and where it is in effect. `version` is above those of all earlier runs."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.predicate: SitePredicate = NOTHING
        self.is_advertised = False
        """Before the owner has said what its subscribers want, there is nothing to claim: what is theirs would go."""
        self.sites: dict[str, ClaimedOrigin] = {}
        self._first_version = version

    def change(self, predicate: SitePredicate) -> bool:
        """Advertise this from now on; returns whether that is news."""
        self.is_advertised = True
        if predicate == self.predicate:
            return False
        self.version, self.predicate = self.version + 1, predicate
        return True

    def go_beyond(self, version: int) -> None:
        """An earlier run has had that version: go on above it. Answers to versions up to it say nothing any more."""
        self.version = self._first_version = version + 1
        for site in self.sites.values():
            if site.applied:
                site.least_version = site.applied[-1][0]
            site.applied.clear()

    def ask_again(self, origin: str) -> None:
        """Whether an origin still has the claim is unknown."""
        if origin in self.sites:
            self.sites[origin].cluster = None

    def is_own(self, version: int) -> bool:
        """Whether this run has had a version."""
        return self._first_version <= version <= self.version

    def is_answered(self, origin: str, claim: Claim) -> bool:
        """Whether a claim with the version of now is in effect at an origin."""
        site = self.sites.get(origin)
        return (
            site is not None
            and bool(site.applied)
            and site.applied[-1][0] == claim.version
            and (site.cluster, site.number) == (claim.cluster, claim.number)
        )

    def in_effect_from(self, origin: str, version: int) -> int | None:
        """The position of an origin's log from which a version, or a later one, is in effect. None while it is
        not."""
        site = self.sites.get(origin)
        if site is None:
            return None
        place = bisect_left(site.applied, (version, 0))
        return site.applied[place][1] if place < len(site.applied) else None


class MemberStreams:
    """`positions` are those that the log had reached in other sites' logs when it was opened."""

    def __init__(self, positions: Mapping[str, int], claims: MemberClaims, out: ClusterOutbox) -> None:
        self.incoming = IncomingStreams(positions)
        self.promised_ends: dict[str, int] = {}
        """The positions from which a version was ever said to be in effect."""
        self._claims = claims
        self._out = out
        self._assemblies: dict[tuple[str, str], WindowAssembly] = {}

    def origins(self) -> list[str]:
        """The origins of which this site has something, or was promised something."""
        return list({**self.incoming.positions(), **self.promised_ends, **self._claims.sites})

    # --- claims ---------------------------------------------------------------------------------------

    def on_answer(self, origin: str, answer: ClaimAnswer) -> None:
        """An origin has stored a claim. Waits for the next answer where the log does not have what was accepted."""
        if not self._claims.is_own(answer.version):
            return
        self.incoming.resume(origin)
        if self.incoming.durable(origin) < answer.begun and not self._begin(origin, answer):
            return
        site = self._claims.sites.setdefault(origin, ClaimedOrigin())
        if site.applied and site.applied[-1][0] > answer.version:
            return
        if site.least_version is None:
            site.least_version = answer.before
        if answer.number >= site.number:
            site.cluster, site.number = answer.cluster, answer.number
        if not site.applied or site.applied[-1][0] < answer.version:
            # What was taken before now was matched with an earlier version.
            position = max(answer.position, site.accepted, self.incoming.durable(origin))
            site.applied.append((answer.version, position))
            del site.applied[:-_VERSIONS_KEPT]
            self.promised_ends[origin] = max(position, self.promised_ends.get(origin, 0))

    def _begin(self, origin: str, answer: ClaimAnswer) -> bool:
        """Begin a stream, or begin it anew behind a gap. Returns False where the log is not as far as it must be."""
        if not self.incoming.is_settled(origin):
            return False
        was_known = origin in self.incoming or origin in self.promised_ends
        start = self.incoming.durable(origin)
        missing = self.incoming.skip(origin, max(start, answer.missing_from or 0), answer.begun)
        is_missing = was_known or answer.missing_from is not None
        if missing is not None and is_missing and missing[0] < missing[1]:
            first = start if was_known else missing[0]
            self._out.append(AnnounceGap(origin, first, missing[1], answer.reason or BEGUN_ANEW))
        return True

    # --- streams --------------------------------------------------------------------------------------

    def on_part(
        self,
        origin: str,
        carrier: str,
        window: int,
        part: StreamPart,
        offsets: tuple[int, ...],
        payloads: tuple[bytes, ...],
        now: float,
    ) -> None:
        """Take a packet of a carrier."""
        site = self._claims.sites.get(origin)
        if site is None or site.least_version is None or part.version < site.least_version:
            return  # nobody knows yet, or the carrier does not, what was promised there
        assembly = self._assemblies.setdefault((origin, carrier), WindowAssembly())
        events = assembly.take(window, part, offsets, payloads)
        if events is not None:
            self._take_window(origin, carrier, site, window, part, events, now)

    def _take_window(
        self,
        origin: str,
        carrier: str,
        site: ClaimedOrigin,
        window: int,
        part: StreamPart,
        events: Events,
        now: float,
    ) -> None:
        limit = self._limit(site, part.version)
        events = [each for each in events if part.previous <= each[0] < limit]
        if not events:
            return
        whole = StreamPart(part.previous, events[-1][0] + 1, 1)
        self.incoming.resume(origin)
        match self.incoming.receive(origin, window, whole, events, now):
            case StreamPiece(end, piece):
                site.accepted = max(site.accepted, whole.end)
                site.carriers[carrier] = None
                self._out.append(Append(origin, end, piece))
            case AnswerNeeded(position, wants_more):
                self._out.say(carrier, MemberPosition(origin, position, wants_more))
            case None:
                site.accepted = max(site.accepted, whole.end)
                site.carriers[carrier] = None

    def on_news(self, carrier: str, news: StreamNews) -> None:
        """Go on where a carrier says that nothing is missing, and say what this site has."""
        site = self._claims.sites.get(news.origin)
        if site is None or site.least_version is None or news.version < site.least_version:
            return
        durable = self.incoming.durable(news.origin)
        end = min(news.position, self._limit(site, news.version))
        if durable >= news.given and end > durable and self.incoming.is_settled(news.origin):
            self.incoming.skip(news.origin, durable, end)
        position = self.incoming.durable(news.origin)
        self._out.say(carrier, MemberPosition(news.origin, position, wants_more=False))

    def on_gap(self, carrier: str, gap: MemberGap) -> None:
        site = self._claims.sites.get(gap.origin)
        if site is None or site.least_version is None or not self.incoming.is_settled(gap.origin):
            return  # the carrier tells this again
        missing = self.incoming.skip(gap.origin, gap.start, gap.end)
        if missing is not None and missing[0] < missing[1]:
            self._out.append(AnnounceGap(gap.origin, *missing, gap.reason))
        position = self.incoming.durable(gap.origin)
        self._out.say(carrier, MemberPosition(gap.origin, position, wants_more=False))

    # --- log ------------------------------------------------------------------------------------------

    def appended(self, origin: str, end: int) -> None:
        piece = self.incoming.appended(origin, end)
        if piece is not None:
            self._out.append(Append(origin, piece.end, piece.events))
        site = self._claims.sites.get(origin)
        if site is None:
            return
        position = self.incoming.durable(origin)
        for carrier in site.carriers:
            self._out.say(carrier, MemberPosition(origin, position, wants_more=False))
        if self.incoming.is_settled(origin):
            site.carriers.clear()

    def append_failed(self, origin: str) -> None:
        self.incoming.failed(origin)

    def forget(self, origin: str) -> None:
        """End the stream of an origin that is replaced."""
        self.incoming.forget(origin)
        self.promised_ends.pop(origin, None)
        self._claims.sites.pop(origin, None)
        for key in [key for key in self._assemblies if key[0] == origin]:
            del self._assemblies[key]

    def _limit(self, site: ClaimedOrigin, version: int) -> int:
        """Up to where something that was matched with a version may be taken."""
        place = bisect_left(site.applied, (version + 1, 0))
        return site.applied[place][1] if place < len(site.applied) else _NO_LIMIT
