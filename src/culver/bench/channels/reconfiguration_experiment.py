"""Messages that are lost, doubled or out of order while the servers of channels change, beside slot migrations.

Ours are moves, replications, and servers added and removed; theirs are migrations of the channels' slots in a Valkey
cluster, with redis-py's cluster client and sharded pub/sub. The clients are the same program with either system.
"""

import asyncio
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from itertools import cycle, islice
from pathlib import Path
from random import Random

from culver.bench.bench_frame import Tell
from culver.bench.channels.bench_service import BenchService, bench_service
from culver.bench.channels.channels_findings import ChannelFinding, ExperimentResult
from culver.bench.channels.channels_plan import ChannelsPlan
from culver.bench.channels.clients.client_crowd import until
from culver.bench.channels.clients.message_journal import STEADY_SECONDS, MessageAccount
from culver.bench.channels.clients.numbered_client import NumberedTask
from culver.bench.channels.clients.numbered_traffic import NumberedTraffic
from culver.bench.channels.server_networks import server_network
from culver.bench.channels.slot_migrations import MigrationWay, ValkeyCluster, valkey_cluster
from culver.channels.channel_service import ServiceSettings
from culver.channels.core.balance.server_groups import Groups
from culver.errors import ServerError
from culver.simulation import random_groups

_SEED = 20151
_SERVERS = 3
_MOST_SERVERS = 6
_SUBSCRIBERS = 4
_END_SECONDS = 60.0

#: Chances of the kinds of reconfiguration; the rest are moves and changes of replication.
_ADD_SERVER = 0.1
_REMOVE_SERVER = 0.1

_CLUSTER = "valkey cluster, redis-py"

Change = Callable[[Random], Awaitable[str]]


async def measure_reconfigurations(plan: ChannelsPlan, tell: Tell) -> ExperimentResult:
    result = ExperimentResult()
    settings = ServiceSettings(first_servers=_SERVERS, balance=False)
    async with bench_service(None, _MOST_SERVERS, settings) as bench:
        reconfigurer = _Reconfigurer(bench, [name.encode() for name in _names(plan)])
        account, kinds, seconds = await _run(
            plan, "channels", [bench.url], reconfigurer.change, reconfigurer.ended
        )
    _add(plan, tell, result, "channels", account, kinds, seconds)
    for way in plan.migration_ways:
        system = f"{_CLUSTER}, {way}"
        try:
            async with valkey_cluster(await server_network(None), _SERVERS) as cluster:
                migrator = _Migrator(cluster, _names(plan), way)
                account, kinds, seconds = await _run(
                    plan, "cluster", cluster.urls, migrator.change, migrator.ended
                )
        except ServerError as error:
            tell(f"{system}: {error}")
            continue
        _add(plan, tell, result, system, account, kinds, seconds)
    return result


def _names(plan: ChannelsPlan) -> list[str]:
    return [f"channel-{number}" for number in range(plan.changed_channels)]


async def _run(
    plan: ChannelsPlan,
    system: str,
    urls: list[str],
    change: Change,
    ended: Callable[[], Awaitable[None]],
) -> tuple[MessageAccount, Counter[str], float]:
    """Returns the account, how many changes of each kind there were, and how long messages flowed."""
    random = Random(_SEED)
    kinds: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="culver-channels-") as folder:
        async with NumberedTraffic(*_tasks(plan, system, urls, Path(folder))) as traffic:
            began = asyncio.get_running_loop().time()
            await asyncio.sleep(STEADY_SECONDS)
            for _ in range(plan.changes):
                kinds[await change(random)] += 1
                await asyncio.sleep(random.uniform(0.5, 1.5) * plan.change_seconds)
            await ended()
            seconds = asyncio.get_running_loop().time() - began
            # The rivals report no losses, so there would be nothing to wait for but the time limit.
            late_seconds = 30 if system == "channels" else 5
            return await traffic.account(late_seconds), kinds, seconds


def _tasks(
    plan: ChannelsPlan, system: str, urls: list[str], folder: Path
) -> tuple[list[NumberedTask], list[NumberedTask]]:
    """Every publisher publishes on all channels; every channel has two subscribers."""
    channels = {name: index for index, name in enumerate(_names(plan))}
    publishers = [
        NumberedTask(
            role="publisher",
            urls=urls,
            channels=channels,
            journal=str(folder / f"publisher-{number}"),
            system=system,
            rate=plan.change_rate / plan.change_publishers,
            payload_bytes=plan.payload_bytes,
            seed=number,
        )
        for number in range(plan.change_publishers)
    ]
    subscribers = [
        NumberedTask(
            role="subscriber",
            urls=urls,
            channels={name: index for name, index in channels.items() if index % 2 == number % 2},
            journal=str(folder / f"subscriber-{number}"),
            system=system,
        )
        for number in range(_SUBSCRIBERS)
    ]
    return publishers, subscribers


