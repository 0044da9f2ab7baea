"""Figures 2 and 3 of the paper about clusters, its rule for their number, and what balancing costs.

All of it is simulated message by message, with the layout and the load balancing of production.

The paper says neither what counts as load in figure 3, nor where its busiest publishers are, nor how steep their
Zipf law is. `readings` tries these. Loads come near the paper's where messages of clients count too and the busiest
publishers share a ring. The figure is then drawn for that reading and the plain law, exponent 1. An exponent of 1.1
fits better still, but would be fitted to the result. `variations` shows how much balanced loads depend on all that,
and on our own setting of when a broker takes its load back.
"""

import random as chance
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from culver.bench.bench_frame import Tell
from culver.bench.line_plot import LinePlot
from culver.bench.overlay import cluster_paper as paper
from culver.bench.overlay.overlay_findings import SIMULATED, OverlayFinding, OverlayResult
from culver.bench.overlay.overlay_plan import SEED, OverlayPlan
from culver.overlay.clusters.layout.cluster_count import (
    MeasuredTraffic,
    best_count,
    expected_traffic,
    revise,
    usual_count,
)
from culver.overlay.clusters.load.broker_load import LoadSettings
from culver.simulation import BrokerLoads, BrokerTree, ClusterWorld, RendezvousRing, zipf_weights

BALANCED, UNBALANCED = "balanced", "not balanced"
ONE_BAND = "brokers in one band of 50 messages, none above it"

# Of the broker's mean load, to either side.
_NEAR = 0.25
_ZIPF_EXPONENT = 1.0
_BALANCED_TREE_FAN_OUT = 3

Loads = NDArray[np.float64]


class _Rival(Protocol):
    def publish(self, publisher: int, wanted: frozenset[int], loads: BrokerLoads) -> None: ...


class _Reading(NamedTuple):
    """What counts as load."""

    name: str
    loads: str


_READINGS = (
    _Reading("between brokers", "forwarding"),
    _Reading("and to clients", "with_deliveries"),
    _Reading("and from clients", "with_clients"),
)


def measure(plan: OverlayPlan, tell: Tell) -> Iterator[OverlayResult]:
    """The figures that the plan names. With all of them, also the number of clusters."""
    if "2" in plan.figures:
        yield load_spread(plan, tell)
    if "3" in plan.figures:
        yield readings(plan, tell)
        yield dynamic_balance(plan, tell)
        yield variations(plan, tell)
    if set(plan.figures) >= {"2", "3"}:
        yield cluster_counts(plan, tell)
        yield origin_clusterings(plan, tell)


# --- figure 2 -------------------------------------------------------------------------------------------


def load_spread(plan: OverlayPlan, tell: Tell) -> OverlayResult:
    """Figure 2: publishers are drawn evenly, and loads are of messages between brokers."""
    result = OverlayResult()
    for ratio in paper.SPREAD_RATIOS:
        tell(f"figure 2: clusters, trees and a hash table, matching ratio {ratio:.0%}, simulated")
        rivals = {name: _rival_loads(made, ratio, plan) for name, made in _rivals().items()}
        clusters = {
            f"{count} clusters": ClusterWorld(paper.BROKERS, count, SEED)
            .run(plan.cluster_seconds, paper.PUBLICATIONS, ratio)
            .forwarding
            for count in paper.CLUSTER_COUNTS
        }
        least = {
            name: min(measured(loads) for loads in rivals.values())
            for name, (_, measured) in _SPREADS.items()
        }
        for policy, loads in (clusters | rivals).items():
            finding = partial(
                OverlayFinding,
                experiment="2",
                policy=policy,
                brokers=paper.BROKERS,
                setting=f"{ratio:.0%} match",
                how=SIMULATED,
            )
            for what, (unit, measured) in _SPREADS.items():
                target = f"<= {least[what]:.3g}" if policy in clusters else None
                result.findings.append(finding(what=what, unit=unit, ours=measured(loads), target=target))
            near = 100 * float(np.mean(np.abs(loads / loads.mean() - 1) < _NEAR))
            result.findings.append(finding(what="brokers within 25 % of the mean", unit="%", ours=near))
            result.findings.append(finding(what="mean load", unit="messages/s", ours=float(loads.mean())))
        lines = {
            policy: [(place + 1.0, load) for place, load in enumerate(sorted(loads.tolist()))]
            for policy, loads in (clusters | rivals).items()
        }
        name = f"clusters-figure-2-{ratio:.0%}".rstrip("%")
        title = f"Figure 2: loads of brokers, matching ratio {ratio:.0%}, simulated"
        result.plots.append(LinePlot(name, title, "brokers, by load", "messages/s", lines))
    return result


