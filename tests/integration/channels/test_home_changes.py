"""A ring with other homes is told when every entry is at its new home: a client that finds none there would stay at
the home for ever, and hear nothing."""

import asyncio
from itertools import count
from pathlib import Path

from culver.channels.channel_service import ChannelService, ServiceSettings
from culver.channels.core.channel_plan import Ring
from culver.channels.core.envelope import unpack_ring
from culver.channels.core.reserved_names import PLAN_KEY, RING_KEY
from culver.channels.servers.local_servers import LocalServers, LocalServerSettings
from culver.channels.servers.redis_link import RedisLink
from culver.channels.servers.server_pool import GivenServers
from support.redis_servers import PROGRAMS
from support.severable import severable
from support.until import until


def channel_that_changes_from_server_1_to_3() -> bytes:
    names = (b"channel-%d" % number for number in count())
    return next(
        name
        for name in names
        if Ring(1, (), (1, 2, 3)).home(name) == 1 and Ring(1, (), (2, 3)).home(name) == 3
    )


def test_entries_are_at_their_new_homes_before_anybody_is_told_of_these(tmp_path: Path) -> None:
    channel = channel_that_changes_from_server_1_to_3()

    async def scenario() -> None:
        settings = LocalServerSettings(program=PROGRAMS["valkey"])
        async with LocalServers(tmp_path / "others", settings) as others:
            direct = [(await others.start()).url for _ in range(3)]
            async with severable(int(direct[1].rpartition(":")[2])) as relay:
                urls = [direct[0], relay.url.replace("http", "redis"), direct[2]]
                given = GivenServers(urls, tmp_path / "given")
                async with ChannelService(
                    given, tmp_path / "given", ServiceSettings(first_servers=3, balance=False)
                ) as service:
                    await service.move({channel: ((2,),)})
                    await until(lambda: channel in service.plan.entries and not service.moves_in_progress)
                    async with RedisLink(direct[0]) as leaving, RedisLink(direct[2]) as home:
                        known = service.ring.version
                        # While server 2 is slow, the others must not be ahead of each other.
                        relay.flowing.clear()
                        asyncio.get_running_loop().call_later(0.5, relay.flowing.set)
                        await service.retire_server(1)
                        told = False
                        while not told:
                            signed = await leaving.request((b"GET", RING_KEY))
                            assert isinstance(signed, bytes)
                            ring = unpack_ring(signed, service.secret)
                            told = ring.version > known or service.told_ring.version > known
                        assert await home.request((b"HGET", PLAN_KEY, channel)) is not None
                        assert service.ring.homes == (2, 3)

    asyncio.run(scenario())
