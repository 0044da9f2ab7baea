"""One run of the game: players come and go, a policy places the tiles, and every second is written down."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from culver.bench.bench_frame import Tell
from culver.bench.channels import dynamoth_paper as paper
from culver.bench.channels.bench_service import BenchService, bench_service
from culver.bench.channels.channels_plan import ChannelsPlan
from culver.bench.channels.clients.client_crowd import ClientCrowd
from culver.bench.channels.clients.client_process import CrowdTask
from culver.bench.channels.clients.game_world import GameWorld
from culver.channels.channel_service import ServiceSettings
from culver.channels.core.balance.channel_balancer import BalancerSettings
from culver.channels.core.balance.server_groups import Groups
from culver.channels.core.channel_plan import Ring

#: The part of a server's limit that is left for what Redis counts as output: each message of 200 bytes travels in a
#: packet of its own, whose headers the filter counts too.
PAYLOAD_SHARE = 0.8

#: Response times are averaged over so many seconds.
AVERAGED_SECONDS = 5

_STEP_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class GameSecond:
    """The state after ``at`` seconds. ``response_ms`` is averaged over the last seconds."""

    at: float
    players: int
    servers: int
    response_ms: float
    messages: float
    mean_ratio: float
    highest_ratio: float
    rebalancings: int


@dataclass(slots=True)
class GameHistory:
    policy: str
    network: str
    seconds: list[GameSecond] = field(default_factory=list)
    #: When the policy changed the plan, with its reasons.
    rebalancings: list[tuple[float, str]] = field(default_factory=list)
    client_cpu: float = 0.0
    lost: int = 0

    def overloaded_since(self) -> int | None:
        """The index of the first of the seconds at the end in which players have waited too long."""
        found = None
        for index in range(len(self.seconds) - 1, -1, -1):
            if self.seconds[index].response_ms <= paper.BEARABLE_MS:
                break
            found = index
        return found

    def borne(self) -> int:
        """The players that there were when the average response time passed the bearable for good."""
        since = self.overloaded_since()
        return self.seconds[-1 if since is None else since].players


class PlacementPolicy(Protocol):
    """Decides which servers have the tiles. ``balances`` turns on the product's own balancer."""

    name: str
    balances: bool

    async def step(self, bench: BenchService, now: float) -> list[str]:
        """Called every second; returns what it has changed, in words."""


class DynamothPolicy:
    """The balancer of the service."""

    name = "dynamoth"
    balances = True

    def __init__(self) -> None:
        self._told = 0

    async def step(self, bench: BenchService, now: float) -> list[str]:
        counts, decisions = bench.service.counts.decisions, list(bench.service.decisions)
        new = decisions[len(decisions) - (counts - self._told) :] if counts > self._told else []
        self._told = counts
        return [
            f"{past.moves} moves, {past.started} started, {len(past.stopped)} stopped: {'; '.join(past.reasons)}"
            for past in new
        ]


class ConsistentHashingPolicy:
    """What the paper compares with: at every overload a new server takes its share of the hash ring."""

    name = "consistent-hashing"
    balances = False

    def __init__(self, world: GameWorld, settings: BalancerSettings) -> None:
        self._tiles = world.tiles()
        self._settings = settings
        self._decided_at = float("-inf")

    async def step(self, bench: BenchService, now: float) -> list[str]:
        service = bench.service
        busiest = max(service.servers(), key=lambda server: server.load_ratio)
        if (
            busiest.load_ratio < self._settings.thresholds.high
            or now < self._decided_at + self._settings.wait_seconds
            or len(bench.numbers) >= self._settings.max_servers
        ):
            return []
        self._decided_at = now
        before = self._homes(bench)
        added = await service.add_server()
        after = self._homes(bench)
        moved: dict[bytes, Groups] = {
            tile: ((after[tile],),) for tile in self._tiles if after[tile] != before[tile]
        }
        await service.move(moved)
        return [
            f"server {busiest.number} is at {busiest.load_ratio:.2f}: server {added.number} takes {len(moved)} tiles"
        ]

    def _homes(self, bench: BenchService) -> dict[bytes, int]:
        numbers = tuple(bench.numbers)
        ring = Ring(1, bench.service.ring.servers, numbers)
        return {tile: ring.home(tile) for tile in self._tiles}


