"""The interface of a routing strategy: everything in the shell of a site that depends on the way to route.

runner --begin--> strategy --> node         links, mailboxes, the log and gossip are the runner's business
runner --carry_out, is_acknowledgement-->   what only this way to route has is the strategy's
report --stream_of, advertised_by, ...-->   what an operator sees of it
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from culver.config import OverlaySettings
from culver.matching import PredicateSummary, SitePredicate
from culver.messages import CarriageStatus, ClusteringStatus, ClusterStatus, LoadStatus
from culver.model.columns import Columns
from culver.model.language import Clause, Prepared
from culver.overlay import RoutingFrame, RoutingInstruction, RoutingNode

CarryOut = Callable[[Sequence[RoutingInstruction]], None]


class PredicateSum(Protocol):
    """Subscriptions by number, as one predicate. See `matching.PredicateSummary`."""

    def add(self, number: int, clauses: Sequence[Clause]) -> None: ...

    def add_rows(self, number: int, prepared: Prepared, columns: Columns) -> None: ...

    def remove(self, number: int) -> None: ...

    def encode(self) -> SitePredicate: ...


class AdvertisedPredicate(NamedTuple):
    """The predicate of another site, as far as it is known here. `heard_at` is None where that is not known. Where
    there is a `refusal`, it is not in effect here for that reason."""

    version: int
    predicate: SitePredicate
    heard_at: float | None
    refusal: str


class RoutingStrategy(Protocol):
    """Lives on the event loop. `begin` comes before everything else, and again after `close`."""

    def __init__(self, settings: OverlaySettings, directory: Path, carry_out: CarryOut) -> None:
        """`directory` is that of the overlay's files, and `carry_out` takes the instructions of the node."""

    async def begin(self, own: str, boot: int, position: int, positions: Mapping[str, int]) -> RoutingNode:
        """The node of a new run, with what earlier runs have stored for it."""

    async def close(self) -> None: ...

    async def settled(self) -> None:
        """Wait until everything is on disk that the node has asked for."""

    def troubles(self) -> list[str]:
        """Everything that an operator must see to, as sentences."""

    def worked(self, busy_seconds: float) -> None:
        """The event loop was busy for so long since the last call, about a second ago."""

    def load(self) -> LoadStatus | None:
        """How much this site has to do, where this way to route measures it."""

    # --- what this site asks for ----------------------------------------------------------------------

    def new_summary(self) -> PredicateSum:
        """The sum of the site's subscriptions, in the form that the node advertises."""

    def advertise(self, predicate: SitePredicate) -> Sequence[RoutingInstruction]:
        """Have the node ask for what a sum gives."""

    # --- messages and instructions --------------------------------------------------------------------

    def read(self, body: bytes) -> RoutingFrame:
        """The message of a frame, for the node. Raises msgspec.DecodeError."""

    def is_acknowledgement(self, message: RoutingFrame) -> bool:
        """Whether this site says in it that it has something on disk."""

    def makes_room(self, message: RoutingFrame) -> bool:
        """Whether a message that came may let a mailbox offer more though its cursor does not move."""

    def carry_out(self, instruction: RoutingInstruction) -> None:
        """Carry out an instruction that only this way to route has."""

    def has_mailbox(self, key: str) -> bool:
        """Whether this way to route has mailboxes with such a name."""

    # --- what is known of a site ----------------------------------------------------------------------

    def known_sites(self) -> set[str]:
        """The keys of all sites that were ever heard of."""

    def stream_of(self, site: str) -> str | None:
        """The name of the mailbox from which a site gets its events; None where there is none."""

    def in_effect_from(self, site: str) -> int | None:
        """The position of this log from which a site gets what it asks for."""

    def advertised_by(self, site: str) -> AdvertisedPredicate | None: ...

    def refusal_by(self, site: str) -> str:
        """Why a site refuses what this one asks for; empty where it does not."""

    def cluster_of(self, site: str) -> int | None:
        """The cluster that a site is in, for the events of this one."""

    def cluster_count(self, site: str) -> int | None:
        """How many clusters there are for the events of a site."""

    def shares_cluster(self, site: str) -> bool:
        """Whether a site knows the predicate of this one because they share a cluster."""

    def clustering(self) -> ClusteringStatus | None:
        """The clusters for the events of this site, and why there are so many."""

    def clusters(self, pending: Callable[[str], int]) -> list[ClusterStatus]:
        """The clusters that this site sends events to. `pending` counts what is in a mailbox."""

    def carriages(self) -> list[CarriageStatus]:
        """What this site carries for others."""


def encoded_summary(settings: OverlaySettings) -> PredicateSummary:
    return PredicateSummary(settings.encoding, settings.false_positive_rate, settings.max_vectors)
