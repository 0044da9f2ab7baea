"""The two ways to route of production, b-drp and clusters, on the same sites, predicates and events of W3.

The nodes of production run on virtual time, with disks that take 3 ms and links with a delay. A run has four parts:

    start     all sites start, and learn what they must know
    quiet     a minute in which nothing happens: what sites refresh
    events    a minute in which every site publishes
    changes   a minute in which some sites get one more subscription, one after the other

What events and changes cost is the traffic of their minute less that of the quiet one. Every frame is counted as the
bytes that it has on a link. With both strategies, sites must get the same events: each that they want, once, and the
same false positives.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from culver.bench.bench_frame import BenchmarkFailed, Tell
from culver.bench.overlay.broker_topologies import Topology, waxman
from culver.bench.overlay.overlay_findings import SIMULATED, OverlayFinding, OverlayResult
from culver.bench.overlay.overlay_plan import SEED, OverlayPlan, StrategySetting
from culver.bench.overlay.routing_comparison.site_traffic import (
    ANSWERS,
    PACKETS,
    TABLES,
    frame_bytes,
    kind_of,
    wanted_events,
)
from culver.bench.workloads import named
from culver.config import UNLIMITED_FILTERS
from culver.matching import EncodedPredicate
from culver.model.language import Predicate, parse
from culver.overlay.core.overlay_messages import OverlayMessage
from culver.simulation import (
    CLUSTER_POLICY,
    ROUTING_POLICIES,
    LinkQuality,
    LoggedEvent,
    OverlayWatcher,
    RoutingPolicy,
    SimulatedClusterSite,
    SimulatedSite,
    VirtualClock,
    linked_sites,
)

EXPERIMENT = "strategies"
_POLICIES = (ROUTING_POLICIES["b-drp"], CLUSTER_POLICY)
_KINDS = (PACKETS, ANSWERS, TABLES)
_FOR_EVENTS = slice(0, 2)

# Link states are refreshed every 30 s and terms every 20 s, so that a minute has whole numbers of both.
_MINUTE = 60.0
_START_SECONDS = 15.0
_PUBLISHING_SECONDS = 20.0
_CHANGE_SECONDS = 3.0
_CLAUSES_SEPARATOR = " OR "


@dataclass(frozen=True, slots=True)
class StrategyWorkload:
    """Site i has the predicates i, i + n and so on, up to `subscribed`. The others are for changes. The payload of an
    event begins with its number."""

    topology: Topology
    predicates: Sequence[Predicate]
    subscribed: int
    payloads: Sequence[bytes]
    batch: pa.RecordBatch
    wanted: Sequence[frozenset[int]]

    def due(self) -> set[tuple[int, int]]:
        """Each site with each event of another one that it wants."""
        sites = self.topology.brokers
        return {
            (number % sites, event)
            for number in range(self.subscribed)
            for event in self.wanted[number]
            if event % sites != number % sites
        }


@dataclass(slots=True)
class StrategyRun:
    """The measurements of a run. Traffic has a row for each of packets, answers and tables, and a column for each
    site; a frame counts at both of its ends."""

    start_bytes: float = 0.0
    quiet_bytes: float = 0.0
    events: int = 0
    event_bytes: dict[str, float] = field(default_factory=dict)
    load_messages: NDArray[np.float64] = field(default_factory=lambda: np.zeros(1))
    load_bytes: NDArray[np.float64] = field(default_factory=lambda: np.zeros(1))
    known_bytes: NDArray[np.float64] = field(default_factory=lambda: np.zeros(1))
    latencies: NDArray[np.float64] = field(default_factory=lambda: np.zeros(1))
    change_bytes: float = 0.0
    change_seconds: list[float] = field(default_factory=list)
    received: Counter[tuple[int, int]] = field(default_factory=Counter)


class StrategyCount(OverlayWatcher):
    """Counts frames and their bytes by kind and site, and takes the time of every event at every site."""

    def __init__(self, sites: int, clock: VirtualClock) -> None:
        self._clock = clock
        self.messages = np.zeros((len(_KINDS), sites))
        self.bytes = np.zeros((len(_KINDS), sites))
        self.published_at: dict[int, float] = {}
        self.seconds: dict[tuple[int, int], float] = {}
        self.received: Counter[tuple[int, int]] = Counter()
        self.predicate_bytes: dict[str, int] = {}

    def sent(self, site: SimulatedSite, peer: str, message: OverlayMessage) -> None:
        kind, size = _KINDS.index(kind_of(message)), frame_bytes(message)
        for end in (_number(site.name), _number(peer)):
            self.messages[kind, end] += 1
            self.bytes[kind, end] += size

    def appended(self, site: SimulatedSite, event: LoggedEvent) -> None:
        place = _number(site.name), event.number
        self.received[place] += 1
        self.seconds[place] = self._clock.now - self.published_at[event.number]

    def advertised(self, site: SimulatedSite, predicate: EncodedPredicate) -> None:
        self.predicate_bytes[site.key] = len(predicate.text)


def measure(plan: OverlayPlan, tell: Tell) -> OverlayResult:
    result = OverlayResult()
    for setting in plan.strategy_settings:
        for sites in plan.strategy_sites:
            workload = made_workload(setting, sites, plan.strategy_events, plan.strategy_changes)
            runs = {}
            for policy in _POLICIES:
                tell(f"{EXPERIMENT}: {policy.name}, {sites} sites, {setting.name}")
                runs[policy.name] = run_strategy(policy, setting, workload)
            compare_deliveries(runs, workload)
            result.findings += _findings(runs, setting, workload)
    return result


def made_workload(setting: StrategySetting, sites: int, events_each: int, changes: int) -> StrategyWorkload:
    """W3's predicates, cut to the setting's number of conjunctions, and so many events of each site."""
    source, subscribed = named("W3"), sites * setting.predicates
    texts = source.filters(subscribed + changes, SEED)
    cut = (text.split(_CLAUSES_SEPARATOR)[: setting.conjunctions] for text in texts)
    predicates = [parse(_CLAUSES_SEPARATOR.join(clauses), UNLIMITED_FILTERS) for clauses in cut]
    events = sites * events_each
    batch = source.event_batch(events, SEED)
    return StrategyWorkload(
        waxman(sites, min(round(setting.links * sites), sites * (sites - 1) // 2), None, SEED),
        predicates,
        subscribed,
        [
            b"%08d" % number + msgspec.json.encode(each)
            for number, each in enumerate(source.events(events, SEED))
        ],
        batch,
        wanted_events(batch, predicates),
    )


def run_strategy(policy: RoutingPolicy, setting: StrategySetting, workload: StrategyWorkload) -> StrategyRun:
    """Raises BenchmarkFailed if a change is not in effect everywhere in time."""
    clock, made = VirtualClock(), StrategyRun(events=len(workload.payloads))
    count = StrategyCount(workload.topology.brokers, clock)
    pool = policy.pool(workload.payloads, workload.batch, workload.predicates)
    quality = LinkQuality(setting.delay_seconds, setting.delay_seconds / 10)
    sites = linked_sites(policy, pool, workload.topology.links, clock, Random(SEED), count, quality)
    for number, site in enumerate(sites):
        site.disk.subscriptions.update(range(number, workload.subscribed, len(sites)))
        site.start()
    clock.run_for(_START_SECONDS)
    made.start_bytes = count.bytes.sum() / 2
    made.known_bytes = np.array(
        [sum(count.predicate_bytes[key] for key in _known_sites(site)) for site in sites], float
    )

    def minute(actions: Iterator[float]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Let a minute pass, with actions that each take some seconds. Returns its messages and bytes."""
        messages, size, end = count.messages.copy(), count.bytes.copy(), clock.now + _MINUTE
        for seconds in actions:
            clock.run_for(seconds)
        clock.run_until(end)
        return count.messages - messages, count.bytes - size

    quiet_messages, quiet = minute(iter(()))
    made.quiet_bytes = quiet.sum() / 2
    messages, size = minute(_publish(sites, count, clock, made.events, setting.burst))
    size -= quiet
    made.event_bytes = dict(zip(_KINDS, size.sum(axis=1) / 2, strict=True))
    made.load_messages = (messages - quiet_messages)[_FOR_EVENTS].sum(axis=0)
    made.load_bytes = size[_FOR_EVENTS].sum(axis=0)
    made.received = count.received
    made.latencies = np.array(
        [count.seconds[each] for each in sorted(workload.due()) if each in count.seconds]
    )
    changes = range(workload.subscribed, len(workload.predicates))
    _, size = minute(_change(sites, clock, changes, made.change_seconds))
    made.change_bytes = (size - quiet).sum() / 2 / max(1, len(changes))
    return made


