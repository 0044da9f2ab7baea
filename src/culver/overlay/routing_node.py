"""The interface between the shell of a site and its node, the same for both ways to route.

    b-drp      core.OverlayNode         every site knows the predicates of all others
    clusters   clusters.ClusterNode     a site knows the predicates of its own cluster

Both take the same calls and give instructions. A strategy of the shell (see `site.wide_area.routing`) makes the node,
and carries out the instructions that only its own way to route has.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from culver.matching import EncodedPredicate, SitePredicate
from culver.overlay.clusters.cluster_instructions import ClusterInstruction
from culver.overlay.clusters.cluster_messages import ClusterFrame
from culver.overlay.core.incoming_streams import IncomingStreams
from culver.overlay.core.link_states import LinkStates
from culver.overlay.core.outgoing_streams import Offered, OutgoingStreams

RoutingInstruction = ClusterInstruction
"""Those of every node: a cluster node has all those of an overlay node."""

RoutingFrame = ClusterFrame
"""The messages of every node."""


class OwnAdvertisement(Protocol):
    """The advertisement of this site, and from where on others serve it. `sites` are the others that it knows."""

    @property
    def version(self) -> int: ...

    @property
    def predicate(self) -> SitePredicate: ...

    @property
    def sites(self) -> Mapping[str, object]: ...

    def in_effect_from(self, site: str, version: int, /) -> int | None:
        """The position of a site's log from which a version, or a later one, is in effect. None while it is not."""


class RoutingNode(Protocol):
    """Every method that returns instructions hands over all that are due, to be carried out in their order. The owner
    keeps `position`, the end of the log, up to date. See `OverlayNode` for what each method means."""

    own: str
    position: int

    @property
    def book(self) -> OwnAdvertisement: ...

    @property
    def states(self) -> LinkStates: ...

    @property
    def incoming(self) -> IncomingStreams: ...

    @property
    def outgoing(self) -> OutgoingStreams: ...

    def restore(
        self,
        site: str,
        predicate: EncodedPredicate,
        position: int,
        acknowledged: int,
        begun: int | None = None,
    ) -> None: ...

    def restore_meetings(
        self, promised_ends: Mapping[str, int], floors: Mapping[str, int], given_anew: int | None = None
    ) -> None: ...

    def promised_ends(self) -> dict[str, int]: ...

    def floors(self) -> dict[str, int]: ...

    def link_opened(self, link: int, peer: str, cost: int, now: float) -> Sequence[RoutingInstruction]: ...

    def link_closed(self, link: int, now: float) -> Sequence[RoutingInstruction]: ...

    def received(self, link: int, message: Any, now: float) -> Sequence[RoutingInstruction]:
        """Take a message that the node's own strategy has read."""

    def gossip(self, site: str, body: bytes) -> Sequence[RoutingInstruction]: ...

    def advertise(self, predicate: EncodedPredicate) -> Sequence[RoutingInstruction]: ...

    def registered(
        self, site: str, version: int, predicate: EncodedPredicate, position: int, acknowledged: int
    ) -> Sequence[RoutingInstruction]: ...

    def registration_failed(self, site: str) -> Sequence[RoutingInstruction]: ...

    def offered(self, site: str, generation: int, items: Iterable[Offered]) -> None: ...

    def flush(self, now: float) -> Sequence[RoutingInstruction]: ...

    def appended(self, origin: str, end: int) -> Sequence[RoutingInstruction]: ...

    def append_failed(self, origin: str) -> Sequence[RoutingInstruction]: ...

    def tick(self, now: float) -> Sequence[RoutingInstruction]: ...

    def forget(self, site: str) -> Sequence[RoutingInstruction]: ...

    def is_forgotten(self, site: str) -> bool: ...

    def troubles(self) -> list[str]: ...