def game_settings(plan: ChannelsPlan, *, balance: bool) -> ServiceSettings:
    balancer = BalancerSettings(
        max_servers=plan.game_servers,
        wait_seconds=plan.wait_seconds,
        low_seconds=2 * plan.wait_seconds,
    )
    bandwidth = PAYLOAD_SHARE * plan.game_megabits * 1e6 / 8
    return ServiceSettings(
        first_servers=1, bandwidth=bandwidth, bandwidth_is_limit=True, balancer=balancer, balance=balance
    )


class GameRun:
    """Runs the game until the script of players ends, or they have waited too long for too long."""

    def __init__(self, plan: ChannelsPlan, world: GameWorld, policy: PlacementPolicy, tell: Tell) -> None:
        self._plan = plan
        self._world = world
        self._policy = policy
        self._tell = tell

    async def run(self, script: Sequence[tuple[int, float]], *, until_overload: bool) -> GameHistory:
        """``script`` lists how many players there shall be, and how many seconds they stay when they are there."""
        plan = self._plan
        task = CrowdTask(
            "players",
            [],
            rate=paper.UPDATES_PER_SECOND,
            payload_bytes=plan.payload_bytes,
            tiles_across=self._world.across,
            world=self._world.name,
            wide_area=plan.wide_area,
        )
        settings = game_settings(plan, balance=self._policy.balances)
        async with bench_service(
            plan.game_megabits, plan.game_servers, settings, proxies=plan.proxies
        ) as bench:
            task.urls = [bench.url]
            history = GameHistory(self._policy.name, bench.network.kind)
            async with ClientCrowd(bench.network, task, plan.client_processes) as crowd:
                await crowd.reached(plan.first_players)
                await self._play(bench, crowd, history, script, until_overload=until_overload)
        return history

    async def _play(
        self,
        bench: BenchService,
        crowd: ClientCrowd,
        history: GameHistory,
        script: Sequence[tuple[int, float]],
        *,
        until_overload: bool,
    ) -> None:
        plan = self._plan
        loop = asyncio.get_running_loop()
        began = loop.time()
        players = float(plan.first_players)
        recent: list[tuple[float, int]] = []
        for wanted, stay_seconds in script:
            arrived_at: float | None = None
            while arrived_at is None or loop.time() < arrived_at + stay_seconds:
                await asyncio.sleep(_STEP_SECONDS - (loop.time() - began) % _STEP_SECONDS)
                step = plan.players_per_second * _STEP_SECONDS
                players = min(wanted, players + step) if players < wanted else max(wanted, players - step)
                crowd.resize(int(players))
                if players == wanted and arrived_at is None:
                    arrived_at = loop.time()
                now = loop.time() - began
                for reason in await self._policy.step(bench, now):
                    history.rebalancings.append((now, reason))
                    self._tell(f"{history.policy}, {now:.0f} s: {reason}")
                self._note(bench, crowd, history, recent, int(players), now)
                since = history.overloaded_since()
                if (
                    until_overload
                    and since is not None
                    and len(history.seconds) - since >= plan.overload_seconds
                ):
                    return

    def _note(
        self,
        bench: BenchService,
        crowd: ClientCrowd,
        history: GameHistory,
        recent: list[tuple[float, int]],
        players: int,
        now: float,
    ) -> None:
        figures = crowd.figures()
        if figures.response_ms is not None:
            recent.append((figures.response_ms * figures.responses, figures.responses))
            del recent[:-AVERAGED_SECONDS]
        answered = sum(count for _, count in recent)
        ratios = [server.load_ratio for server in bench.service.servers()]
        history.client_cpu = max(history.client_cpu, figures.cpu)
        history.lost += figures.lost
        history.seconds.append(
            GameSecond(
                at=now,
                players=players,
                servers=len(ratios),
                response_ms=sum(total for total, _ in recent) / answered if answered else 0.0,
                messages=figures.received,
                mean_ratio=sum(ratios) / len(ratios),
                highest_ratio=max(ratios),
                rebalancings=len(history.rebalancings),
            )
        )
        if len(history.seconds) % 10 == 0:
            last = history.seconds[-1]
            self._tell(
                f"{history.policy}, {now:.0f} s: {players} players, {last.servers} servers, "
                f"{last.response_ms:,.0f} ms, {last.messages:,.0f} messages/s, load {last.mean_ratio:.2f} on average "
                f"and {last.highest_ratio:.2f} at most, busiest client process {figures.cpu:.0%} of a core"
            )
