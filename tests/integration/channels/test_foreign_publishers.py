"""Publishers without our client on real servers: their load is found, and without them nothing is observed."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest
import redis.asyncio

from culver.channels import Channels
from culver.channels.core.channel_load import ChannelLoad, ClientLoadReport
from culver.channels.core.reserved_names import DISPATCHER_CHANNEL, LOAD_CHANNEL, ROUTES_CHANNEL
from culver.channels.servers.local_servers import LocalServerSettings
from support.channel_traffic import ChannelTraffic, RunningChannels, running_channels
from support.redis_servers import PROGRAMS
from support.until import until

SUBSCRIBERS = 3
PER_SECOND = 200


class ServerWatch:
    """Watches a server's clients, and compares the commands that it has carried out with those that are reported."""

    def __init__(self, url: str) -> None:
        self._redis = redis.asyncio.Redis.from_url(url)
        self._pubsub = self._redis.pubsub(ignore_subscribe_messages=True)
        self._calls_before = 0
        self.besides = self.explained = 0
        self.observers = 0
        self.looks = 0

    async def start(self) -> None:
        await self._pubsub.subscribe(LOAD_CHANNEL, DISPATCHER_CHANNEL, ROUTES_CHANNEL)
        await self._pubsub.get_message(timeout=5)
        self._calls_before = await self._publish_calls()

    async def close(self) -> None:
        await self._pubsub.aclose()  # type: ignore[no-untyped-call]
        await self._redis.aclose()

    async def look(self) -> None:
        clients = await self._redis.client_list()
        self.looks += 1
        self.observers += any(client["name"].startswith("culver-observer") for client in clients)
        await self.read_reports()

    async def read_reports(self) -> None:
        while message := await self._pubsub.get_message():
            self.explained += 1
            if message["channel"] == LOAD_CHANNEL:
                report = msgspec.msgpack.decode(message["data"], type=ClientLoadReport)
                self.besides += report.besides
                self.explained += report.besides + sum(use.publications for use in report.channels)

    async def unexplained(self) -> int:
        await self.read_reports()
        return await self._publish_calls() - self._calls_before - self.explained

    async def _publish_calls(self) -> int:
        statistics = await self._redis.info("commandstats")
        return int(statistics["cmdstat_publish"]["calls"])


def load_of(channels: RunningChannels, server: int, channel: bytes) -> ChannelLoad | None:
    loads = {each.number: each.load for each in channels.service.servers()}
    load = loads[server]
    found = () if load is None else load.channels
    return next((each for each in found if each.channel == channel), None)


@pytest.mark.slow(seconds=5)
@pytest.mark.parametrize("program", ["valkey", "redis"])
def test_channel_of_a_plain_publisher_appears_in_the_load(program: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        settings = LocalServerSettings(program=PROGRAMS[program])
        async with running_channels(tmp_path, 1, settings) as channels, AsyncExitStack() as stack:
            (server,) = channels.service.servers()
            for _ in range(SUBSCRIBERS):
                client = await stack.enter_async_context(Channels(channels.url, own_connections=True))
                await client.pubsub().subscribe("plain")
            url, _ = channels.service.address_of(server.number)
            plain = redis.asyncio.Redis.from_url(url)
            stack.push_async_callback(plain.aclose)
            loop = asyncio.get_running_loop()
            began, sent = loop.time(), 0

            async def is_measured() -> bool:
                nonlocal sent
                while sent < (loop.time() - began) * PER_SECOND:
                    sent += 1
                    await plain.publish("plain", b"x" * 100)
                load = load_of(channels, server.number, b"plain")
                return load is not None and load.publications > 0.7 * PER_SECOND

            await until(is_measured, 40)
            load = load_of(channels, server.number, b"plain")
            assert load is not None
            assert load.publications == pytest.approx(PER_SECOND, rel=0.3)
            assert load.foreign == load.publications
            assert load.subscribers == SUBSCRIBERS
            assert load.sent == pytest.approx(SUBSCRIBERS * load.publications)
            assert load.bytes_in == pytest.approx(100 * load.publications)
            assert load.bytes_out == pytest.approx((100 + len(b"plain") + 36) * load.sent)
            # Without the publisher it ends soon.
            await until(lambda: load_of(channels, server.number, b"plain") is None, 30)

    asyncio.run(scenario())


@pytest.mark.slow(seconds=15)
def test_nothing_is_observed_while_all_publishers_are_ours(tmp_path: Path) -> None:
    """Also while channels move, dispatchers forward, and most commands are heartbeats."""

    async def scenario() -> None:
        async with running_channels(tmp_path, 2) as channels, AsyncExitStack() as stack:
            numbers = [each.number for each in channels.service.servers()]
            watches = [ServerWatch(channels.service.address_of(number)[0]) for number in numbers]
            for watch in watches:
                stack.push_async_callback(watch.close)
                await watch.start()
            busy = [b"busy%d" % number for number in range(4)]
            seldom = [b"seldom%d" % number for number in range(100)]
            traffic = ChannelTraffic(channels.url, busy, [busy, busy], publishers=2, messages_per_second=800)
            await traffic.start()
            beating = await stack.enter_async_context(Channels(channels.url, own_connections=True))
            loop = asyncio.get_running_loop()
            began = loop.time()
            beaten = moved = 0

            async def is_long_enough() -> bool:
                nonlocal beaten, moved
                passed = loop.time() - began
                if passed >= 3 * beaten:
                    beaten += 1
                    await asyncio.gather(*(beating.publish(name, b"x") for name in seldom))
                if passed >= moved:
                    moved += 1
                    await channels.service.move(dict.fromkeys(busy, ((numbers[moved % 2],),)))
                for watch in watches:
                    await watch.look()
                return passed > 25

            await until(is_long_enough, 60)
            await traffic.stop()
            assert traffic.violations == []
            assert traffic.published > 15_000
            assert min(watch.looks for watch in watches) > 50
            assert [watch.observers for watch in watches] == [0, 0]
            assert sum(watch.besides for watch in watches) > 1_000, (
                "heartbeats and forwarded copies are reported"
            )
            for watch in watches:
                # The ring, and what was published since the last reports.
                assert abs(await watch.unexplained()) < 100

    asyncio.run(scenario())
