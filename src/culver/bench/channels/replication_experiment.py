"""Experiment 1 (section V-C): one channel on one server and on three, and how its throughput grows with servers."""

import asyncio
from dataclasses import dataclass

from culver.bench.bench_frame import Tell
from culver.bench.channels import dynamoth_paper as paper
from culver.bench.channels.bench_service import BenchService, bench_service
from culver.bench.channels.channels_findings import ChannelFinding, ExperimentResult
from culver.bench.channels.channels_plan import ChannelsPlan
from culver.bench.channels.clients.client_crowd import ClientCrowd, CrowdFigures
from culver.bench.channels.clients.client_process import CrowdTask
from culver.bench.line_plot import LinePlot
from culver.channels.channel_service import ServiceSettings
from culver.channels.core.balance.server_groups import Groups

CHANNEL = "hot"

#: How much more is offered than servers can deliver when their throughput is measured.
_OVERLOAD = 1.25


@dataclass(frozen=True, slots=True)
class _Figure:
    """A figure of the paper: who is many, and what one server and three bear there."""

    name: str
    kind: str
    crowd: str
    borne: tuple[int, int]


_ALL_PUBLISHERS = _Figure(
    "4a",
    "all-publishers",
    "subscribers",
    (paper.SUBSCRIBERS_OF_ONE_SERVER, paper.SUBSCRIBERS_OF_THREE),
)
_ALL_SUBSCRIBERS = _Figure(
    "4b",
    "all-subscribers",
    "publishers",
    (paper.PUBLISHERS_OF_ONE_SERVER, paper.PUBLISHERS_OF_THREE),
)


async def measure_replication(plan: ChannelsPlan, tell: Tell) -> ExperimentResult:
    result = ExperimentResult()
    for figure in (_ALL_PUBLISHERS, _ALL_SUBSCRIBERS):
        lines: dict[str, list[tuple[float, float]]] = {}
        for servers in plan.figure_servers:
            points = await _response_times(plan, figure, servers, tell, result)
            lines[f"{servers} server{'' if servers == 1 else 's'}"] = points
        title = f"Figure {figure.name}: {figure.kind} replication"
        result.plots.append(
            LinePlot(f"figure-{figure.name}", title, figure.crowd, "response time (ms)", lines)
        )
    await _measure_hot_channel(plan, tell, result)
    return result


def groups_for(kind: str, servers: list[int]) -> Groups:
    return (tuple(servers),) if kind == "all-publishers" else tuple((server,) for server in servers)


async def _response_times(
    plan: ChannelsPlan, figure: _Figure, servers: int, tell: Tell, result: ExperimentResult
) -> list[tuple[float, float]]:
    """Adds clients step by step until the servers fall behind for good."""
    many_subscribers = figure is _ALL_PUBLISHERS
    counts = plan.subscriber_counts if many_subscribers else plan.publisher_counts
    megabits = plan.subscriber_megabits if many_subscribers else plan.publisher_megabits
    points: list[tuple[float, float]] = []
    borne, busiest, lag = 0, 0.0, 0.0
    settings = ServiceSettings(first_servers=servers, balance=False)
    async with bench_service(megabits, servers, settings, proxies=plan.proxies) as bench:
        kind = bench.network.kind
        split = plan.client_processes
        async with (
            _crowd(plan, bench, "subscribers", split if many_subscribers else 1) as subscribers,
            _crowd(plan, bench, "publishers", 1 if many_subscribers else split) as publishers,
        ):
            few = publishers if many_subscribers else subscribers
            many = subscribers if many_subscribers else publishers
            groups = groups_for(figure.kind, bench.numbers)
            await asyncio.gather(bench.move(CHANNEL.encode(), groups), few.reached(1))
            for count in counts:
                await many.reached(count)
                await subscribers.measure(plan.settle_seconds)
                publishers.figures()
                seen = await subscribers.measure(plan.step_seconds)
                sent = publishers.figures()
                busiest = max(busiest, seen.cpu, sent.cpu)
                due = sent.sent * (count if many_subscribers else 1)
                response = seen.response_ms if seen.response_ms is not None else float("inf")
                tell(
                    f"figure {figure.name}, {servers} server(s), {count} {figure.crowd}: {response:,.1f} ms, "
                    f"{seen.received:,.0f} of {due:,.0f} messages/s, busiest client process {busiest:.0%} of a core"
                )
                if response == float("inf"):
                    break
                points.append((count, response))
                lag = max(lag, seen.lag_ms)
                result.findings.append(
                    ChannelFinding(
                        experiment="1",
                        figure=figure.name,
                        what="response time",
                        unit="ms",
                        ours=response,
                        policy=figure.kind if servers > 1 else "one server",
                        servers=servers,
                        clients=count,
                    )
                )
                if response > paper.BEARABLE_MS or seen.received < 0.9 * due:
                    break
                borne = count
    result.findings.append(
        ChannelFinding(
            experiment="1",
            figure=figure.name,
            what=f"{figure.crowd} below {paper.BEARABLE_MS:g} ms",
            unit=figure.crowd,
            ours=borne,
            paper=figure.borne[servers > 1],
            policy=figure.kind if servers > 1 else "one server",
            servers=servers,
            note=f"{megabits:g} Mbit/s per server by {kind}; busiest client process {busiest:.0%} of a core",
        )
    )
    return points


