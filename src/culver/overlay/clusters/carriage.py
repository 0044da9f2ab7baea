"""Carriages: a site matches the events of an origin for its cluster, and sends them on to the members that want them.

    stream of paris for cluster 2       matched up to 40
    lyon     has 31, sent up to 40      a part is under way: it counts up to 31
    bonn     has 12, sent up to 40      nothing behind 12 was for it: it counts up to 40
    oslo     has 25, away               what is at 33 is for it: it counts up to 33, and holds the cursor there

    report   position 31 (all of them), carried 31 (those that can be reached)

A carriage keeps nothing but these figures. The log of the origin is the only store: where a member is behind, the
carrier asks for the stream again, matches it again, and sends it only to those that have not got it.

Invariant: a member that counts up to a position has everything below it that its claim asks for, or the origin's
cursor has said so. It is upheld whatever a carrier was told of the layout, and whoever carried before.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from culver.matching import SitePredicate
from culver.overlay.clusters.cluster_messages import ANY_VERSION, CarriageReport, CarrierTerms, StreamNews
from culver.overlay.clusters.window_parts import MemberShare

_ASK_SECONDS = 1.0
_GAP_SECONDS = 0.2
# A member that can be reached and has not answered for so long does not hold up the others.
_PATIENCE_SECONDS = 3.0
_LONGEST_PAUSE_SECONDS = 30.0
_NEWS_SECONDS = 10.0
_NEVER = float("-inf")

LEAST_LEFT_OUT = 1_000
"""So much of a stream is left out if all who can be reached have it. Less comes again, to see what is for others."""

_COUNTED_EVENTS = 10_000


class ClusterMatcher(Protocol):
    """Finds the sites of a cluster whose predicates match events."""

    def change(self, site: str, predicate: SitePredicate | None) -> None:
        """This is the predicate of a site from now on; None removes it."""

    def match(self, payloads: Sequence[bytes]) -> list[frozenset[str]]:
        """The sites for each event."""


@dataclass(slots=True)
class _Carried:
    """A member. It has everything below `acknowledged`, and what is for it below `upto` is sent, in parts up to
    `end`. Where it `is_known`, it has said itself what it has."""

    version: int
    since: int
    until: int
    acknowledged: int
    upto: int
    end: int
    is_known: bool = False
    is_reachable: bool = False
    asked_at: float = _NEVER
    told_at: float = _NEVER
    waits_since: float = 0.0
    paused_until: float = _NEVER
    pause_seconds: float = 1.0

    @property
    def is_served(self) -> bool:
        return self.is_known and self.is_reachable

    @property
    def is_waiting(self) -> bool:
        """Whether a part is under way."""
        return self.acknowledged < self.end

    @property
    def position(self) -> int:
        return self.acknowledged if self.is_waiting else self.upto

    @property
    def is_finished(self) -> bool:
        return bool(self.until) and self.position >= self.until

    @property
    def is_uninformed(self) -> bool:
        """Whether the member has more than it knows of."""
        return self.end <= self.acknowledged < self.upto

    def go_back(self, position: int) -> None:
        self.acknowledged = self.upto = self.end = position

    def stop(self) -> None:
        """Send nothing until the member has said what it has."""
        self.go_back(self.position)
        self.is_known = False
        self.asked_at = _NEVER


class Carriage:
    """Carries one origin's events to the members of one cluster. Time is an argument."""

    def __init__(self, origin: str, terms: CarrierTerms) -> None:
        self.origin = origin
        self.cluster = terms.cluster
        self.number = terms.number
        self.processed = terms.start
        self._floor = 0
        self._members: dict[str, _Carried] = {}
        self._asked_at = _NEVER
        self._missed_at = _NEVER
        self._is_behind = False
        self._reported: CarriageReport | None = None
        # How many of the last events there are, and how many members take one of them on average.
        self._counted = 0
        self._taken = 0.0
        self.take_terms(terms)

    # --- terms ----------------------------------------------------------------------------------------

    def take_terms(self, terms: CarrierTerms) -> None:
        """Take terms that are at least as new as those at hand."""
        if terms.number < self.number:
            return
        self.number = terms.number
        self._floor = max(self._floor, terms.floor)
        self.processed = max(self.processed, self._floor)
        before, self._members = self._members, {}
        for claim in terms.members:
            member = before.get(claim.site)
            if member is None:
                member = _Carried(
                    claim.version, claim.since, claim.until, terms.floor, terms.floor, terms.floor
                )
            elif member.version != claim.version:
                # What was matched with another version must be matched again from there on.
                member.go_back(min(member.position, claim.position))
                member.stop()
                member.version = claim.version
            member.since, member.until = claim.since, claim.until
            if member.position < self._floor:
                member.stop()
            self._members[claim.site] = member
        self._reported = None

    def members(self) -> Collection[str]:
        return self._members.keys()

    def lacking(self, versions: Mapping[str, int]) -> list[str]:
        """The members whose advertisements are not at hand as the terms name them."""
        return [site for site, member in self._members.items() if versions.get(site, -1) < member.version]

    # --- events ---------------------------------------------------------------------------------------

    def process(
        self,
        previous: int,
        end: int,
        events: Sequence[tuple[int, bytes]],
        matched: Sequence[Collection[str]],
        versions: Mapping[str, int],
        now: float,
    ) -> dict[str, MemberShare]:
        """Take a window with everything of `[previous, end)`, and the sites that each event is for. Returns what to
        send to which member."""
        if previous > self.processed:
            if now - self._missed_at >= _GAP_SECONDS:
                self._missed_at, self._is_behind = now, True
            return {}
        if end <= self.processed:
            self._reported = None  # it has come again: the last report may be lost
        wanted: dict[str, list[int]] = {}
        for (offset, _), sites in zip(events, matched, strict=True):
            for site in sites:
                wanted.setdefault(site, []).append(offset)
        self._count(events, wanted)
        shares = {}
        for site, member in self._members.items():
            if versions.get(site, -1) >= member.version:
                share = self._advance(member, previous, end, wanted.get(site, ()), versions.get(site, 0), now)
                if share is not None:
                    shares[site] = share
        self.processed = max(self.processed, end)
        return shares

    def _count(self, events: Sequence[tuple[int, bytes]], wanted: Mapping[str, Sequence[int]]) -> None:
        """Take note of how many members the new events of a window are for."""
        new = sum(offset >= self.processed for offset, _ in events)
        if new:
            taken = sum(
                offset >= self.processed
                for site, member in self._members.items()
                if not member.until  # it is counted where it goes
                for offset in wanted.get(site, ())
            )
            self._counted = min(self._counted + new, max(new, _COUNTED_EVENTS))
            self._taken += (taken - new * self._taken) / self._counted

    def _advance(
        self, member: _Carried, previous: int, end: int, offsets: Sequence[int], version: int, now: float
    ) -> MemberShare | None:
        if member.is_waiting and previous <= member.acknowledged:
            member.go_back(member.acknowledged)  # the origin sends it again
        if previous > member.upto or end <= member.upto:
            return None
        if member.upto < self.processed:
            self._asked_at = now
        # Nobody may tell the member that nothing is for it from `until` on: that comes through another cluster.
        last = max(member.upto, min(end, member.until)) if member.until else end
        new = [offset for offset in offsets if member.upto <= offset < last]
        if not new:
            member.upto = last
            return None
        if not member.is_served:
            member.go_back(new[0])
            return None
        share = MemberShare(member.end, new[-1] + 1, version, new)
        if not member.is_waiting:
            member.waits_since = now
        member.upto, member.end = last, new[-1] + 1
        return share

    def skip(self, start: int, end: int, now: float) -> list[str]:
        """The origin no longer has what is in `[start, end)`. Returns the members that must announce it."""
        if start > self.processed:
            self._is_behind = True
            return []
        missing = []
        for site, member in self._members.items():
            if member.is_waiting and start <= member.acknowledged:
                member.go_back(member.acknowledged)
            if start > member.upto or end <= member.upto or member.is_finished:
                continue
            if member.is_served:
                missing.append(site)
                member.waits_since = now
                member.upto = member.end = end
        self.processed = max(self.processed, end)
        self._reported = None
        return missing

    # --- members --------------------------------------------------------------------------------------

    def heard(self, site: str, position: int, wants_more: bool) -> None:
        """A member has said what it has."""
        member = self._members.get(site)
        if member is None:
            return
        if position < self._floor:
            # What is before the floor comes through another cluster, or the member has forgotten that it has it.
            if wants_more and member.is_known:
                member.stop()
        elif not member.is_known:
            if position < member.acknowledged:
                member.go_back(position)
            member.is_known = True
            member.acknowledged = member.end = position
            member.upto = max(member.upto, position)
        elif wants_more:
            member.go_back(position)
        elif position > member.acknowledged:
            member.acknowledged = position
            member.pause_seconds = 1.0
            member.upto = max(member.upto, position)
        if member.upto < self.processed and not member.is_finished:
            self._is_behind = True

    def go_ahead(self, end: int) -> None:
        """Leave out what all members that can be reached have, up to a position that the origin's log has reached.
        An origin that has started again does not know that, and begins at its cursor, where somebody who is away may
        hold it back for days."""
        present = [each for each in self._members.values() if each.is_reachable and not each.is_finished]
        if present and all(each.is_known for each in present):
            reached = min([end, *(each.position for each in present)])
            if reached >= self.processed + LEAST_LEFT_OUT:
                self.processed = reached

    def look(self, reaches: Callable[[str], bool], now: float) -> None:
        """Take note of who can be reached, and who has not answered for too long."""
        for site, member in self._members.items():
            if reaches(site) != member.is_reachable:
                member.is_reachable = not member.is_reachable
                member.stop()
                member.paused_until = _NEVER
            elif member.is_served and member.is_waiting and now - member.waits_since >= _PATIENCE_SECONDS:
                member.stop()
                member.paused_until = now + member.pause_seconds
                member.pause_seconds = min(2 * member.pause_seconds, _LONGEST_PAUSE_SECONDS)

    def news(self, versions: Mapping[str, int], now: float) -> list[tuple[str, StreamNews]]:
        """What members must hear: those of whom nothing is known are asked. Where somebody holds the cursor back, the
        others learn now and then that nothing was for them, so that nobody must send it again to find that out."""
        found = []
        is_held_back = self.position < self.carried
        for site, member in self._members.items():
            if not member.is_reachable or versions.get(site, -1) < member.version:
                continue
            if not member.is_known:
                if now >= member.paused_until and now - member.asked_at >= _ASK_SECONDS:
                    member.asked_at = now
                    position, version = self._floor, ANY_VERSION
                    if member.acknowledged > position:
                        position, version = member.acknowledged, member.version
                    if member.until:
                        position = min(position, member.until)  # the cursor may be further without it
                    found.append((site, StreamNews(self.origin, version, member.since, position)))
            elif is_held_back and member.is_uninformed and now - member.told_at >= _NEWS_SECONDS:
                member.told_at = now
                news = StreamNews(self.origin, member.version, member.acknowledged, member.upto)
                found.append((site, news))
        return found

    # --- reports --------------------------------------------------------------------------------------

    @property
    def position(self) -> int:
        """Every member counts up to here at least."""
        open_ = (member.position for member in self._members.values() if not member.is_finished)
        return min((self.processed, *open_))

    @property
    def carried(self) -> int:
        """Every member that can be reached counts up to here at least."""
        served = (
            member.position
            for member in self._members.values()
            if member.is_served and not member.is_finished
        )
        return min((self.processed, *served))

    def report(self, now: float) -> CarriageReport | None:
        """What the origin must hear, if that is news."""
        again = self._again(now)
        finished = tuple(site for site, member in self._members.items() if member.is_finished)
        report = CarriageReport(self.number, self.cluster, self.position, self.carried, again, finished)
        if report == self._reported and again is None:
            return None
        self._reported = msgspec.structs.replace(report, again=None)
        taken = round(1000 * self._taken) if self._counted else None
        return msgspec.structs.replace(report, taken=taken)

    def _again(self, now: float) -> int | None:
        """The position from which the stream must come again: at once where that is news, and every second."""
        behind = [
            member.upto
            for member in self._members.values()
            if member.is_served and member.upto < self.processed and not member.is_finished
        ]
        if not self._is_behind and (not behind or now - self._asked_at < _ASK_SECONDS):
            return None
        self._is_behind = False
        self._asked_at = now
        return min((self.processed, *behind))
