"""Dispatchers, the service with its balancer, publishers and subscribers are killed at random under traffic."""

import asyncio
import sys
from collections import Counter
from itertools import count
from pathlib import Path
from random import Random

import psutil
import pytest

from culver.bench.channels.clients.message_journal import (
    REPORT_SECONDS,
    STEADY_SECONDS,
    MessageAccount,
    draw_account,
)
from culver.bench.channels.clients.numbered_client import NumberedTask
from culver.bench.channels.clients.numbered_traffic import NumberedProcess
from support.served_channels import ServedChannels

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

SEED = 20153
KINDS = ("dispatcher", "service", "publisher", "subscriber")
CHANNELS = 24
#: In Mbit/s: so little that the balancer has something to move most of the time.
BANDWIDTH = "2.5"


class KilledChannels:
    """Clients of one service, all in processes of their own, of which one after the other is killed and started
    again. The journals of all their lives stay."""

    def __init__(
        self, served: ServedChannels, folder: Path, clients: int, messages_per_second: float, random: Random
    ) -> None:
        """``clients`` is the number of publishers, and of subscribers. Each subscriber has half of the channels."""
        self._served = served
        self._folder = folder
        self._count = clients
        self._rate = messages_per_second / clients
        self._random = random
        self._lives = count()
        self._clients: dict[str, list[NumberedProcess]] = {"publisher": [], "subscriber": []}
        self._journals: dict[str, list[Path]] = {"publisher": [], "subscriber": []}
        self.kills: Counter[str] = Counter()
        self.moves = 0

    async def start(self) -> None:
        numbers = range(self._count)
        await asyncio.gather(
            *(self._start_client(role, number) for role in self._clients for number in numbers)
        )
        await asyncio.sleep(STEADY_SECONDS)

    async def kill(self, kind: str) -> None:
        """Kills one of a kind, and sees to it that there is another."""
        self.kills[kind] += 1
        if kind == "dispatcher":
            self._random.choice(self._dispatchers()).kill()
        elif kind == "service":
            self.moves += self._served.plan().moves
            await asyncio.to_thread(self._served.kill)
            await asyncio.sleep(self._random.uniform(0.0, 1.5))
            await asyncio.to_thread(self._served.start)
        else:
            victim = self._random.choice(self._clients[kind])
            self._clients[kind].remove(victim)
            await victim.kill()
            await self._start_client(kind, self._random.randrange(self._count))

    async def account(self) -> MessageAccount:
        self.moves += self._served.plan().moves
        await asyncio.gather(*(client.stop() for client in self._clients["publisher"]))
        await asyncio.sleep(REPORT_SECONDS + 0.5)
        await asyncio.gather(*(client.stop() for client in self._clients["subscriber"]))
        return draw_account(self._journals["publisher"], self._journals["subscriber"])

    async def end(self) -> None:
        for clients in self._clients.values():
            await asyncio.gather(*(client.kill() for client in clients))

    async def _start_client(self, role: str, number: int) -> None:
        journal = self._folder / f"{role}-{next(self._lives)}"
        self._journals[role].append(journal)
        channels = {f"channel-{index}": index for index in range(CHANNELS)}
        if role == "subscriber":
            channels = {name: index for name, index in channels.items() if index % 2 == number % 2}
        client = NumberedProcess(
            NumberedTask(
                role=role,
                urls=[self._served.url],
                channels=channels,
                journal=str(journal),
                rate=self._rate,
                seed=self._random.randrange(1 << 30),
            )
        )
        self._clients[role].append(client)
        await client.start()

    def _dispatchers(self) -> list[psutil.Process]:
        children = psutil.Process(self._served.process_id).children()
        return [child for child in children if "culver.channels.dispatcher_process" in child.cmdline()]


@pytest.mark.thorough
@pytest.mark.slow(seconds=18)
def test_kills_of_dispatchers_the_service_and_clients_lose_nothing_in_silence(
    tmp_path: Path, full_length: bool
) -> None:
    """At full length, for five minutes with 1,500 messages a second; else each kind is killed once."""

    async def run() -> None:
        random = Random(SEED)
        loop = asyncio.get_running_loop()
        with ServedChannels(
            tmp_path, "--servers", "3" if full_length else "2", "--max-servers", "5", "--bandwidth", BANDWIDTH
        ) as served:
            clients, rate = (4, 1_500) if full_length else (2, 300)
            killed = KilledChannels(served, tmp_path, clients, rate, random)
            try:
                await killed.start()
                began = loop.time()
                while True:
                    for kind in random.sample(KINDS, len(KINDS)):
                        await killed.kill(kind)
                        await asyncio.sleep(random.uniform(0.2, 3.0) if full_length else 0.2)
                    if not full_length or loop.time() - began > 300.0:
                        break
                account = await killed.account()
            finally:
                await killed.end()
        seconds = loop.time() - began
        report = f"seed {SEED}, {seconds:.0f} s, {dict(killed.kills)}, {killed.moves} moves: {account}"
        sys.stdout.write(report + "\n")
        assert account.silently_lost == 0, report
        assert account.duplicated == 0, report
        assert account.out_of_order == 0, report
        assert account.wrongly_reported == 0, report
        assert account.due > (100_000 if full_length else 100), report

    asyncio.run(run())
