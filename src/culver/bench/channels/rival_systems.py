"""What others do on the same servers: plain redis-py, and Valkey's sharded pub/sub. And what our client costs.

The servers of the sharded cluster do not talk to each other: each has its part of the slots, and nothing else would
change for messages. A channel has one slot, so a hot one stays on one server.
"""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from culver.bench.bench_frame import Tell
from culver.bench.channels.bench_service import bench_service
from culver.bench.channels.channels_findings import ChannelFinding, ExperimentResult
from culver.bench.channels.channels_plan import ChannelsPlan
from culver.bench.channels.clients.client_crowd import ClientCrowd, CrowdFigures
from culver.bench.channels.clients.client_process import CrowdTask
from culver.bench.channels.limited_servers import LimitedServers
from culver.bench.channels.server_networks import ServerNetwork, server_network
from culver.bench.channels.slot_migrations import CLUSTER_OPTIONS, share_slots
from culver.channels import Channels
from culver.channels.channel_service import ServiceSettings
from culver.errors import ServerError

#: Parts of what a server can deliver that are offered: well below it for latency, above it for throughput.
_OFFERED = {"latency": 0.5, "delivered": 1.25}
#: Publications at the same time; redis-py opens a connection for each, up to 100.
_BATCH = 50


async def measure_baselines(plan: ChannelsPlan, tell: Tell) -> ExperimentResult:
    result = ExperimentResult()
    shards = max(plan.hot_servers)
    for system, servers in (("channels", 1), ("redis-py", 1), ("valkey sharded", shards)):
        try:
            figures = await _hot_channel(plan, system, servers)
        except ServerError as error:
            tell(f"{system}: {error}")
            result.findings.append(
                _baseline(plan, system, servers, "delivered", "messages/s", None, str(error))
            )
            continue
        delivered, calm = figures["delivered"], figures["latency"]
        tell(
            f"{system}, {servers} server(s): {delivered.received:,.0f} messages/s, {calm.p50_ms or 0:.2f} ms"
        )
        for what, unit, ours in (
            ("delivered", "messages/s", delivered.received),
            ("response time at half load, p50", "ms", calm.p50_ms),
            ("response time at half load, p99", "ms", calm.p99_ms),
        ):
            result.findings.append(_baseline(plan, system, servers, what, unit, ours))
    await _measure_overhead(plan, tell, result)
    return result


def _baseline(
    plan: ChannelsPlan, system: str, servers: int, what: str, unit: str, ours: float | None, note: str = ""
) -> ChannelFinding:
    return ChannelFinding(
        experiment="1",
        what=f"hot channel: {what}",
        unit=unit,
        ours=ours,
        system=system,
        servers=servers,
        clients=plan.hot_clients,
        note=note,
    )


async def _hot_channel(plan: ChannelsPlan, system: str, servers: int) -> dict[str, CrowdFigures]:
    if system == "channels":
        settings = ServiceSettings(first_servers=servers, balance=False)
        async with bench_service(plan.hot_megabits, servers, settings, proxies=plan.proxies) as bench:
            return await _crowds(plan, bench.network, "channels", [bench.url])
    options = CLUSTER_OPTIONS if system == "valkey sharded" else ()
    async with _plain_servers(plan, servers, options) as (network, urls):
        if options:
            await share_slots(urls)
        return await _crowds(plan, network, "sharded" if options else "redis", urls)


async def _crowds(
    plan: ChannelsPlan, network: ServerNetwork, system: str, urls: list[str]
) -> dict[str, CrowdFigures]:
    of_one = plan.hot_megabits * 1e6 / 8 / (plan.payload_bytes + 100)
    found = {}
    task = CrowdTask("subscribers", urls, system=system, payload_bytes=plan.payload_bytes)
    async with ClientCrowd(network, task, plan.client_processes) as subscribers:
        await subscribers.reached(plan.hot_clients)
        for name, part in _OFFERED.items():
            publishing = msgspec.structs.replace(
                task, role="publishers", rate=part * of_one / plan.hot_clients
            )
            async with ClientCrowd(network, publishing) as publishers:
                await publishers.reached(1)
                await subscribers.measure(plan.settle_seconds)
                found[name] = await subscribers.measure(plan.hot_seconds)
    return found