def _deviation(loads: Loads) -> float:
    return float(loads.std())


def _busiest(loads: Loads) -> float:
    return float(loads.max() / loads.mean())


_SPREADS = {
    "standard deviation of loads": ("messages/s", _deviation),
    "busiest broker": ("times the mean", _busiest),
}


def _rivals() -> dict[str, _Rival]:
    return {
        "random tree": BrokerTree(paper.BROKERS, SEED),
        "balanced tree": BrokerTree(paper.BROKERS, SEED, _BALANCED_TREE_FAN_OUT),
        "hash table": RendezvousRing(paper.BROKERS, SEED),
    }


def _rival_loads(rival: _Rival, ratio: float, plan: OverlayPlan) -> Loads:
    random = chance.Random(SEED)
    loads = BrokerLoads(paper.BROKERS)
    everybody = range(paper.BROKERS)
    for _ in range(plan.cluster_seconds * paper.PUBLICATIONS):
        publisher = random.randrange(paper.BROKERS)
        rival.publish(publisher, frozenset(random.sample(everybody, round(ratio * paper.BROKERS))), loads)
    loads.seconds = float(plan.cluster_seconds)
    return loads.forwarding


# --- figure 3 -------------------------------------------------------------------------------------------


def readings(plan: OverlayPlan, tell: Tell) -> OverlayResult:
    """What the paper may mean by load, and where its busiest publishers are: loads without balancing, at 25 %."""
    tell("figure 3: readings of the paper's loads, simulated")
    result = OverlayResult()
    tried: list[tuple[str, bool, float]] = [
        ("ranked ring by ring", True, _ZIPF_EXPONENT),
        ("ranked at random", False, _ZIPF_EXPONENT),
        *(
            (f"ranked ring by ring, exponent {exponent}", True, exponent)
            for exponent in plan.cluster_exponents
        ),
    ]
    for placement, by_ring, exponent in tried:
        run = _skewed_run(plan, paper.BALANCED_RATIOS[0], None, by_ring=by_ring, exponent=exponent)
        for reading in _READINGS:
            loads: Loads = getattr(run, reading.loads)
            finding = partial(
                OverlayFinding,
                experiment="3, readings",
                policy=UNBALANCED,
                brokers=paper.BROKERS,
                setting=f"messages {reading.name}, publishers {placement}",
                how=SIMULATED,
            )
            result.findings += _skew_findings(finding, loads)
    return result


