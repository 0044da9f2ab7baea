"""Routing `b-drp`: every site has a mailbox at every other one (B-DRP)."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from culver.config import OverlaySettings
from culver.matching import EncodedPredicate, SitePredicate
from culver.messages import CarriageStatus, ClusteringStatus, ClusterStatus, LoadStatus
from culver.overlay import (
    NodeSettings,
    OverlayNode,
    RoutingFrame,
    RoutingInstruction,
    RoutingNode,
    StreamAcknowledgement,
    decode_message,
    is_site_key,
)
from culver.site.wide_area.routing.routing_strategy import (
    AdvertisedPredicate,
    CarryOut,
    PredicateSum,
    encoded_summary,
)


class DrpStrategy:
    """Keeps nothing on disk: the mailboxes and the received file have everything."""

    def __init__(self, settings: OverlaySettings, directory: Path, carry_out: CarryOut) -> None:
        self._overlay = settings
        self._settings = NodeSettings(settings.broadcast_threshold, settings.open_limit, settings.most_sites)
        self._node: OverlayNode

    async def begin(self, own: str, boot: int, position: int, positions: Mapping[str, int]) -> RoutingNode:
        self._node = OverlayNode(own, boot, position, positions, self._settings)
        return self._node

    def new_summary(self) -> PredicateSum:
        return encoded_summary(self._overlay)

    def advertise(self, predicate: SitePredicate) -> Sequence[RoutingInstruction]:
        assert isinstance(predicate, EncodedPredicate)  # its own summary makes no others
        return self._node.advertise(predicate)

    async def close(self) -> None:
        pass

    async def settled(self) -> None:
        pass

    def troubles(self) -> list[str]:
        return []

    def worked(self, busy_seconds: float) -> None:
        pass

    def load(self) -> LoadStatus | None:
        return None

    def read(self, body: bytes) -> RoutingFrame:
        return decode_message(body)

    def is_acknowledgement(self, message: RoutingFrame) -> bool:
        return isinstance(message, StreamAcknowledgement) and message.source == self._node.own

    def makes_room(self, message: RoutingFrame) -> bool:
        return False  # an acknowledgement moves a cursor

    def carry_out(self, instruction: RoutingInstruction) -> None:
        raise TypeError(f"B-DRP has no {type(instruction).__name__}")

    def has_mailbox(self, key: str) -> bool:
        return is_site_key(key)

    def known_sites(self) -> set[str]:
        return {*self._node.book.sites, *self._node.states.states}

    def stream_of(self, site: str) -> str | None:
        return site if site in self._node.outgoing else None

    def in_effect_from(self, site: str) -> int | None:
        known = self._node.book.sites.get(site)
        return known.position if known is not None and site in self._node.outgoing else None

    def advertised_by(self, site: str) -> AdvertisedPredicate | None:
        known = self._node.book.sites.get(site)
        if known is None or not known.heard:
            return None
        return AdvertisedPredicate(known.heard, known.predicate, known.heard_at, known.refusal)

    def refusal_by(self, site: str) -> str:
        known = self._node.book.sites.get(site)
        return "" if known is None else known.own_refusal

    def cluster_of(self, site: str) -> int | None:
        return None

    def cluster_count(self, site: str) -> int | None:
        return None

    def shares_cluster(self, site: str) -> bool:
        return False

    def clustering(self) -> ClusteringStatus | None:
        return None

    def clusters(self, pending: Callable[[str], int]) -> list[ClusterStatus]:
        return []

    def carriages(self) -> list[CarriageStatus]:
        return []
