"""What every provisioner of servers does, whoever runs them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from culver.channels.servers.local_servers import LocalServers, LocalServerSettings
from culver.channels.servers.redis_address import ServerAccess
from culver.channels.servers.redis_link import RedisLink
from culver.channels.servers.server_pool import GivenServers, ServerProvisioner
from culver.errors import Conflict, LimitExceeded, NotFound
from support.redis_servers import PROGRAMS

PASSWORD = "hidden"
UNKNOWN = 999

Open = Callable[[Path], AbstractAsyncContextManager[ServerProvisioner]]


@asynccontextmanager
async def local(folder: Path) -> AsyncIterator[ServerProvisioner]:
    """Two servers of its own, and room for a third."""
    settings = LocalServerSettings(program=PROGRAMS["valkey"], password=PASSWORD, most_servers=3)
    async with LocalServers(folder / "local", settings) as servers:
        while len(servers.servers) < 2:
            await servers.start()
        yield servers


@asynccontextmanager
async def given(folder: Path) -> AsyncIterator[ServerProvisioner]:
    """Two servers of another provisioner."""
    async with LocalServers(
        folder / "others", LocalServerSettings(program=PROGRAMS["redis"], password=PASSWORD)
    ) as others:
        urls = [(await others.start()).url, (await others.start()).url]
        access = ServerAccess(password=PASSWORD)
        async with GivenServers(urls, folder / "given", access) as servers:
            yield servers


@pytest.fixture(params=[local, given], ids=["local", "given"])
def opened(request: pytest.FixtureRequest) -> Open:
    """Opens the same provisioner each time."""
    found: Open = request.param
    return found


def run(folder: Path, opened: Open, scenario: Callable[[ServerProvisioner], Awaitable[None]]) -> None:
    async def main() -> None:
        async with opened(folder) as servers:
            await scenario(servers)

    asyncio.run(main())


def numbers(servers: ServerProvisioner) -> list[int]:
    return [server.number for server in servers.servers]


def test_every_server_answers_to_its_access(tmp_path: Path, opened: Open) -> None:
    async def scenario(servers: ServerProvisioner) -> None:
        assert len(servers.servers) == 2
        for server in servers.servers:
            async with RedisLink(server.url, access=servers.access(server.number)) as link:
                assert await link.request((b"PING",)) == b"PONG"

    run(tmp_path, opened, scenario)


def test_addresses_hold_no_password_and_differ(tmp_path: Path, opened: Open) -> None:
    async def scenario(servers: ServerProvisioner) -> None:
        assert PASSWORD not in repr(servers.servers)
        assert len({server.url for server in servers.servers}) == 2
        assert numbers(servers) == sorted(set(numbers(servers)))

    run(tmp_path, opened, scenario)


def test_start_adds_a_server_with_a_new_number_until_the_limit_and_then_changes_nothing(
    tmp_path: Path, opened: Open
) -> None:
    async def scenario(servers: ServerProvisioner) -> None:
        before = set(numbers(servers))
        with contextlib.suppress(LimitExceeded):
            added = await servers.start()
            assert added.number not in before
            assert added in servers.servers
            before.add(added.number)
        with pytest.raises(LimitExceeded):
            await servers.start()
        assert set(numbers(servers)) == before

    run(tmp_path, opened, scenario)


def test_stopped_server_leaves_the_pool_and_its_number_goes_to_no_other(tmp_path: Path, opened: Open) -> None:
    async def scenario(servers: ServerProvisioner) -> None:
        first, second = servers.servers
        await servers.stop(first.number)
        assert servers.servers == (second,)
        with pytest.raises(NotFound):
            servers.access(first.number)
        added = await servers.start()
        assert added.number != second.number
        # A server that others run may come back as itself.
        assert added.number != first.number or added == first
        assert set(servers.servers) == {second, added}

    run(tmp_path, opened, scenario)


def test_numbers_go_to_no_other_server_after_a_restart_of_the_owner(tmp_path: Path, opened: Open) -> None:
    known: dict[int, str] = {}

    async def scenario(servers: ServerProvisioner) -> None:
        for server in servers.servers:
            assert known.setdefault(server.number, server.url) == server.url

    run(tmp_path, opened, scenario)
    run(tmp_path, opened, scenario)


def test_running_servers_have_not_crashed(tmp_path: Path, opened: Open) -> None:
    async def scenario(servers: ServerProvisioner) -> None:
        assert servers.crashed() == frozenset()

    run(tmp_path, opened, scenario)


def test_every_server_has_a_price(tmp_path: Path, opened: Open) -> None:
    async def scenario(servers: ServerProvisioner) -> None:
        assert all(servers.price(number) > 0 for number in numbers(servers))
        with pytest.raises(NotFound):
            servers.price(UNKNOWN)

    run(tmp_path, opened, scenario)


def test_restarted_server_answers_at_the_same_address_or_others_must_do_it(
    tmp_path: Path, opened: Open
) -> None:
    async def scenario(servers: ServerProvisioner) -> None:
        before = servers.servers
        server = before[0]
        with contextlib.suppress(LimitExceeded):
            await servers.restart(server.number)
        assert servers.servers == before
        async with RedisLink(server.url, access=servers.access(server.number)) as link:
            assert await link.request((b"PING",)) == b"PONG"

    run(tmp_path, opened, scenario)


def test_server_that_does_not_exist_is_not_found(tmp_path: Path, opened: Open) -> None:
    async def scenario(servers: ServerProvisioner) -> None:
        before = servers.servers
        with pytest.raises(NotFound):
            await servers.stop(UNKNOWN)
        with pytest.raises(NotFound):
            await servers.restart(UNKNOWN)
        with pytest.raises(NotFound):
            servers.access(UNKNOWN)
        assert servers.servers == before

    run(tmp_path, opened, scenario)


def test_second_owner_of_a_folder_is_refused(tmp_path: Path) -> None:
    async def scenario(_: ServerProvisioner) -> None:
        with pytest.raises(Conflict):
            async with GivenServers(["redis://h"], tmp_path / "given"):
                pass
        with pytest.raises(Conflict):
            async with LocalServers(tmp_path / "others"):
                pass

    run(tmp_path, given, scenario)