async def _measure_hot_channel(plan: ChannelsPlan, tell: Tell, result: ExperimentResult) -> None:
    """Offers more than N servers can deliver, and compares what arrives with that of one server."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for kind in ("all-publishers", "all-subscribers"):
        first = 0.0
        for servers in plan.hot_servers:
            rate, figures = await _delivered(plan, kind, servers, first, tell)
            first = first or rate
            tell(f"hot channel, {kind}, {servers} server(s): {rate:,.0f} messages/s, {rate / first:.2f} x")
            lines.setdefault(kind, []).append((servers, rate / first))
            note = f"{rate:,.0f} messages/s; busiest client process {figures.cpu:.0%} of a core"
            result.findings.append(
                ChannelFinding(
                    experiment="1",
                    what="delivered by a hot channel",
                    unit="times one server",
                    ours=rate / first,
                    policy=kind,
                    servers=servers,
                    clients=plan.hot_clients,
                    note=f"target {0.8 * servers:.1f}; {note}",
                )
            )
    lines["target (0.8 N)"] = [(servers, 0.8 * servers) for servers in plan.hot_servers]
    result.plots.append(
        LinePlot("hot-channel", "One hot channel", "servers", "delivered, times one server", lines)
    )


async def _delivered(
    plan: ChannelsPlan, kind: str, servers: int, one_server: float, tell: Tell
) -> tuple[float, CrowdFigures]:
    """Messages per second that all subscribers get. What one server delivers decides how much is offered to more."""
    many_subscribers = kind == "all-publishers"
    subscribers = plan.hot_clients if many_subscribers else 1
    publishers = servers if many_subscribers else plan.hot_clients
    # The first guess counts 300 bytes for a message of 200.
    of_one = one_server or plan.hot_megabits * 1e6 / 8 / (plan.payload_bytes + 100)
    rate = _OVERLOAD * servers * of_one / subscribers / publishers
    settings = ServiceSettings(first_servers=servers, balance=False)
    processes = plan.client_processes if many_subscribers else 1
    async with (
        bench_service(plan.hot_megabits, servers, settings, proxies=plan.proxies) as bench,
        _crowd(plan, bench, "subscribers", processes) as listeners,
        _crowd(plan, bench, "publishers", 1, rate) as speakers,
    ):
        groups = groups_for(kind, bench.numbers)
        await asyncio.gather(bench.move(CHANNEL.encode(), groups), listeners.reached(subscribers))
        await speakers.reached(publishers)
        await listeners.measure(plan.settle_seconds)
        figures = await listeners.measure(plan.hot_seconds)
    return figures.received, figures


def _crowd(
    plan: ChannelsPlan, bench: BenchService, role: str, processes: int, rate: float | None = None
) -> ClientCrowd:
    task = CrowdTask(
        role,
        [bench.url],
        channel=CHANNEL,
        rate=rate or paper.PUBLICATIONS_PER_SECOND,
        payload_bytes=plan.payload_bytes,
        wide_area=plan.wide_area,
    )
    return ClientCrowd(bench.network, task, processes)
