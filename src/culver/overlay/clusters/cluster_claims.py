"""The claims at an origin: who gets its events, through which cluster, and from which position on.

    lyon    version 8 from 512 on (7 before), cluster 2
    bonn    version 3 from 40 on, cluster 1 since 700, and leaving cluster 2: what is before 700 comes through that

Claims decide, and not what anybody believes of the layout. A claim is in effect when it is on disk. Its position is
the end of the log when it was made, and from then on no cursor of its clusters passes that position before new terms
are out. So a cursor never passes an event for a member that has not got it.

A member is in one cluster, or in two while it moves. A further move waits until it has left the first one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from culver.overlay.clusters.cluster_instructions import MemberClaim, StoreClaims
from culver.overlay.clusters.cluster_messages import Claim, ClaimAnswer, TermsMember


@dataclass(frozen=True, slots=True)
class StoredChange:
    """What a store has brought about: who must be answered, and the clusters whose terms change."""

    answered: tuple[str, ...]
    clusters: frozenset[int]


@dataclass(frozen=True, slots=True)
class _Storing:
    instruction: StoreClaims
    claims: dict[str, MemberClaim]
    change: StoredChange


class ClaimLedger:
    """Holds the claims that are on disk in `claims`, and collects changes for the next store. One store is under way
    at a time."""

    def __init__(self) -> None:
        self.claims: dict[str, MemberClaim] = {}
        self._wanted: dict[str, Claim] = {}
        # The number of each member's newest claim, and of the one that is in effect.
        self._newest: dict[str, int] = {}
        self._answered: dict[str, int] = {}
        self._owed: dict[str, tuple[int, str]] = {}
        self._dropped: set[str] = set()
        self._finished: set[tuple[str, int]] = set()
        self._storing: _Storing | None = None
        self._is_failed = False
        self._stores = 0
        self.changes = 0
        """Counts the versions that were claimed: a move of a member is none."""

    def restore(self, claims: Iterable[MemberClaim]) -> None:
        # A move at the very beginning of a log has nothing to wait for, and would never be over.
        self.claims = {
            claim.member: claim if claim.since else replace(claim, leaving=None) for claim in claims
        }

    # --- changes --------------------------------------------------------------------------------------

    def want(self, member: str, claim: Claim, owed: tuple[int, str] | None) -> bool:
        """Take a claim. Returns whether it is in effect already, or an answer can say why not: then nothing changes.
        `owed` says from where on the member may miss something, and why, if this is its first claim."""
        is_storing = self._storing is not None and member in self._storing.change.answered
        if claim.number < self._newest.get(member, 0):
            # It was overtaken, or an earlier run had higher numbers.
            return self.holds(member) and not is_storing
        self._newest[member] = claim.number
        stored = self._claims_to_be().get(member) if self.holds(member) else None
        if stored is not None and (
            claim.version < stored.version or (claim.version == stored.version and not _moves(stored, claim))
        ):
            self._wanted.pop(member, None)
            if not is_storing:
                self._answered[member] = claim.number
            return not is_storing
        before = self._wanted.get(member)
        if before is None or before.version <= claim.version:
            self._wanted[member] = claim
            if owed is not None:
                self._owed[member] = owed
        return False

    def holds(self, member: str) -> bool:
        """Whether there is a claim of a member, stored or being stored, that is not dropped."""
        return member in self._claims_to_be() and member not in self._dropped

    def _claims_to_be(self) -> dict[str, MemberClaim]:
        return self.claims if self._storing is None else self._storing.claims

    def drop(self, member: str) -> None:
        """A member is replaced or forgotten."""
        for each in (self._wanted, self._newest, self._answered):
            each.pop(member, None)
        if member in self.claims or self._is_storing(member):
            self._dropped.add(member)

    def finish(self, member: str, cluster: int) -> None:
        """A member has everything that comes through the cluster that it is leaving."""
        stored = self.claims.get(member)
        if stored is not None and stored.leaving == cluster:
            self._finished.add((member, cluster))

    def needed_clusters(self) -> set[int]:
        """The clusters that need a mailbox: somebody in them wants something, or is about to."""
        claims = [
            *self.claims.values(),
            *(self._storing.claims.values() if self._storing is not None else ()),
        ]
        needed = {cluster for claim in claims if claim.active for cluster in _clusters(claim)}
        return needed | {claim.cluster for claim in self._wanted.values() if claim.active}

    # --- stores ---------------------------------------------------------------------------------------

    def next_store(
        self, position: int, mailboxes: Mapping[int, object]
    ) -> tuple[StoreClaims, frozenset[int]] | None:
        """What to store next, if anything, with the clusters whose terms it changes. `position` is the end of the
        log, and claims wait for the `mailboxes` of their clusters."""
        if self._storing is not None:
            if not self._is_failed:
                return None
            self._is_failed = False
            return self._storing.instruction, self._storing.change.clusters
        claims, answered, clusters = dict(self.claims), [], set[int]()
        for member in self._dropped:
            gone = claims.pop(member, None)
            clusters |= _clusters(gone) if gone is not None and gone.active else set()
        self._dropped.clear()
        for member, cluster in self._finished:
            leaver = claims.get(member)
            if leaver is not None and leaver.leaving == cluster:
                claims[member] = replace(leaver, since=0, leaving=None)
                clusters |= {leaver.cluster, cluster}
        self._finished.clear()
        for member, wanted in list(self._wanted.items()):
            if wanted.active and wanted.cluster not in mailboxes:
                continue
            del self._wanted[member]
            self._answered[member] = wanted.number
            before = claims.get(member)
            claims[member] = after = self._changed(member, before, wanted, position)
            answered.append(member)
            for claim in (before, after):
                clusters |= _clusters(claim) if claim is not None and claim.active else set()
        if claims == self.claims:
            return None
        self._stores += 1
        instruction = StoreClaims(self._stores, tuple(claims.values()))
        change = StoredChange(tuple(answered), frozenset(clusters))
        self._storing = _Storing(instruction, claims, change)
        return instruction, change.clusters

    def stored(self, number: int) -> StoredChange | None:
        """A store is on disk. Returns None where another one is under way."""
        storing = self._storing
        if storing is None or storing.instruction.number != number:
            return None
        self.claims, self._storing = storing.claims, None
        return storing.change

    def failed(self, number: int) -> None:
        """A store could not be carried out: the next one is the same."""
        if self._storing is not None and self._storing.instruction.number == number:
            self._is_failed = True

    def _changed(self, member: str, before: MemberClaim | None, wanted: Claim, position: int) -> MemberClaim:
        missing_from, reason = self._owed.pop(member, (None, ""))
        self.changes += before is None or wanted.version > before.version
        version, cluster, active = wanted.version, wanted.cluster, wanted.active
        if before is None:
            return MemberClaim(
                member,
                version,
                0,
                position,
                active,
                cluster,
                position,
                missing_from=missing_from,
                reason=reason,
            )
        changed = before
        if version > before.version:
            changed = replace(
                before, version=version, before=before.version, position=position, active=active
            )
        if not (before.active and active):
            return replace(changed, cluster=cluster, since=0, leaving=None)  # nothing is owed to it
        if before.leaving is None and cluster != before.cluster:
            if position <= before.begun:  # there is nothing yet that the old cluster must bring
                return replace(changed, cluster=cluster)
            return replace(changed, cluster=cluster, since=position, leaving=before.cluster)
        return changed

    def _is_storing(self, member: str) -> bool:
        return self._storing is not None and member in self._storing.claims

    # --- what they say --------------------------------------------------------------------------------

    def answer(self, member: str) -> ClaimAnswer:
        claim = self.claims[member]
        return ClaimAnswer(
            claim.version,
            claim.before,
            claim.position,
            claim.begun,
            claim.cluster,
            claim.missing_from,
            claim.reason,
            self._answered.get(member, 0),
        )

    def members(self, cluster: int) -> tuple[TermsMember, ...]:
        """The members of a cluster that want something, for its terms."""
        return tuple(
            TermsMember(
                claim.member,
                claim.version,
                claim.position,
                claim.since if claim.leaving is not None and claim.cluster == cluster else claim.begun,
                claim.since if claim.leaving == cluster else 0,
            )
            for claim in self.claims.values()
            if claim.active and cluster in _clusters(claim)
        )

    def clusters(self) -> dict[int, list[str]]:
        """The clusters in which somebody wants something, each with its members."""
        found: dict[int, list[str]] = {}
        for claim in self.claims.values():
            for cluster in sorted(_clusters(claim)) if claim.active else ():
                found.setdefault(cluster, []).append(claim.member)
        return found


def _clusters(claim: MemberClaim) -> set[int]:
    return {claim.cluster} if claim.leaving is None else {claim.cluster, claim.leaving}


def _moves(stored: MemberClaim, claim: Claim) -> bool:
    """Whether a claim of the same version can change the cluster now."""
    return claim.cluster != stored.cluster and (stored.leaving is None or not stored.active)
