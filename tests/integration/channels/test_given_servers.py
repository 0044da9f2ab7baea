"""Servers that others run, of which the service uses only as many as it needs: the cheap ones first."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from culver.channels.channel_api import status_of
from culver.channels.channel_service import ChannelService, ServiceSettings
from culver.channels.core.balance import plan_keeper
from culver.channels.core.balance.channel_balancer import BalancerSettings
from culver.channels.servers.local_servers import LocalServers, LocalServerSettings
from culver.channels.servers.redis_address import ServerAccess
from culver.channels.servers.redis_link import RedisLink
from culver.channels.servers.server_pool import GivenServers
from culver.channels.servers.tls_files import TlsFiles
from culver.errors import LimitExceeded, ServerNotStarted
from support.encrypted_servers import encrypted_servers, make_certificates
from support.redis_servers import PROGRAMS
from support.service import free_port
from support.until import until

pytestmark = pytest.mark.timeout(120)


@asynccontextmanager
async def others_servers(folder: Path, count: int) -> AsyncIterator[list[str]]:
    async with LocalServers(folder / "others", LocalServerSettings(program=PROGRAMS["valkey"])) as others:
        yield [(await others.start()).url for _ in range(count)]


def test_the_cheapest_server_that_answers_is_taken_next(tmp_path: Path) -> None:
    async def scenario() -> None:
        away = f"redis://127.0.0.1:{free_port()}"
        async with others_servers(tmp_path, 3) as urls:
            priced = [f"{urls[0]}?price=3", f"{urls[1]}?price=1", f"{urls[2]}?price=2", f"{away}?price=1.5"]
            async with GivenServers(priced, tmp_path / "given", first_servers=1) as servers:
                assert [each.url for each in servers.servers] == [urls[1]]
                assert [(await servers.start()).url for _ in range(2)] == [urls[2], urls[0]]
                with pytest.raises(ServerNotStarted, match=f"can be taken: no connection to {away}"):
                    await servers.start()
                assert len(servers.servers) == 3

    asyncio.run(scenario())


def test_idle_service_lays_the_expensive_servers_aside_and_takes_them_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_keeper, "IDLE_SECONDS", 0.1)
    settings = ServiceSettings(
        first_servers=1,
        balancer=BalancerSettings(min_servers=1, max_servers=3, wait_seconds=0.0, low_seconds=0.0),
    )

    async def scenario() -> None:
        async with others_servers(tmp_path, 3) as urls:
            priced = [f"{urls[0]}?price=3", urls[1], f"{urls[2]}?price=2"]
            folder = tmp_path / "given"
            servers = GivenServers(priced, folder)
            async with ChannelService(servers, folder, settings) as service:
                assert [(each.url, each.price) for each in status_of(service).servers] == [
                    (urls[0], 3.0),
                    (urls[1], 1.0),
                    (urls[2], 2.0),
                ]
                assert not any("price" in each.url for each in service.ring.servers)
                await until(lambda: service.ring.numbers == {2}, 60)
                await until(lambda: len(servers.servers) == 1)
                given_back = [number for past in service.decisions for number in past.stopped]
                assert given_back == [1, 3]
                for url in urls:
                    async with RedisLink(url) as link:
                        assert await link.request((b"PING",)) == b"PONG"
            servers = GivenServers(priced, folder, first_servers=1)
            calm = ServiceSettings(first_servers=1, balance=False)
            async with ChannelService(servers, folder, calm) as service:
                assert service.ring.numbers == {2}
                assert [(await service.add_server()).url for _ in range(2)] == [urls[2], urls[0]]
                assert service.ring.numbers == {1, 2, 3}
                with pytest.raises(LimitExceeded, match="add it to the list"):
                    await service.add_server()

    asyncio.run(scenario())


def test_dispatchers_move_channels_between_servers_that_want_certificates(tmp_path: Path) -> None:
    files = make_certificates(tmp_path)
    access = ServerAccess.with_files(None, None, TlsFiles(files.authority, *files.client))
    settings = ServiceSettings(first_servers=2, balance=False)

    async def scenario(urls: list[str]) -> None:
        folder = tmp_path / "given"
        async with ChannelService(GivenServers(urls, folder, access), folder, settings) as service:
            other = next(number for number in (1, 2) if number != service.ring.home(b"news"))
            await service.move({b"news": ((other,),)})
            # Clients see the entry once the dispatchers of both servers have reported the route.
            await until(lambda: b"news" in service.plan.entries)
            assert service.plan.entries[b"news"].groups == ((other,),)

    with encrypted_servers(tmp_path / "servers", files, ask_clients=True) as servers:
        asyncio.run(scenario(servers.urls))
