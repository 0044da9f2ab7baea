"""The membership of the overlay at growing numbers of members: how quickly a change spreads, and what it costs.

BlueDove's text has two numbers to compare with: a change needs log(N) rounds of gossip (section III-C), and each
matcher exchanges 2.9 KB a second (section IV).
"""

from collections.abc import Iterator, Sequence
from functools import partial
from math import log2
from statistics import median

from culver.bench.bench_frame import BenchmarkFailed, Tell
from culver.bench.line_plot import LinePlot
from culver.bench.overlay.overlay_findings import SIMULATED, OverlayFinding, OverlayResult
from culver.bench.overlay.overlay_plan import SEED, OverlayPlan
from culver.overlay.gossip.gossip_settings import GossipSettings, quick_gossip
from culver.simulation import SeededRun, SpreadRounds, measure_bytes, measure_spread

BLUEDOVE_BYTES = 2_900.0
SMALL_CLUSTER = 9
_CHANGES = ("join", "facts", "death")
_LOSSES = (0.0, 0.2)


def measure(plan: OverlayPlan, tell: Tell) -> Iterator[OverlayResult]:
    """Raises BenchmarkFailed where a change does not reach all members."""
    yield _rounds(plan, tell)
    yield _bytes(plan, tell)
    yield _small_cluster(plan, tell)


def _rounds(plan: OverlayPlan, tell: Tell) -> OverlayResult:
    result = OverlayResult()
    lines: dict[str, list[tuple[float, float]]] = {"2 log2(n)": []}
    for members in plan.gossip_members:
        lines["2 log2(n)"].append((members, 2 * log2(members)))
        for loss in _LOSSES:
            tell(f"gossip: a change among {members:,} members, {loss:.0%} of messages lost, simulated")
            found = _spreads(members, GossipSettings(), loss, plan.gossip_seeds)
            finding = partial(
                OverlayFinding,
                experiment="rounds",
                unit="rounds",
                brokers=members,
                setting=f"{loss:.0%} loss",
                how=SIMULATED,
                note=f"{plan.gossip_seeds} seeds",
            )
            for change in _CHANGES:
                rounds = [float(getattr(each, change)) for each in found]
                result.findings += [
                    finding(what=f"{change} known by all, median", ours=median(rounds), paper=log2(members)),
                    finding(
                        what=f"{change} known by all, worst",
                        ours=max(rounds),
                        target=f"<= {2 * log2(members):.1f}",
                    ),
                ]
            worst = max(max(each.join, each.facts, each.death) for each in found)
            lines.setdefault(f"worst, {loss:.0%} loss", []).append((members, worst))
    title = "Rounds until all members know of a change, simulated"
    result.plots.append(LinePlot("gossip-rounds", title, "members", "rounds", lines, linear=False))
    return result


def _bytes(plan: OverlayPlan, tell: Tell) -> OverlayResult:
    result = OverlayResult()
    lines: dict[str, list[tuple[float, float]]] = {"BlueDove": []}
    for members in plan.gossip_members:
        lines["BlueDove"].append((members, BLUEDOVE_BYTES))
        for setting, has_new_loads in (("nothing changes", False), ("all publish loads", True)):
            tell(f"gossip: bytes of {members:,} members, {setting}, simulated")
            ours = measure_bytes(
                SeededRun(SEED),
                members,
                GossipSettings(),
                seconds=plan.gossip_seconds,
                has_new_loads=has_new_loads,
            )
            lines.setdefault(setting, []).append((members, ours))
            result.findings.append(
                OverlayFinding(
                    experiment="bytes",
                    what="sent by a member",
                    unit="bytes/s",
                    brokers=members,
                    setting=setting,
                    how=SIMULATED,
                    ours=ours,
                    paper=BLUEDOVE_BYTES,
                    target=f"<= {BLUEDOVE_BYTES:.0f}",
                    note="without the frames of links",
                )
            )
    title = "Bytes that a member sends, simulated"
    result.plots.append(LinePlot("gossip-bytes", title, "members", "bytes/s", lines, linear=False))
    return result


def _small_cluster(plan: OverlayPlan, tell: Tell) -> OverlayResult:
    tell(f"gossip: deaths in a cluster of {SMALL_CLUSTER} members, simulated")
    settings = quick_gossip()
    found = _spreads(SMALL_CLUSTER - 1, settings, 0.0, 20 * plan.gossip_seeds)
    seconds = [each.detection + each.death * settings.period_seconds for each in found]
    finding = partial(
        OverlayFinding,
        experiment="detection",
        unit="s",
        brokers=SMALL_CLUSTER,
        setting="quick",
        how=SIMULATED,
        note=f"{len(found)} seeds",
    )
    return OverlayResult(
        [
            finding(what="crash known by all, median", ours=median(seconds)),
            finding(what="crash known by all, worst", ours=max(seconds), target="<= 3"),
        ]
    )


def _spreads(members: int, settings: GossipSettings, loss: float, seeds: int) -> Sequence[SpreadRounds]:
    found: list[SpreadRounds] = []
    for seed in range(SEED, SEED + seeds):
        run = SeededRun(seed)
        found.append(measure_spread(run, members, settings, loss=loss))
        if run.violations:
            raise BenchmarkFailed(f"gossip among {members} members, seed {seed}: {run.violations[0]}")
    return found
