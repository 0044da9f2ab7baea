"""Bytes on the links of 42 sites with W3's predicates, one or more for each site, under each way to route.

Simulated sites, with the nodes of production, publish W3's events. Every frame is counted as the bytes that it has on
a link:

    packets    events with their destinations, and the numbers of sites that they use
    answers    acknowledgements and other messages between two sites
    tables     advertisements and link states; they do not depend on the number of events

An event that reaches a site which no predicate there wants is a false positive. Flooding is counted without
destinations and answers, which it does not need.
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from random import Random

import msgspec
import pyarrow as pa

from culver.bench.bench_frame import BenchmarkFailed, Tell
from culver.bench.overlay.broker_topologies import Topology, paper_topology
from culver.bench.overlay.overlay_findings import SIMULATED, OverlayFinding, OverlayResult
from culver.bench.overlay.overlay_plan import SEED, OverlayPlan
from culver.bench.workloads import named
from culver.config import UNLIMITED_FILTERS
from culver.matching import ColumnarFilter, EncodedPredicate
from culver.model.language import Predicate, parse
from culver.overlay import ClusterNote, RoutingFrame, encode_frame
from culver.overlay.clusters.cluster_messages import CarrierTerms, Claim, MemberAdvertisement
from culver.overlay.core.overlay_messages import (
    Advertisement,
    AdvertisementDigest,
    AdvertisementRequest,
    LinkState,
    OverlayMessage,
    Packet,
    SiteNumbers,
)
from culver.simulation import (
    ROUTING_POLICIES,
    LoggedEvent,
    OverlayWatcher,
    RoutingPolicy,
    SimulatedSite,
    VirtualClock,
    linked_sites,
    without_destinations,
)

EXPERIMENT = "traffic"
LINK_BYTES, FALSE_POSITIVES = "bytes on links", "false positives"
PACKETS, ANSWERS, TABLES = "packets", "answers", "tables"

# Frames have a header of 9 bytes; a simulated event begins with its number, in 8 digits.
_HEADER_BYTES = 9
_NUMBER_BYTES = 8
_SETTLE_SECONDS = 5.0
_DRAIN_SECONDS = 30.0


def measure(plan: OverlayPlan, tell: Tell) -> OverlayResult:
    workload, topology = named("W3"), paper_topology(plan.traffic_sites, SEED)
    result = OverlayResult()
    for per_site in plan.predicates_per_site:
        texts = workload.filters(per_site * topology.brokers, SEED)
        predicates = [parse(text, UNLIMITED_FILTERS) for text in texts]
        # All ways to route with one predicate a site, and the two that have a target with more.
        names = tuple(ROUTING_POLICIES) if per_site == 1 else ("b-drp", "names-only")
        events = plan.traffic_events if per_site == 1 else plan.traffic_events // 3
        batch = workload.event_batch(events, SEED)
        payloads = [
            b"%08d" % number + msgspec.json.encode(event)
            for number, event in enumerate(workload.events(events, SEED))
        ]
        totals: dict[str, TrafficCount] = {}
        for name in names:
            tell(
                f"{EXPERIMENT}: {name}, {topology.brokers} sites with {per_site} predicates, {events} events"
            )
            totals[name] = count_traffic(ROUTING_POLICIES[name], topology, payloads, batch, predicates)
        for name, count in totals.items():
            result.findings += _findings(name, count, events, topology, per_site)
        ours = totals.pop("b-drp")
        for name, other in totals.items():
            result.findings.append(
                _finding(
                    what=f"bytes of packets, against {name}",
                    unit="times",
                    ours=ours.bytes[PACKETS] / other.bytes[PACKETS],
                    policy="b-drp",
                    sites=topology.brokers,
                    per_site=per_site,
                    target="<= 0.5" if name == "names-only" else None,
                    note=f"with answers {ours.event_bytes / other.event_bytes:.2f} times",
                )
            )
    return result


class TrafficCount(OverlayWatcher):
    """Counts what crosses links, and what sites get."""

    def __init__(self, wanted: Sequence[frozenset[int]], *, floods: bool) -> None:
        self.bytes: Counter[str] = Counter({PACKETS: 0, ANSWERS: 0, TABLES: 0})
        self.crossings = 0
        self.received = 0
        self.unwanted = 0
        self.table_bytes = 0
        self._wanted = wanted
        self._floods = floods

    @property
    def event_bytes(self) -> int:
        """Bytes that there are because of events."""
        return self.bytes[PACKETS] + self.bytes[ANSWERS]

    @property
    def delivered(self) -> int:
        return self.received - self.unwanted

    def sent(self, site: SimulatedSite, peer: str, message: OverlayMessage) -> None:
        kind = kind_of(message)
        if isinstance(message, Packet):
            self.crossings += len(message.offsets)
            if self._floods:
                message = without_destinations(message)
        elif self._floods and kind != TABLES:
            return
        self.bytes[kind] += frame_bytes(message)

    def appended(self, site: SimulatedSite, event: LoggedEvent) -> None:
        self.received += 1
        self.unwanted += not any(event.number in self._wanted[each] for each in site.disk.subscriptions)

    def advertised(self, site: SimulatedSite, predicate: EncodedPredicate) -> None:
        self.table_bytes += len(predicate.text)


def kind_of(message: RoutingFrame) -> str:
    """Why there is a message: for an event, as the answer to another message, or for the tables of sites."""
    match message:
        case Packet() | SiteNumbers():
            return PACKETS
        case LinkState() | Advertisement() | AdvertisementDigest() | AdvertisementRequest():
            return TABLES
        case ClusterNote(body=MemberAdvertisement() | Claim() | CarrierTerms()):
            return TABLES
    return ANSWERS


def frame_bytes(message: RoutingFrame) -> int:
    """The bytes of a message on a link, without the number of a simulated event."""
    own = len(message.offsets) * _NUMBER_BYTES if isinstance(message, Packet) else 0
    return len(encode_frame(message)) + _HEADER_BYTES - own


def count_traffic(
    policy: RoutingPolicy,
    topology: Topology,
    payloads: Sequence[bytes],
    batch: pa.RecordBatch,
    predicates: Sequence[Predicate],
) -> TrafficCount:
    """Spread predicates over sites in turn, and publish every event once, at each site in turn. Raises
    BenchmarkFailed if a site misses one that it wants."""
    wanted = wanted_events(batch, predicates)
    clock, count = VirtualClock(), TrafficCount(wanted, floods=policy.name == "flooding")
    pool = policy.pool(payloads, batch, predicates)
    sites = linked_sites(policy, pool, topology.links, clock, Random(SEED), count)
    for number, site in enumerate(sites):
        site.disk.subscriptions.update(range(number, len(predicates), len(sites)))
        site.start()
    clock.run_for(_SETTLE_SECONDS)
    # From here on, what is counted is due to events.
    tables = count.bytes[TABLES]
    count.bytes.clear()
    count.bytes[TABLES] = tables
    for number in range(len(payloads)):
        sites[number % len(sites)].publish(number)
        clock.run_for(0.01)
    clock.run_for(_DRAIN_SECONDS)
    due = 0
    for place in range(len(sites)):
        own = frozenset[int]().union(*wanted[place :: len(sites)])
        due += sum(number % len(sites) != place for number in own)
    if count.delivered != due:
        raise BenchmarkFailed(f"{policy.name}: sites got {count.delivered} of {due} events that they want")
    return count


def wanted_events(batch: pa.RecordBatch, predicates: Sequence[Predicate]) -> list[frozenset[int]]:
    """The events that each predicate matches."""
    exact = ColumnarFilter()
    exact.add(enumerate(predicates))
    found = exact.match(batch)
    events: list[list[int]] = [[] for _ in predicates]
    for number in range(batch.num_rows):
        for predicate in found.numbers[found.offsets[number] : found.offsets[number + 1]].tolist():
            events[predicate].append(number)
    return [frozenset(each) for each in events]


def _findings(
    name: str, count: TrafficCount, events: int, topology: Topology, per_site: int
) -> list[OverlayFinding]:
    finding = partial(_finding, policy=name, sites=topology.brokers, per_site=per_site)
    return [
        finding(
            what=f"{LINK_BYTES}, packets",
            unit="bytes/event",
            ours=count.bytes[PACKETS] / events,
            note=f"{count.crossings / events:.1f} links an event",
        ),
        finding(what=f"{LINK_BYTES}, answers", unit="bytes/event", ours=count.bytes[ANSWERS] / events),
        finding(what=f"{LINK_BYTES}, tables", unit="bytes", ours=count.bytes[TABLES], note="once"),
        finding(
            what=FALSE_POSITIVES,
            unit="%",
            ours=100 * count.unwanted / max(1, count.received),
            note=f"of {count.received} events at sites of others",
        ),
    ]


def _finding(
    *,
    what: str,
    unit: str,
    ours: float,
    policy: str,
    sites: int,
    per_site: int,
    target: str | None = None,
    note: str = "",
) -> OverlayFinding:
    return OverlayFinding(
        experiment=EXPERIMENT,
        what=what,
        unit=unit,
        ours=ours,
        how=SIMULATED,
        policy=policy,
        brokers=sites,
        setting=f"W3, predicates a site: {per_site}",
        target=target,
        note=note,
    )