def dynamic_balance(plan: OverlayPlan, tell: Tell) -> OverlayResult:
    """Figure 3. The threshold of 150 messages is below the mean load at 50 % and 75 %, where nobody has room for
    more. So these ratios also run with a threshold that is as far above their means as 150 is at 25 %."""
    result = OverlayResult()
    first_mean = 0.0
    for ratio in paper.BALANCED_RATIOS:
        tell(f"figure 3: matching ratio {ratio:.0%}, simulated")
        plain = _skewed_run(plan, ratio, None)
        runs = {UNBALANCED: plain}
        first_mean = first_mean or float(plain.with_clients.mean())
        scaled = paper.THRESHOLD * float(plain.with_clients.mean()) / first_mean
        for threshold in dict.fromkeys((paper.THRESHOLD, round(scaled, 0))):
            runs[f"{BALANCED} at {threshold:.0f}"] = _skewed_run(plan, ratio, threshold)
        lines = {}
        for policy, run in runs.items():
            finding = partial(
                OverlayFinding,
                experiment="3",
                policy=policy,
                brokers=paper.BROKERS,
                setting=f"{ratio:.0%} match",
                how=SIMULATED,
                rate=paper.PUBLICATIONS,
            )
            loads = run.with_clients
            lines[policy] = _bands(loads)
            if policy == UNBALANCED:
                result.findings += _skew_findings(finding, loads, quoted=ratio == paper.BALANCED_RATIOS[0])
            else:
                result.findings += _balance_findings(finding, loads, ratio)
                result.findings += _cost_findings(finding, run, plain)
        name = f"clusters-figure-3-{ratio:.0%}".rstrip("%")
        title = f"Figure 3: loads of brokers, matching ratio {ratio:.0%}, simulated"
        result.plots.append(LinePlot(name, title, "messages/s, bands of 50", "brokers", lines))
    return result


def variations(plan: OverlayPlan, tell: Tell) -> OverlayResult:
    """The balanced loads of 25 % under other seeds, publishers and settings."""
    varied: dict[str, dict[str, Any]] = {f"seed {seed}": {"seed": seed} for seed in plan.cluster_seeds}
    varied["publishers ranked at random"] = {"by_ring": False}
    varied |= {f"exponent {exponent}": {"exponent": exponent} for exponent in plan.cluster_exponents}
    varied |= {f"load taken back below {share} R": {"relieved": share} for share in plan.cluster_reliefs}
    result = OverlayResult()
    for name, changed in varied.items():
        tell(f"figure 3: {name}, simulated")
        loads = _skewed_run(plan, paper.BALANCED_RATIOS[0], paper.THRESHOLD, **changed).with_clients
        result.findings.append(
            OverlayFinding(
                experiment="3, variations",
                what=ONE_BAND,
                unit="%",
                ours=_percent_in_top_band(loads),
                policy=f"{BALANCED} at {paper.THRESHOLD:.0f}",
                brokers=paper.BROKERS,
                setting=name,
                how=SIMULATED,
                rate=paper.PUBLICATIONS,
                paper=paper.ONE_BAND_PERCENT,
                target=f">= {paper.ONE_BAND_PERCENT:g}",
                note=f"the busiest has {loads.max():.0f}, the standard deviation is {loads.std():.1f}",
            )
        )
    return result


def _skew_findings(
    finding: "partial[OverlayFinding]", loads: Loads, quoted: bool = True
) -> Iterator[OverlayFinding]:
    """The paper's three statements about loads without balancing."""
    low = 100 * float(np.mean((loads >= paper.BAND) & (loads < 2 * paper.BAND)))
    yield finding(
        what="brokers in [50, 100)", unit="%", ours=low, paper=paper.LOW_BAND_PERCENT if quoted else None
    )
    yield finding(
        what="brokers above 250",
        unit="%",
        ours=100 * float(np.mean(loads > 250)),
        paper=paper.ABOVE_250_PERCENT if quoted else None,
        note=f"above 200: {100 * float(np.mean(loads > 200)):.0f} %",
    )
    yield finding(
        what="brokers above 350",
        unit="brokers",
        ours=float(np.sum(loads > 350)),
        paper=paper.ABOVE_350_BROKERS if quoted else None,
        note=f"the busiest has {loads.max():.0f}, the mean is {loads.mean():.0f}",
    )


