"""The instructions of a cluster node: those of an overlay node, and what claims and clusters need besides.

The mailboxes are those of clusters, not of sites: `Register`, `Unregister`, `MoveCursor` and `Rewind` name them by
`cluster_key`.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from culver.matching import NOTHING, EncodedPredicate
from culver.overlay.clusters.cluster_messages import ClusterBody, ClusterNote
from culver.overlay.core.link_states import LinkStates
from culver.overlay.core.neighbours import Neighbours
from culver.overlay.core.node_instructions import Instruction, Refuse, SendMessage
from culver.overlay.core.overlay_messages import OverlayMessage

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
    predicate: EncodedPredicate | None


@dataclass(frozen=True, slots=True)
class StoreClaims:
    """Store all claims, in place of those of before. Answer with `ClusterNode.claims_stored`, or with
    `claims_failed`."""

    number: int
    claims: tuple[MemberClaim, ...]


ClusterInstruction = Instruction | SendNote | StoreAdvertisement | StoreClaims


class ClusterOutbox:
    """The instructions that a node gives in answer to one call, in their order. Notes to the site itself wait in
    `local` until the call has done everything else."""

    def __init__(self, states: LinkStates, neighbours: Neighbours) -> None:
        self._states = states
        self._neighbours = neighbours
        self._instructions: list[ClusterInstruction] = []
        self.local: list[ClusterBody] = []

    def append(self, instruction: ClusterInstruction) -> None:
        self._instructions.append(instruction)

    def extend(self, instructions: Iterable[ClusterInstruction]) -> None:
        self._instructions.extend(instructions)

    def send(self, link: int, message: OverlayMessage) -> None:
        self.append(SendMessage(link, message))

    def flood(self, message: OverlayMessage, but: int | None = None) -> None:
        """Send to every neighbour once, except to the one that a link leads to."""
        source = self._neighbours[but].site if but is not None else None
        for link in self._neighbours.links(but=source):
            self.send(link, message)

    def say(self, destination: str, body: ClusterBody) -> None:
        """Say something to a site, which may be this one."""
        if destination == self._states.own:
            self.local.append(body)
        else:
            self.route(ClusterNote(self._states.own, destination, 0, body))

    def route(self, note: ClusterNote) -> None:
        """Send a note one hop on. It is lost where there is no way: whoever waits for it asks again."""
        neighbour = self._states.next_hop(note.destination)
        link = None if neighbour is None else self._neighbours.link_to(neighbour)
        if link is not None:
            self.append(SendNote(link, note))

    def refuse(self, source: str, reason: str, *, severe: bool = False) -> None:
        self.append(Refuse(source, reason, severe))

    def take(self) -> list[ClusterInstruction]:
        """Hand all instructions over, and begin anew."""
        taken, self._instructions = self._instructions, []
        return taken
