"""A service that starts without the data directory of the one before: its clients go on with the new one."""

import asyncio
import shutil
from pathlib import Path

import pytest

from culver.channels import Channels, PubSub
from culver.channels.servers.local_servers import LocalServers, LocalServerSettings
from support.redis_servers import PROGRAMS
from support.served_channels import ServedChannels
from support.until import until

pytestmark = pytest.mark.slow(seconds=10)


async def _payloads(pubsub: PubSub, received: list[bytes]) -> None:
    async for message in pubsub.listen():
        if message["type"] in ("message", "pmessage"):
            received.append(message["data"])  # noqa: PERF401  a list that others look at


async def _renewal_is_survived(service: ServedChannels, data: Path) -> None:
    async with (
        Channels(service.url) as client,
        Channels(service.url, own_connections=True) as other,
        client.pubsub() as pubsub,
        client.pubsub() as patterns,
    ):
        received: list[bytes] = []
        matched: list[bytes] = []
        await pubsub.subscribe("news")
        await patterns.psubscribe("n*")
        readers = [
            asyncio.create_task(_payloads(*each)) for each in ((pubsub, received), (patterns, matched))
        ]

        async def arrives(payload: bytes) -> bool:
            await other.publish("news", payload)
            return payload in received and payload in matched

        await until(lambda: arrives(b"before"))
        await asyncio.to_thread(service.stop)
        old_secret = (data / "secret").read_bytes()
        shutil.rmtree(data)
        await asyncio.to_thread(service.start)
        assert (data / "secret").read_bytes() != old_secret
        # The publisher finds the new servers within its five seconds, or has found them before.
        await until(lambda: arrives(b"after"))
        assert await client.publish("news", b"own") >= 1
        await until(lambda: b"own" in received)
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)


def test_client_receives_and_publishes_after_the_data_directory_was_removed(tmp_path: Path) -> None:
    with ServedChannels(tmp_path) as service:
        asyncio.run(_renewal_is_survived(service, tmp_path / "data"))


def test_client_follows_a_renewed_service_on_servers_that_go_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with LocalServers(tmp_path / "servers", LocalServerSettings(program=PROGRAMS["redis"])) as pool:
            urls = [(await pool.start()).url for _ in range(2)]
            arguments = [word for url in urls for word in ("--server", url)]
            with ServedChannels(tmp_path, *arguments) as service:
                await _renewal_is_survived(service, tmp_path / "data")

    asyncio.run(scenario())