def compare_deliveries(runs: dict[str, StrategyRun], workload: StrategyWorkload) -> None:
    """Raises BenchmarkFailed unless all runs have what is due, once, and the same false positives."""
    due = workload.due()
    first = next(iter(runs.values())).received
    for name, run in runs.items():
        missing = len(due - run.received.keys())
        twice = sum(times - 1 for times in run.received.values())
        if missing or twice:
            raise BenchmarkFailed(
                f"{name}: sites miss {missing} of {len(due)} events, and have {twice} twice"
            )
        if run.received != first:
            raise BenchmarkFailed(f"{name}: sites get other events than with {next(iter(runs))}")


def _publish(
    sites: Sequence[SimulatedSite], count: StrategyCount, clock: VirtualClock, events: int, burst: int
) -> Iterator[float]:
    """Sites publish in turn, `burst` events at a time."""
    pause = _PUBLISHING_SECONDS / events * burst
    for turn in range(0, events, len(sites) * burst):
        for place, site in enumerate(sites):
            for number in range(turn + place, min(events, turn + len(sites) * burst), len(sites)):
                count.published_at[number] = clock.now
                site.publish(number)
            yield pause


def _change(
    sites: Sequence[SimulatedSite], clock: VirtualClock, changes: Sequence[int], seconds: list[float]
) -> Iterator[float]:
    """Sites spread over the whole overlay get one more subscription each; each takes effect before the next."""
    for turn, number in enumerate(changes):
        changed = sites[turn * len(sites) // len(changes)]
        begun = clock.now
        changed.subscribe(number)
        if not clock.run_while(partial(_is_pending, changed, sites), _CHANGE_SECONDS):
            raise BenchmarkFailed(f"a change at {changed.name} is not in effect after {_CHANGE_SECONDS} s")
        seconds.append(clock.now - begun)
        yield begun + _CHANGE_SECONDS - clock.now


def _is_pending(changed: SimulatedSite, sites: Sequence[SimulatedSite]) -> bool:
    """Whether another site does not have the last change of a site in effect."""
    node = changed.node
    assert node is not None
    return any(
        node.book.in_effect_from(site.key, node.book.version) is None for site in sites if site is not changed
    )


def _known_sites(site: SimulatedSite) -> list[str]:
    """The other sites whose predicates a site has."""
    if isinstance(site, SimulatedClusterSite):
        return site.cluster_node.shelf.sites()
    assert site.node is not None
    return list(site.node.book.sites)


def _number(name: str) -> int:
    return int(name.rpartition("-")[2])


def _findings(
    runs: dict[str, StrategyRun], setting: StrategySetting, workload: StrategyWorkload
) -> Iterator[OverlayFinding]:
    """A figure of clusters has its ratio to b-drp's in the note."""
    first = _figures(next(iter(runs.values())))
    sites, due, received = workload.topology.brokers, workload.due(), len(next(iter(runs.values())).received)
    about = partial(OverlayFinding, experiment=EXPERIMENT, how=SIMULATED, brokers=sites, setting=setting.name)
    pairs = len(workload.payloads) * (sites - 1)
    yield about(
        what="sites that want an event",
        unit="% of the others",
        ours=100 * len(due) / pairs,
        note=f"{100 * received / pairs:.1f} % get it; {len(workload.topology.links)} links, "
        f"diameter {workload.topology.diameter}",
    )
    for policy, run in runs.items():
        for (what, unit), value in _figures(run).items():
            base = first.get((what, unit))
            ratio = f"{value / base:.2f} times b-drp" if policy != "b-drp" and base else ""
            yield about(what=what, unit=unit, ours=value, policy=policy, note=ratio)


def _figures(run: StrategyRun) -> dict[tuple[str, str], float]:
    """Every figure of a run, by what it is and its unit."""
    events, milliseconds = run.events, 1e3 * run.latencies
    packets, answers = run.event_bytes[PACKETS] / events, run.event_bytes[ANSWERS] / events
    return {
        ("bytes on links, packets", "bytes/event"): packets,
        ("bytes on links, answers", "bytes/event"): answers,
        ("bytes on links, packets and answers", "bytes/event"): packets + answers,
        ("bytes on links, all sites start", "bytes"): run.start_bytes,
        ("bytes on links, quiet", "bytes/minute"): run.quiet_bytes,
        ("predicates that a site holds, mean", "bytes"): float(run.known_bytes.mean()),
        ("predicates that a site holds, most", "bytes"): float(run.known_bytes.max()),
        **{
            (f"latency to a log that wants it, p{share}", "ms"): float(np.percentile(milliseconds, share))
            for share in (50, 99)
            if len(milliseconds)
        },
        **_spread("messages", run.load_messages / events),
        **_spread("bytes", run.load_bytes / events),
        ("change of a subscription", "bytes"): run.change_bytes,
        ("change of a subscription, until in effect everywhere", "ms"): 1e3
        * float(np.mean(run.change_seconds or [0.0])),
    }


def _spread(what: str, loads: NDArray[np.float64]) -> dict[tuple[str, str], float]:
    """Nothing is said of a spread where no message is sent, because nobody wants an event."""
    mean = float(loads.mean())
    if not mean:
        return {}
    return {
        (f"load of a site, mean {what}", f"{what}/event"): mean,
        (f"load of the busiest site, {what}", "times the mean"): float(loads.max()) / mean,
        (f"variation of the load, {what}", "of the mean"): float(loads.std()) / mean,
    }
