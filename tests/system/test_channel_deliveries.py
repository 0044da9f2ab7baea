"""A site that delivers to channels is killed in the middle: subscribers get every event once and in order."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from culver.channels import Channels
from support.channel_thread import ChannelThread, channel_thread
from support.service import Service
from support.until import until

pytestmark = pytest.mark.timeout(240)

EVENTS_OF_A_ROUND = 3_000
ROUNDS = 4


@pytest.fixture
def channels(tmp_path: Path) -> Iterator[ChannelThread]:
    with channel_thread(tmp_path / "servers") as thread:
        yield thread


def test_each_gateway_delivers_for_its_share_of_the_subscriptions(
    tmp_path: Path, channels: ChannelThread
) -> None:
    async def scenario(service: Service) -> None:
        async with Channels(channels.url) as client:
            subscriber = Subscriber(client)
            await subscriber.subscribe("c")
            reading = asyncio.create_task(subscriber.read())
            specs = [{"id": f"s{n}", "filter": "n >= 0", "deliver": {"channel": "c"}} for n in range(8)]
            (await asyncio.to_thread(service.http.post, "/v1/subscriptions", json=specs)).raise_for_status()
            (await asyncio.to_thread(service.http.post, "/v1/events", json={"n": 7})).raise_for_status()
            await until(lambda: len(subscriber.numbers) >= 8, 60)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            assert (subscriber.numbers, subscriber.gaps) == ([7] * 8, [])

    with Service(
        tmp_path / "data", "spark", "--channels-url", channels.url, "--spark-master", "local[1]", gateways=2
    ) as service:
        service.wait_until_ready()
        asyncio.run(scenario(service))
        urls = [each["url"] for each in service.http.get("/v1/gateways").json()["gateways"]]
        shares = [httpx.get(f"{url}/v1/channels", trust_env=False).json()["subscriptions"] for url in urls]
        assert (len(shares), sum(shares)) == (2, 8)
        assert all(shares)


class Subscriber:
    """Reads a channel for as long as the test runs."""

    def __init__(self, client: Channels) -> None:
        self._pubsub = client.pubsub(ignore_subscribe_messages=True)
        self.numbers: list[int] = []
        self.gaps: list[str] = []

    async def subscribe(self, channel: str) -> None:
        await self._pubsub.subscribe(channel)

    async def read(self) -> None:
        async for message in self._pubsub.listen():
            if message["type"] == "gap":
                self.gaps.append(str(message["data"]))
            else:
                self.numbers.append(json.loads(message["data"])["n"])


def test_nothing_is_lost_or_doubled_when_the_site_is_killed(tmp_path: Path, channels: ChannelThread) -> None:
    async def scenario(service: Service) -> None:
        async with Channels(channels.url) as client:
            subscriber = Subscriber(client)
            await subscriber.subscribe("even")
            reading = asyncio.create_task(subscriber.read())
            body = {"id": "s", "filter": "even", "deliver": {"channel": "even"}}
            (await asyncio.to_thread(service.http.post, "/v1/subscriptions", json=body)).raise_for_status()
            for round_ in range(ROUNDS):
                start = round_ * EVENTS_OF_A_ROUND
                events = [{"n": start + n, "even": n % 2 == 0} for n in range(EVENTS_OF_A_ROUND)]
                (await asyncio.to_thread(service.http.post, "/v1/events", json=events)).raise_for_status()
                # Some deliveries are published, and others are not.
                wanted = start // 2 + 100
                await until(lambda wanted=wanted: len(subscriber.numbers) >= wanted, 60)  # type: ignore[misc]
                service.kill()
                service.start()
                await asyncio.to_thread(service.wait_until_ready)
            await until(lambda: len(subscriber.numbers) >= ROUNDS * EVENTS_OF_A_ROUND // 2, 60)

            def is_acknowledged() -> bool:
                return bool(service.http.get("/v1/subscriptions/s").json()["pending"] == 0)

            async def acknowledged() -> bool:
                return await asyncio.to_thread(is_acknowledged)

            await until(acknowledged, 60)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            assert subscriber.numbers == list(range(0, ROUNDS * EVENTS_OF_A_ROUND, 2))
            assert subscriber.gaps == []

    with Service(tmp_path / "data", "inline", "--channels-url", channels.url) as service:
        service.wait_until_ready()
        asyncio.run(scenario(service))