def _balance_findings(
    finding: "partial[OverlayFinding]", loads: Loads, ratio: float
) -> Iterator[OverlayFinding]:
    """The paper's statement about balanced loads, for a band that begins anywhere and for bands of multiples of
    50."""
    is_quoted = ratio == paper.BALANCED_RATIOS[0]
    said = partial(
        finding,
        unit="%",
        paper=paper.ONE_BAND_PERCENT if is_quoted else None,
        target=f">= {paper.ONE_BAND_PERCENT:g}" if is_quoted else None,
    )
    yield said(
        what=ONE_BAND,
        ours=_percent_in_top_band(loads),
        note="the band begins anywhere, and ends with the busiest broker",
    )
    bands = _bands(loads)
    yield said(
        what="brokers in the highest band of multiples of 50",
        ours=100 * bands[-1][1] / len(loads),
        note=", ".join(
            f"{count:.0f} in [{low:.0f}, {low + paper.BAND:.0f})" for low, count in bands if count
        ),
    )
    yield finding(
        what="busiest broker",
        unit="messages/s",
        ours=float(loads.max()),
        note=f"the mean is {loads.mean():.0f}, the standard deviation {loads.std():.1f}",
    )


def _percent_in_top_band(loads: Loads) -> float:
    return 100 * float(np.mean(loads > loads.max() - paper.BAND))


def _cost_findings(
    finding: "partial[OverlayFinding]", run: BrokerLoads, plain: BrokerLoads
) -> Iterator[OverlayFinding]:
    more = 100 * (_messages_a_publication(run) / _messages_a_publication(plain) - 1)
    yield finding(
        what="more messages than without balancing",
        unit="%",
        ours=more,
        note=f"{100 * run.handed_over / run.publications:.0f} % of publications handed over, "
        f"{run.control_messages / run.seconds:.1f} requests and answers a second of all brokers",
    )


def _messages_a_publication(run: BrokerLoads) -> float:
    return float(run.sent.sum()) / run.publications


def _skewed_run(
    plan: OverlayPlan,
    ratio: float,
    threshold: float | None,
    *,
    by_ring: bool = True,
    seed: int = SEED,
    exponent: float = _ZIPF_EXPONENT,
    relieved: float = LoadSettings().relieved,
) -> BrokerLoads:
    """Zipf publishers; with a threshold, brokers balance and are overloaded from there on."""
    capacity = None if threshold is None else threshold / paper.OVERLOADED
    settings = LoadSettings(overloaded=paper.OVERLOADED, relieved=relieved, first_capacity=capacity or 1.0)
    world = ClusterWorld(paper.BROKERS, paper.CLUSTERS, seed, capacity, settings)
    ranked = world.by_ring()
    if not by_ring:
        chance.Random(seed).shuffle(ranked)
    weights = [0.0] * paper.BROKERS
    for broker, weight in zip(ranked, zipf_weights(paper.BROKERS, exponent), strict=True):
        weights[broker] = weight
    settling = plan.cluster_settling_seconds
    return world.run(settling + plan.cluster_seconds, paper.PUBLICATIONS, ratio, weights, settling)