@asynccontextmanager
async def _plain_servers(
    plan: ChannelsPlan, count: int, options: tuple[str, ...]
) -> AsyncIterator[tuple[ServerNetwork, list[str]]]:
    network = await server_network(plan.hot_megabits * 1e6 / 8, proxies=plan.proxies)
    with tempfile.TemporaryDirectory(prefix="culver-channels-") as folder:
        async with network, LimitedServers(network, Path(folder), count, options) as servers:
            yield network, [(await servers.start()).url for _ in range(count)]


Publish = Callable[[int], Awaitable[object]]


async def _measure_overhead(plan: ChannelsPlan, tell: Tell, result: ExperimentResult) -> None:
    """The same program with our client and with redis-py by turns, on one server without a limit, in this process.

    redis-py's pipeline stands beside it: another program, with one reply for many publications. A shared machine
    changes its speed all the time. So messages of the clients alternate where their round trips are measured, and the
    ratio is the median of the turns' ratios.
    """
    from redis import asyncio as redis

    settings = ServiceSettings(first_servers=1, balance=False)
    payload = bytes(plan.payload_bytes)
    rates: dict[str, list[float]] = {}
    trips: dict[str, list[float]] = {}
    async with bench_service(None, 1, settings) as bench:
        url = bench.service.ring.servers[0].url
        async with Channels(bench.url) as ours, redis.Redis.from_url(url) as theirs:

            async def publish_ours(count: int) -> object:
                return await asyncio.gather(*(ours.publish("ours", payload) for _ in range(count)))

            async def publish_theirs(count: int) -> object:
                return await asyncio.gather(*(theirs.publish("theirs", payload) for _ in range(count)))

            async def publish_pipeline(count: int) -> object:
                pipeline = theirs.pipeline(transaction=False)
                for _ in range(count):
                    pipeline.publish("theirs again", payload)
                return await pipeline.execute()

            programs: dict[str, tuple[Any, str, Publish]] = {
                "channels": (ours, "ours", publish_ours),
                "redis-py": (theirs, "theirs", publish_theirs),
                "redis-py pipeline": (theirs, "theirs again", publish_pipeline),
            }
            async with AsyncExitStack() as stack:
                running: dict[str, tuple[AsyncIterator[object], Publish]] = {}
                for system, (client, channel, publish) in programs.items():
                    pubsub = await stack.enter_async_context(client.pubsub(ignore_subscribe_messages=True))
                    await pubsub.subscribe(channel)
                    messages = pubsub.listen()
                    await publish(1)
                    await anext(messages)
                    running[system] = messages, publish
                for _ in range(plan.overhead_rounds):
                    for system, (messages, publish) in running.items():
                        rate = await _rate(messages, publish, plan.overhead_messages)
                        rates.setdefault(system, []).append(rate)
                for _ in range(plan.overhead_rounds * plan.overhead_messages // 20):
                    for system, (messages, publish) in running.items():
                        trips.setdefault(system, []).append(await _trip(messages, publish))
    for what, unit, found, target in (
        ("throughput of one publisher and subscriber", "messages/s", rates, "at least 0.9"),
        ("round trip of one message", "ms", trips, "at most 1.1"),
    ):
        middle = {system: median(values) for system, values in found.items()}
        tell(f"{what}, {unit}: " + ", ".join(f"{system} {value:,.4g}" for system, value in middle.items()))
        for system, value in middle.items():
            result.findings.append(
                ChannelFinding(experiment="1", what=what, unit=unit, ours=value, system=system, servers=1)
            )
        result.findings.append(
            ChannelFinding(
                experiment="1",
                what=f"{what}, ours / redis-py",
                unit="ratio",
                ours=median(
                    ours_then / theirs_then
                    for ours_then, theirs_then in zip(found["channels"], found["redis-py"], strict=True)
                ),
                servers=1,
                note=f"the same program with either client; target {target}",
            )
        )


async def _rate(messages: AsyncIterator[object], publish: Publish, count: int) -> float:
    async def read() -> None:
        for _ in range(count):
            await anext(messages)

    began = time.perf_counter()
    reading = asyncio.create_task(read())
    for _ in range(count // _BATCH):
        await publish(_BATCH)
    await reading
    return count / (time.perf_counter() - began)


async def _trip(messages: AsyncIterator[object], publish: Publish) -> float:
    """The time from publishing a message to having it, in milliseconds."""
    began = time.perf_counter()
    await publish(1)
    await anext(messages)
    return 1e3 * (time.perf_counter() - began)
