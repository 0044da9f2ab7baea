"""The state of a provisioner survives its owner, and servers that others run keep their numbers."""

import asyncio
from pathlib import Path

import pytest

from culver.channels.servers.redis_address import ServerAccess
from culver.channels.servers.server_pool import GivenServers, PoolState
from culver.errors import Conflict, InvalidConfiguration, LimitExceeded, StorageCorrupt

A, B, C = "redis://a:1", "redis://b:2", "redis://c:3"


async def numbers(folder: Path, urls: list[str]) -> dict[str, int]:
    async with GivenServers(urls, folder) as servers:
        return {server.url: server.number for server in servers.servers}


def test_server_has_the_same_number_in_every_list(tmp_path: Path) -> None:
    assert asyncio.run(numbers(tmp_path, [A, B])) == {A: 1, B: 2}
    assert asyncio.run(numbers(tmp_path, [C, B])) == {B: 2, C: 3}
    assert asyncio.run(numbers(tmp_path, [C, A, B])) == {A: 1, B: 2, C: 3}


@pytest.mark.parametrize("urls", [[], [A, A], ["redis://a", "redis://A:6379/0"]])
def test_list_without_servers_or_with_one_twice_is_refused(tmp_path: Path, urls: list[str]) -> None:
    with pytest.raises(InvalidConfiguration, match="once"):
        GivenServers(urls, tmp_path)


def test_password_of_a_url_goes_before_the_common_one_and_is_not_shown(tmp_path: Path) -> None:
    async def scenario() -> None:
        urls = ["redis://me:mine@a", "redis://b"]
        async with GivenServers(urls, tmp_path, ServerAccess("all", "ours")) as servers:
            assert servers.access(1) == ServerAccess("me", "mine")
            assert servers.access(2) == ServerAccess("all", "ours")
            assert [server.url for server in servers.servers] == ["redis://a:6379", "redis://b:6379"]
        assert "mine" not in (tmp_path / "servers.json").read_text()

    asyncio.run(scenario())


def test_no_server_can_be_added_to_a_list(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with GivenServers([A], tmp_path) as servers:
            with pytest.raises(LimitExceeded, match="add it to the list"):
                await servers.start()
            with pytest.raises(LimitExceeded, match=f"others run {A}"):
                await servers.restart(1)

    asyncio.run(scenario())


def test_folder_has_one_owner_at_a_time(tmp_path: Path) -> None:
    first = PoolState(tmp_path, "given")
    with pytest.raises(Conflict, match="another process"):
        PoolState(tmp_path, "given")
    first.close()
    PoolState(tmp_path, "given").close()


def test_folder_of_another_provisioner_is_refused(tmp_path: Path) -> None:
    first = PoolState(tmp_path, "given")
    first.add(A)
    first.close()
    with pytest.raises(Conflict, match="holds given servers"):
        PoolState(tmp_path, "local")


def test_damaged_state_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "servers.json").write_text('{"kind": "given", "next_nu')
    with pytest.raises(StorageCorrupt, match="cannot be read"):
        PoolState(tmp_path, "given")
    assert (tmp_path / "servers.json").read_text() == '{"kind": "given", "next_nu'
