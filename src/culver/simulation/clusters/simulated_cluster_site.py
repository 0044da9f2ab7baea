"""A site on virtual time that routes by clusters: the node of production, with a disk for claims and predicates."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import cast

from culver.matching import EncodedPredicate, SitePredicate
from culver.overlay.clusters.cluster_instructions import (
    ClusterInstruction,
    MemberClaim,
    SendNote,
    StoreAdvertisement,
    StoreClaims,
)
from culver.overlay.clusters.cluster_node import ClusterNode
from culver.overlay.clusters.origin_clustering import ClusterSettings
from culver.overlay.core.node_instructions import Instruction
from culver.overlay.core.overlay_messages import OverlayMessage
from culver.overlay.core.overlay_node import NodeSettings, OverlayNode
from culver.simulation.simulated_network import SimulatedNetwork
from culver.simulation.simulated_site import EventPool, OverlayWatcher, SimulatedSite, SiteFaults
from culver.simulation.virtual_clock import VirtualClock


class PoolMatcher:
    """Matches the events of a pool with the predicates of a cluster."""

    def __init__(self, pool: EventPool) -> None:
        self._pool = pool
        self._predicates: dict[str, EncodedPredicate] = {}

    def change(self, site: str, predicate: SitePredicate | None) -> None:
        if predicate is None:
            self._predicates.pop(site, None)
        else:
            assert isinstance(predicate, EncodedPredicate)
            self._predicates[site] = predicate

    def match(self, payloads: Sequence[bytes]) -> list[frozenset[str]]:
        numbers = [int(payload[:8]) for payload in payloads]
        return [
            frozenset(
                site
                for site, predicate in self._predicates.items()
                if self._pool.encoded_matches(predicate, number)
            )
            for number in numbers
        ]


class SimulatedClusterSite(SimulatedSite):
    """`note_drop` is the share of notes that a link loses, and `capacity` the messages that keep the site busy for a
    second. Without one, the site does not know what it can bear."""

    def __init__(
        self,
        name: str,
        peers: dict[str, int],
        network: SimulatedNetwork,
        clock: VirtualClock,
        random: Random,
        pool: EventPool,
        watcher: OverlayWatcher,
        faults: SiteFaults,
        settings: ClusterSettings,
        note_drop: float = 0.0,
        capacity: float | None = None,
    ) -> None:
        super().__init__(
            name, peers, network, clock, random, pool, watcher, faults, make_node=self._make_cluster_node
        )
        self.note_drop = note_drop
        self.capacity = capacity
        self.cluster_settings = settings
        """Those of the next start."""
        self._claims: tuple[MemberClaim, ...] = ()
        self._clusters = 0
        self._advertisements: dict[str, tuple[int, SitePredicate]] = {}

    @property
    def cluster_node(self) -> ClusterNode:
        """The node of the running process."""
        assert self.node is not None
        return cast(ClusterNode, self.node)

    def forget(self) -> None:
        super().forget()
        self._claims, self._clusters, self._advertisements = (), 0, {}

    def let_go(self, site: str) -> None:
        """The operator has the site forget another one."""
        self._run_all(self.cluster_node.forget(site))

    def _make_cluster_node(
        self, own: str, boot: int, position: int, positions: Mapping[str, int], settings: NodeSettings
    ) -> OverlayNode:
        node = ClusterNode(own, boot, position, positions, self.cluster_settings, PoolMatcher(self._pool))
        node.restore_claims(self._claims, self._clusters)
        for site, (version, predicate) in self._advertisements.items():
            node.restore_advertisement(site, version, predicate)
        return cast(OverlayNode, node)

    def _tick(self, node: OverlayNode) -> None:
        if self.node is node and self.capacity is not None:
            self.cluster_node.worked(self.cluster_node.balance.handled / self.capacity)
        super()._tick(node)

    def _run(self, instructions: Sequence[Instruction]) -> None:
        self._run_all(instructions)

    def _run_all(self, instructions: Sequence[ClusterInstruction]) -> None:
        for each in instructions:
            match each:
                case SendNote(link, note):
                    if self._random.random() >= self.note_drop:
                        self._transmit(link, cast(OverlayMessage, note))
                case StoreAdvertisement():
                    self._store_advertisement(each)
                case StoreClaims():
                    self._store_claims(each)
                case _:
                    super()._run([each])

    def _store_advertisement(self, wanted: StoreAdvertisement) -> None:
        node, predicate = self.node, wanted.predicate

        def done() -> None:
            if self.node is not node:
                return
            if predicate is None:
                self._advertisements.pop(wanted.site, None)
            else:
                self._advertisements[wanted.site] = wanted.version, predicate
                self._run_all(self.cluster_node.advertisement_stored(wanted.site, wanted.version))

        self._clock.after(self._disk_delay(), done)

    def _store_claims(self, wanted: StoreClaims) -> None:
        node, is_refused = self.node, self._random.random() < self.faults.disk_refuses

        def done() -> None:
            if self.node is not node:
                return
            if is_refused:
                self._run_all(self.cluster_node.claims_failed(wanted.number))
            else:
                self._claims, self._clusters = wanted.claims, wanted.clusters
                self._run_all(self.cluster_node.claims_stored(wanted.number))

        self._clock.after(self._disk_delay(), done)