class _Reconfigurer:
    """Changes the servers of our channels at random."""

    def __init__(self, bench: BenchService, channels: list[bytes]) -> None:
        self._bench = bench
        self._service = bench.service
        self._channels = channels
        self._leaving: set[int] = set()

    async def change(self, random: Random) -> str:
        self._leaving &= self._service.ring.numbers
        servers = sorted(self._service.ring.numbers - self._leaving)
        choice = random.random()
        if choice < _ADD_SERVER and len(self._bench.servers.servers) < _MOST_SERVERS:
            await self._service.add_server()
            return "servers added"
        if choice > 1 - _REMOVE_SERVER and len(servers) > _SERVERS:
            await self._remove(random.choice(servers), servers, random)
            return "servers removed"
        channel = random.choice(self._channels)
        before = groups = self._service.plan.groups_of(channel)
        while groups == before:
            # Half of them are for one server, so replication ends as often as it begins.
            groups = ((random.choice(servers),),) if random.random() < 0.5 else random_groups(servers, random)
        await self._service.move({channel: groups})
        return _kind_of_move(before, groups)

    async def ended(self) -> None:
        await until(lambda: not self._service.moves_in_progress, _END_SECONDS, "moves did not end")

    async def _remove(self, victim: int, servers: list[int], random: Random) -> None:
        """The server goes when nobody uses it any more, half a minute later."""
        self._leaving.add(victim)
        others = [server for server in servers if server != victim]
        plan = self._service.plan
        there = [name for name in self._channels if any(victim in group for group in plan.groups_of(name))]
        await self._service.move({name: ((random.choice(others),),) for name in there})
        await self._service.retire_server(victim)


def _kind_of_move(before: Groups, after: Groups) -> str:
    were, are = (sum(map(len, groups)) > 1 for groups in (before, after))
    if were and are:
        return "replications changed"
    return "replications ended" if were else "replications begun" if are else "moves"


class _Migrator:
    """Migrates the slot of a random channel to a random other server."""

    def __init__(self, cluster: ValkeyCluster, channels: list[str], way: MigrationWay) -> None:
        from redis.crc import key_slot

        self._cluster = cluster
        self._slots = [key_slot(name.encode()) for name in channels]
        self._way = way

    async def change(self, random: Random) -> str:
        slot = random.choice(self._slots)
        away = random.randrange(1, len(self._cluster.urls))
        others = cycle(range(len(self._cluster.urls)))
        target = next(islice(others, self._cluster.owner(slot) + away, None))
        await self._cluster.migrate(slot, target, self._way)
        return "slot migrations"

    async def ended(self) -> None:
        """``migrate`` has waited."""


def _add(
    plan: ChannelsPlan,
    tell: Tell,
    result: ExperimentResult,
    system: str,
    account: MessageAccount,
    kinds: Counter[str],
    seconds: float,
) -> None:
    changes = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    tell(f"{system}: {changes}; {account}")
    ours = system == "channels"
    how = (
        f"{changes}; {plan.change_publishers} publishers, {_SUBSCRIBERS} subscribers, "
        f"{plan.changed_channels} channels, {plan.change_rate:,.0f} messages/s offered"
    )
    if not ours:
        how += "; subscribes again on redis-py's errors and whenever a server ends a subscription"
    target = "; target 0" if ours else ""
    for what, unit, value, note in (
        ("published", "messages/s", account.published / seconds, "as many as this machine's cores allow"),
        ("deliveries due", "messages", account.due, how),
        ("lost", "messages", account.lost, f"{account.reported:,} of them reported by gaps{target}"),
        ("lost per reconfiguration", "messages", account.lost / max(1, kinds.total()), ""),
        ("duplicated", "messages", account.duplicated, target.removeprefix("; ")),
        ("out of order", "messages", account.out_of_order, target.removeprefix("; ")),
        (
            "errors raised",
            "errors",
            account.errors + account.failed,
            f"{account.failed:,} publications failed",
        ),
    ):
        result.findings.append(
            ChannelFinding(
                experiment="reconfigurations",
                what=what,
                unit=unit,
                ours=value,
                system=system,
                servers=_SERVERS,
                clients=plan.change_publishers + _SUBSCRIBERS,
                note=note,
            )
        )
