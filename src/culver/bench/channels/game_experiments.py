"""Experiments 2 and 3 (sections V-D and V-E): how many players each policy bears, and elasticity up and down."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from culver.bench.bench_frame import Tell
from culver.bench.channels import dynamoth_paper as paper
from culver.bench.channels.channels_findings import ChannelFinding, ExperimentResult
from culver.bench.channels.channels_plan import ChannelsPlan
from culver.bench.channels.clients.game_world import hash_imbalance, typical_world
from culver.bench.channels.game_run import (
    ConsistentHashingPolicy,
    DynamothPolicy,
    GameHistory,
    GameRun,
    GameSecond,
    PlacementPolicy,
    game_settings,
)
from culver.bench.line_plot import LinePlot

Points = list[tuple[float, float]]


async def measure_scalability(plan: ChannelsPlan, tell: Tell) -> ExperimentResult:
    """Figures 5 and 6: players join until the average response time passes the bearable for good."""
    world = typical_world(plan.tiles_across, plan.game_servers)
    policies: list[PlacementPolicy] = [
        DynamothPolicy(),
        ConsistentHashingPolicy(world, game_settings(plan, balance=False).balancer),
    ]
    histories = []
    for policy in policies:
        run = GameRun(plan, world, policy, tell)
        histories.append(await run.run([(plan.most_players, 0.0)], until_overload=True))
    result = ExperimentResult(plots=_scalability_plots(histories))
    imbalance = hash_imbalance(world, plan.game_servers)
    for history in histories:
        note = (
            f"{plan.game_megabits:g} Mbit/s per server by {history.network}, {world.across**2} tiles; busiest client "
            f"process {history.client_cpu:.0%} of a core"
        )
        if history.overloaded_since() is None:
            note += "; not overloaded at the end"
        if history.policy == "consistent-hashing":
            note += (
                f"; the busiest of {plan.game_servers} servers has {imbalance:.2f} times the mean load, so a perfect "
                f"balance bears about {100 * (imbalance**0.5 - 1):.0f} % more players"
            )
        result.findings += [
            _finding("2", "5", "players", "players", history.borne(), history, paper.PLAYERS, note),
            _finding("2", "5", "servers at the end", "servers", history.seconds[-1].servers, history),
            _finding("2", "5", "most messages", "messages/s", _most(history, "messages"), history),
            _finding("2", "5", "usual response time", "ms", _usual_response(history), history),
            _finding("2", "5", "rebalancings", "rebalancings", len(history.rebalancings), history),
            _finding("2", "5", "messages lost", "gaps", history.lost, history),
        ]
    ours, theirs = (history.borne() for history in histories)
    result.findings.append(
        ChannelFinding(
            experiment="2",
            figure="5",
            what="more players than consistent hashing",
            unit="%",
            ours=100 * (ours / theirs - 1),
            paper=paper.MORE_PLAYERS_PERCENT,
        )
    )
    return result


async def measure_elasticity(plan: ChannelsPlan, tell: Tell) -> ExperimentResult:
    """Figure 7: players come, most of them leave, and many come again."""
    world = typical_world(plan.tiles_across, plan.game_servers)
    paced = replace(plan, players_per_second=plan.elastic_players_per_second)
    run = GameRun(paced, world, DynamothPolicy(), tell)
    script = [(players, plan.elastic_hold_seconds) for players in plan.elastic_players]
    history = await run.run(script, until_overload=False)
    result = ExperimentResult(plots=_elasticity_plots(history))
    for players, theirs, seconds in zip(
        plan.elastic_players, paper.ELASTIC_PLAYERS, _stays(history, plan.elastic_players), strict=True
    ):
        response = sum(each.response_ms for each in seconds) / len(seconds)
        for what, unit, ours in (
            ("servers", "servers", seconds[-1].servers),
            ("response time", "ms", response),
        ):
            result.findings.append(
                ChannelFinding(
                    experiment="3",
                    figure="7",
                    what=what,
                    unit=unit,
                    ours=ours,
                    policy=history.policy,
                    clients=players,
                    note=f"the paper has {theirs} players here",
                )
            )
    for what, ours in (
        ("seconds above 150 ms", sum(each.response_ms > paper.BEARABLE_MS for each in history.seconds)),
        ("rebalancings", len(history.rebalancings)),
        ("messages lost", history.lost),
    ):
        unit = {"messages lost": "gaps"}.get(what, what.split()[0])
        result.findings.append(_finding("3", "7", what, unit, ours, history))
    return result


def _stays(history: GameHistory, counts: Sequence[int]) -> list[list[GameSecond]]:
    """The seconds during which each number of players was there, in turn."""
    stays: list[list[GameSecond]] = []
    rest = history.seconds
    for count in counts:
        first = next(index for index, each in enumerate(rest) if each.players == count)
        last = next(
            (index for index, each in enumerate(rest) if index > first and each.players != count), None
        )
        stays.append(rest[first:last])
        rest = rest[first if last is None else last :]
    return stays


def _finding(
    experiment: str,
    figure: str,
    what: str,
    unit: str,
    ours: float,
    history: GameHistory,
    theirs: dict[str, int] | None = None,
    note: str = "",
) -> ChannelFinding:
    return ChannelFinding(
        experiment=experiment,
        figure=figure,
        what=what,
        unit=unit,
        ours=ours,
        paper=None if theirs is None else theirs[history.policy],
        policy=history.policy,
        note=note,
    )


def _usual_response(history: GameHistory) -> float:
    """The median of the seconds before the overload."""
    times = sorted(each.response_ms for each in history.seconds[: history.overloaded_since()])
    return times[len(times) // 2] if times else history.seconds[0].response_ms


def _most(history: GameHistory, name: str) -> float:
    return max(float(getattr(each, name)) for each in history.seconds)


def _points(history: GameHistory, value: Callable[[GameSecond], float]) -> Points:
    return [(each.at, value(each)) for each in history.seconds]


def _marks(history: GameHistory, value: Callable[[GameSecond], float]) -> Points:
    """The rebalancings, at the height of the line."""
    return [
        (at, value(min(history.seconds, key=lambda each: abs(each.at - at))))
        for at, _ in history.rebalancings
    ]


def _scalability_plots(histories: Sequence[GameHistory]) -> list[LinePlot]:
    plots = []
    for name, title, unit, value in (
        ("5a", "players", "players", lambda each: float(each.players)),
        ("5b-messages", "messages", "messages/s", lambda each: each.messages),
        ("5b-servers", "servers", "servers", lambda each: float(each.servers)),
        ("5c", "average response time", "ms", lambda each: min(each.response_ms, 4 * paper.BEARABLE_MS)),
    ):
        plots.append(
            LinePlot(
                f"figure-{name}",
                f"Figure {name.partition('-')[0]}: {title}",
                "seconds",
                unit,
                {history.policy: _points(history, value) for history in histories},
                marks={f"rebalancing, {history.policy}": _marks(history, value) for history in histories},
            )
        )
    ours = histories[0]
    plots.append(
        LinePlot(
            "figure-6",
            "Figure 6: load of the servers",
            "seconds",
            "load ratio",
            {
                "average": _points(ours, lambda each: each.mean_ratio),
                "busiest server": _points(ours, lambda each: each.highest_ratio),
            },
            marks={"rebalancing": _marks(ours, lambda each: each.highest_ratio)},
        )
    )
    return plots


def _elasticity_plots(history: GameHistory) -> list[LinePlot]:
    plots = []
    for name, title, unit, value in (
        ("7a-players", "players", "players", lambda each: float(each.players)),
        ("7a-servers", "servers", "servers", lambda each: float(each.servers)),
        ("7b-response", "average response time", "ms", lambda each: each.response_ms),
        ("7b-messages", "messages", "messages/s", lambda each: each.messages),
    ):
        plots.append(
            LinePlot(
                f"figure-{name}",
                f"Figure {name.partition('-')[0]}: {title}",
                "seconds",
                unit,
                {title: _points(history, value)},
                marks={"rebalancing": _marks(history, value)},
            )
        )
    return plots
