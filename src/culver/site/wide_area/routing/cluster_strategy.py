"""Routing `clusters`: every cluster has a mailbox at every site, and one of its sites carries what is in it.

    StoreClaims          --> claims.json          --> claims_stored, or claims_failed
    StoreAdvertisement   --> members/KEY.json     --> advertisement_stored

The predicates are on disk at the other sites of the cluster before a claim rests on them (decision 25).
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from culver.config import MEASURED_CLUSTERS, OverlaySettings
from culver.matching import ExactSummary, SitePredicate, warm_up
from culver.messages import CarriageStatus, ClusteringStatus, ClusterStatus, LoadStatus
from culver.overlay import (
    CarriageReport,
    ClusterNode,
    ClusterNote,
    ClusterSettings,
    MeasuringSettings,
    MemberPosition,
    RoutingFrame,
    RoutingInstruction,
    RoutingNode,
    StoreAdvertisement,
    StoreClaims,
    cluster_key,
    cluster_of_key,
    decode_frame,
    name_of,
)
from culver.site.wide_area.routing.cluster_store import ClusterStore
from culver.site.wide_area.routing.member_matcher import MemberMatcher
from culver.site.wide_area.routing.routing_strategy import (
    AdvertisedPredicate,
    CarryOut,
    PredicateSum,
    encoded_summary,
)

logger = logging.getLogger(__name__)

_RETRY_SECONDS = 1.0


class ClusterStrategy:
    """Stores claims and predicates one at a time, in the order in which the node asks for it."""

    def __init__(self, settings: OverlaySettings, directory: Path, carry_out: CarryOut) -> None:
        self._overlay = settings
        self._settings = (
            ClusterSettings(0, settings.most_sites, measuring=MeasuringSettings())
            if settings.clusters == MEASURED_CLUSTERS
            else ClusterSettings(settings.clusters, settings.most_sites)
        )
        self._store = ClusterStore(directory / "clusters")
        self._carry_out = carry_out
        self._node: ClusterNode
        # A lock is taken in the order in which it is asked for.
        self._storing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    async def begin(self, own: str, boot: int, position: int, positions: Mapping[str, int]) -> RoutingNode:
        stored = await asyncio.to_thread(self._store.read)
        # The engine may have its kernels in other processes.
        await asyncio.to_thread(warm_up)
        self._node = ClusterNode(own, boot, position, positions, self._settings, MemberMatcher())
        self._node.restore_claims(stored.claims, stored.clusters)
        for site, (version, predicate) in stored.predicates.items():
            if site != own:
                self._node.restore_advertisement(site, version, predicate)
        return self._node

    def new_summary(self) -> PredicateSum:
        return ExactSummary(encoded_summary(self._overlay))

    def advertise(self, predicate: SitePredicate) -> Sequence[RoutingInstruction]:
        return self._node.advertise(predicate)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def settled(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def troubles(self) -> list[str]:
        return list(self._store.damages)

    def worked(self, busy_seconds: float) -> None:
        self._node.worked(busy_seconds)

    def load(self) -> LoadStatus | None:
        found = self._node.balance.use(asyncio.get_running_loop().time())
        return None if found is None else LoadStatus(use=found[0], capacity=found[1])

    # --- messages and instructions --------------------------------------------------------------------

    def read(self, body: bytes) -> RoutingFrame:
        return decode_frame(body)

    def is_acknowledgement(self, message: RoutingFrame) -> bool:
        # A carrier that is a member itself has its own position in its reports.
        return (
            isinstance(message, ClusterNote)
            and message.source == self._node.own
            and isinstance(message.body, MemberPosition | CarriageReport)
        )

    def makes_room(self, message: RoutingFrame) -> bool:
        # Where a member is away, the others have more than the cursor says. This site may be the carrier.
        return (
            isinstance(message, ClusterNote)
            and message.destination == self._node.own
            and isinstance(message.body, MemberPosition | CarriageReport)
        )

    def carry_out(self, instruction: RoutingInstruction) -> None:
        match instruction:
            case StoreClaims():
                self._start(self._store_claims(instruction))
            case StoreAdvertisement():
                self._start(self._store_predicate(instruction))
            case _:
                raise TypeError(f"clusters have no {type(instruction).__name__}")

    def has_mailbox(self, key: str) -> bool:
        return cluster_of_key(key) is not None

    async def _store_claims(self, wanted: StoreClaims) -> None:
        async with self._storing:
            try:
                await asyncio.to_thread(self._store.write_claims, wanted.claims, wanted.clusters)
            except OSError as exc:
                logger.error("the claims of other sites cannot be stored, and they wait: %s", exc)
                self._carry_out(self._node.claims_failed(wanted.number))
                return
        self._carry_out(self._node.claims_stored(wanted.number))

    async def _store_predicate(self, wanted: StoreAdvertisement) -> None:
        async with self._storing:
            while True:
                try:
                    await asyncio.to_thread(
                        self._store.write_predicate, wanted.site, wanted.version, wanted.predicate
                    )
                    break
                except OSError as exc:
                    logger.error("the predicate of %s cannot be stored, and it waits: %s", wanted.site, exc)
                    await asyncio.sleep(_RETRY_SECONDS)
        if wanted.predicate is not None:
            self._carry_out(self._node.advertisement_stored(wanted.site, wanted.version))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- what is known of a site ----------------------------------------------------------------------

    def known_sites(self) -> set[str]:
        node = self._node
        return {*node.book.sites, *node.states.states, *node.origin.ledger.claims}

    def stream_of(self, site: str) -> str | None:
        claim = self._node.origin.ledger.claims.get(site)
        if claim is None or not claim.active:
            return None
        key = cluster_key(claim.cluster)
        return key if key in self._node.outgoing else None

    def in_effect_from(self, site: str) -> int | None:
        claim = self._node.origin.ledger.claims.get(site)
        return None if claim is None else claim.position

    def advertised_by(self, site: str) -> AdvertisedPredicate | None:
        known = self._node.shelf.predicate_of(site)
        return None if known is None else AdvertisedPredicate(*known, None, "")

    def refusal_by(self, site: str) -> str:
        return ""

    def cluster_of(self, site: str) -> int | None:
        """The cluster that a site has claimed; before that, the one in which this site believes it to be."""
        claim = self._node.origin.ledger.claims.get(site)
        if claim is not None:
            return claim.cluster
        layout = self._node.membership.layout_of(self._node.own)
        return layout.cluster_of(site) if layout is not None and site in layout.brokers else None

    def cluster_count(self, site: str) -> int | None:
        layout = self._node.membership.layout_of(site)
        return None if layout is None else layout.clusters

    def shares_cluster(self, site: str) -> bool:
        return site in self._node.membership.mates

    def clustering(self) -> ClusteringStatus | None:
        count, measured = self.cluster_count(self._node.own), self._node.clustering.measured
        if count is None:
            return None
        if measured is None:
            return ClusteringStatus(clusters=count)
        return ClusteringStatus(
            clusters=count,
            publications=measured.publications,
            changes=measured.subscriptions,
            matching_ratio=measured.matching_ratio,
        )

    def clusters(self, pending: Callable[[str], int]) -> list[ClusterStatus]:
        members = self._node.origin.ledger.clusters()
        found = []
        for cluster, stream in sorted(self._node.origin.streams.streams.items()):
            key = cluster_key(cluster)
            flying, waiting, resends = self._node.outgoing.backlog(key)
            found.append(
                ClusterStatus(
                    cluster=cluster,
                    members=sorted(map(name_of, members.get(cluster, ()))),
                    carrier=None if stream.carrier is None else name_of(stream.carrier),
                    is_confirmed=stream.is_confirmed,
                    acknowledged=self._node.outgoing.acknowledged_position(key),
                    carried=max(stream.carried, self._node.outgoing.acknowledged_position(key)),
                    pending=pending(key),
                    bytes_under_way=flying,
                    bytes_waiting=waiting,
                    resends=resends,
                )
            )
        return found

    def carriages(self) -> list[CarriageStatus]:
        return [
            CarriageStatus(
                origin=name_of(carriage.origin),
                cluster=carriage.cluster,
                members=sorted(map(name_of, carriage.members())),
                matched=carriage.processed,
                position=carriage.position,
                carried=carriage.carried,
            )
            for _, carriage in sorted(self._node.table.carriages.items())
        ]
