"""The instructions of a cluster node: those of an overlay node, and what claims and clusters need besides.

The mailboxes are those of clusters, not of sites: `Register`, `Unregister`, `MoveCursor` and `Rewind` name them by
`cluster_key`.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from culver.matching import NOTHING, EncodedPredicate, SitePredicate
from culver.overlay.clusters.cluster_messages import ClusterBody, ClusterNote
from culver.overlay.clusters.load.load_messages import LoadFigures
from culver.overlay.core.link_states import LinkStates
from culver.overlay.core.neighbours import Neighbours
from culver.overlay.core.node_instructions import Instruction, InstructionOutbox

EVERY_EVENT = EncodedPredicate(NOTHING.encoding, NOTHING.bits, NOTHING.hashes, (), (bytes(8),))
"""The predicate of a cluster's mailbox: it matches every event that is published at the site itself."""

_KEY = re.compile(r"cluster~(0|[1-9][0-9]{0,3})")


def cluster_key(cluster: int) -> str:
    """The name of a cluster's mailbox."""
    return f"cluster~{cluster}"


def cluster_of_key(key: str) -> int | None:
    """None where this is not the name of a cluster's mailbox."""
    found = _KEY.fullmatch(key)
    return None if found is None else int(found[1])


@dataclass(frozen=True, slots=True)
class MemberClaim:
    """What a member has claimed here. Its advertisement has had `version` from `position` on, and `before` it another
    one. The member has been in `cluster` since `since`, and what is before that comes through the cluster that it is
    `leaving`; or always, and then `since` is 0. See ClaimAnswer for the rest."""

    member: str
    version: int
    before: int
    position: int
    active: bool
    cluster: int
    begun: int
    since: int = 0
    leaving: int | None = None
    missing_from: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SendNote:
    """Send a note on a link. It is urgent."""

    link: int
    note: ClusterNote


@dataclass(frozen=True, slots=True)
class StoreAdvertisement:
    """Store the predicate of another site of the cluster, or remove it where it is None. Answer a stored one with
    `ClusterNode.advertisement_stored`."""

    site: str
    version: int
    predicate: SitePredicate | None


@dataclass(frozen=True, slots=True)
class StoreClaims:
    """Store all claims, in place of those of before, with the number of clusters that the node is to have after a
    restart. Answer with `ClusterNode.claims_stored`, or with `claims_failed`."""

    number: int
    claims: tuple[MemberClaim, ...]
    clusters: int = 0


ClusterInstruction = Instruction | SendNote | StoreAdvertisement | StoreClaims


class ClusterOutbox(InstructionOutbox[ClusterNote, SendNote | StoreAdvertisement | StoreClaims]):
    """Notes to the site itself wait in `local` until the call has done everything else. `load` gives the figures to
    attach to what is said to a site."""

    def __init__(
        self,
        states: LinkStates,
        neighbours: Neighbours,
        load: Callable[[str, ClusterBody], LoadFigures | None] = lambda site, body: None,
    ) -> None:
        super().__init__(states, neighbours, SendNote)
        self._own = states.own
        self._load = load
        self.local: list[ClusterBody] = []

    def say(self, destination: str, body: ClusterBody) -> None:
        """Say something to a site, which may be this one."""
        if destination == self._own:
            self.local.append(body)
        else:
            self.route(ClusterNote(self._own, destination, 0, body, self._load(destination, body)))
