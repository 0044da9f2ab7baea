"""Channels under load while they move, and while servers and dispatchers are killed: no loss goes unnoticed."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from culver.channels import Channels
from culver.channels.servers.local_servers import LocalServerSettings
from culver.simulation import random_groups
from support.channel_traffic import ChannelTraffic, RunningChannels, running_channels
from support.served_channels import ServedChannels
from support.until import until

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]


async def retire(running: RunningChannels, victim: int, channels: list[bytes], random: Random) -> None:
    service = running.service
    others = sorted(service.ring.numbers - {victim})
    there = [name for name in channels if any(victim in group for group in service.plan.groups_of(name))]
    await service.move({name: ((random.choice(others),),) for name in there})
    await service.retire_server(victim)


@pytest.mark.slow(seconds=12)
def test_random_reconfigurations_lose_nothing(tmp_path: Path, full_length: bool) -> None:
    """At full length, 100 moves, replications, and servers added and removed, with 5,000 messages a second."""
    channels = [b"channel-%d" % number for number in range(40)]

    async def run() -> None:
        random = Random(20151)
        interests = [random.sample(channels, 10) for _ in range(8 if full_length else 4)]
        async with running_channels(tmp_path, servers=3) as running:
            rate = 5_000 if full_length else 1_000
            traffic = ChannelTraffic(running.url, channels, interests, 4, rate)
            await traffic.start()
            for _ in range(100 if full_length else 12):
                servers = sorted(running.service.ring.numbers)
                choice = random.random()
                if choice < 0.08 and len(servers) < 5:
                    await running.service.add_server()
                elif choice < 0.14 and len(servers) > 3:
                    await retire(running, random.choice(servers), channels, random)
                else:
                    await running.service.move({random.choice(channels): random_groups(servers, random)})
                await asyncio.sleep(random.uniform(0.05, 0.5))
            await running.moves_ended()
            await traffic.stop()
            assert traffic.violations == []
            assert traffic.reported_lost == 0
            assert traffic.published > 1_000

    asyncio.run(run())


@pytest.mark.slow(seconds=12)
def test_killed_servers_and_dispatchers_lose_nothing_in_silence(tmp_path: Path, full_length: bool) -> None:
    """At full length, 50 clients with 10,000 channels, for five minutes."""
    clients, of_each = (50, 200) if full_length else (10, 50)
    channels = [b"channel-%d" % number for number in range(clients * of_each)]
    interests = [channels[client * of_each : (client + 1) * of_each] for client in range(clients)]

    async def run() -> None:
        random = Random(20152)
        async with running_channels(tmp_path, servers=3) as running:
            traffic = ChannelTraffic(running.url, channels, interests, 4, 1_500 if full_length else 500)
            await traffic.start()
            for turn in range(75 if full_length else 2):
                number = random.choice(sorted(running.service.ring.numbers))
                moved = {random.choice(channels): ((server,),) for server in running.service.ring.numbers}
                await running.service.move(moved)
                await asyncio.sleep(random.uniform(0, 0.3))
                if turn % 2:
                    process = running.service.dispatchers.process_id(number)
                    assert process is not None
                    os.kill(process, signal.SIGKILL)
                else:
                    os.kill(running.servers.process_id(number), signal.SIGKILL)
                    await asyncio.sleep(0.2)
                    assert await traffic.all_settled(limit_seconds=20.0) < 5.0
                await asyncio.sleep(2.0)
            await running.moves_ended()
            await traffic.stop()
            assert traffic.violations == []

    asyncio.run(run())


def test_a_killed_service_goes_on_with_its_servers_and_clients_notice_nothing(tmp_path: Path) -> None:
    channels = [b"channel-%d" % number for number in range(20)]

    async def run() -> None:
        with ServedChannels(tmp_path, "--servers", "2") as served:
            traffic = ChannelTraffic(served.url, channels, [channels[:10], channels[5:]], 2, 300)
            await traffic.start()
            before = served.plan()
            served.kill()
            await asyncio.sleep(1.0)
            served.start()
            after = served.plan()
            assert [server.url for server in after.servers] == [server.url for server in before.servers]
            assert after.ring_version > before.ring_version
            await asyncio.sleep(1.0)
            await traffic.stop()
            assert traffic.violations == []
            assert traffic.reported_lost == 0
            assert all(server.state == "up" for server in served.plan().servers)

    asyncio.run(run())


def test_a_subscriber_that_redis_cuts_off_learns_what_it_has_missed(tmp_path: Path) -> None:
    """The process stops reading, Redis drops its connection with all that waits, and it goes on."""

    async def run() -> None:
        limited = LocalServerSettings(output_buffer_bytes=1 << 20)
        async with running_channels(tmp_path, servers=1, settings=limited) as running:
            command = [
                sys.executable,
                "-m",
                "culver",
                "channels",
                "sub",
                "busy",
                "--json",
                "--url",
                running.url,
            ]
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            reader = await asyncio.create_subprocess_exec(
                *command, stdout=subprocess.PIPE, env=environment, limit=1 << 22
            )
            assert reader.stdout is not None
            async with Channels(running.url) as client:
                await until(lambda: client.publish("busy", "first"))
                assert json.loads(await reader.stdout.readline())["data"].startswith("first")
                reader.send_signal(signal.SIGSTOP)
                for _ in range(40):
                    await client.publish("busy", b"x" * 200_000)
                await until(lambda: _nobody_listens(client))
                reader.send_signal(signal.SIGCONT)
                began = asyncio.get_running_loop().time()
                kinds = set()
                while "gap" not in kinds:
                    async with asyncio.timeout(10):
                        kinds.add(json.loads(await reader.stdout.readline())["type"])
                assert asyncio.get_running_loop().time() - began < 3.0 + 1.0
                await client.publish("busy", "last")
                async with asyncio.timeout(10):
                    while json.loads(await reader.stdout.readline()).get("data") != "last":
                        pass
            reader.terminate()
            await reader.wait()

    asyncio.run(run())


async def _nobody_listens(client: Channels) -> bool:
    return await client.publish("busy", b"y" * 200_000) == 0