def _bands(loads: Loads) -> list[tuple[float, float]]:
    counts = np.bincount((loads // paper.BAND).astype(np.int64))
    return [(paper.BAND * number, float(count)) for number, count in enumerate(counts)]


# --- the number of clusters -----------------------------------------------------------------------------


def cluster_counts(plan: OverlayPlan, tell: Tell) -> OverlayResult:
    """Section 3.2: the traffic of all numbers of clusters, against the number that the rule chooses."""
    result = OverlayResult()
    lines: dict[str, list[tuple[float, float]]] = {}
    for publications, subscriptions, ratio in plan.cluster_traffics:
        setting = f"{publications} publications, {subscriptions} subscriptions, {ratio:.0%} match"
        tell(f"number of clusters: {setting}, simulated")
        measured = MeasuredTraffic(publications, subscriptions, ratio, paper.BROKERS)
        chosen = best_count(measured)
        traffic = {
            count: _traffic(count, publications, subscriptions, ratio)
            for count in sorted({*plan.cluster_counts, chosen})
        }
        best = min(traffic, key=traffic.__getitem__)
        finding = partial(
            OverlayFinding, experiment="clusters", brokers=paper.BROKERS, setting=setting, how=SIMULATED
        )
        result.findings += [
            finding(what="number of clusters by the rule", unit="clusters", ours=chosen),
            finding(what="number of clusters with the least traffic", unit="clusters", ours=best),
            finding(
                what="traffic of the rule's number",
                unit="times the least",
                ours=traffic[chosen] / traffic[best],
                target="<= 1.02",
                note=f"{traffic[chosen]:,} messages; equation 1 expects {expected_traffic(chosen, measured):,.0f}",
            ),
        ]
        lines[setting] = [(float(count), float(messages)) for count, messages in traffic.items()]
    title = "Messages by the number of clusters, simulated"
    result.plots.append(LinePlot("clusters-counts", title, "clusters", "messages", lines))
    return result


def _traffic(clusters: int, publications: int, subscriptions: int, ratio: float) -> int:
    world = ClusterWorld(paper.BROKERS, clusters, SEED)
    world.run(1, publications, ratio)
    for _ in range(subscriptions):
        world.subscribe(world.random.randrange(paper.BROKERS))
    return int(world.loads.sent.sum())


# --- a clustering for each origin -----------------------------------------------------------------------

_BUSY, _BUSY_PUBLICATIONS = 10, 91


def origin_clusterings(plan: OverlayPlan, tell: Tell) -> OverlayResult:
    """Section 3.2 as sites have it: each broker has a number of clusters for its own publications. Ten brokers
    publish nine tenths of all."""
    result = OverlayResult()
    for busy, other, subscriptions in plan.origin_traffics:
        setting = (
            f"{busy:.0%} match of ten busy brokers, {other:.0%} of the others, {subscriptions} subscriptions"
        )
        tell(f"a clustering for each origin: {setting}, simulated")
        origins = [(_BUSY_PUBLICATIONS, busy)] * _BUSY + [(1, other)] * (paper.BROKERS - _BUSY)
        everything = sum(publications for publications, _ in origins)
        usual = usual_count(paper.BROKERS)
        measured = [
            revise(usual, MeasuredTraffic(each, subscriptions * each / everything, ratio, paper.BROKERS))
            for each, ratio in origins
        ]
        before = _traffic_of_origins(origins, [usual] * paper.BROKERS, subscriptions)
        after = _traffic_of_origins(origins, measured, subscriptions)
        result.findings.append(
            OverlayFinding(
                experiment="clusters",
                brokers=paper.BROKERS,
                setting=setting,
                how=SIMULATED,
                what="messages with a measured number for each origin",
                unit="times those of the square root for all",
                ours=after / before,
                note=f"{measured[0]} clusters for the busy ones and {measured[-1]} for the others: "
                f"{after:,} messages; with {usual} for all, {before:,}",
            )
        )
    return result


def _traffic_of_origins(
    origins: Sequence[tuple[int, float]], counts: Sequence[int], subscriptions: int
) -> int:
    """The messages of brokers with so many publications, which match so many brokers, in so many clusters each. A
    subscription goes to all that share a cluster with its broker."""
    worlds = {count: ClusterWorld(paper.BROKERS, count, SEED) for count in sorted({*counts})}
    random, everybody = chance.Random(SEED), range(paper.BROKERS)
    for origin, ((publications, ratio), count) in enumerate(zip(origins, counts, strict=True)):
        for _ in range(publications):
            wanted = frozenset(random.sample(everybody, round(ratio * paper.BROKERS)))
            worlds[count].publish(origin, wanted)
    told = 0
    for _ in range(subscriptions):
        key = worlds[counts[0]].keys[random.randrange(paper.BROKERS)]
        told += len({mate for world in worlds.values() for mate in world.layout.mates(key)})
    return told + sum(int(world.loads.sent.sum()) for world in worlds.values())
