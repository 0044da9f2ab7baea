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


def test_servers_with_different_passwords_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match="same user and password"):
        GivenServers(["redis://:mine@a", "redis://b"], tmp_path)


def test_password_of_a_url_goes_before_the_common_one_and_is_not_shown(tmp_path: Path) -> None:
    async def scenario() -> None:
        urls = ["redis://me:mine@a", "redis://me:mine@b"]
        async with GivenServers(urls, tmp_path, ServerAccess("all", "ours")) as servers:
            assert servers.access(1) == servers.access(2) == ServerAccess("me", "mine")
            assert [server.url for server in servers.servers] == ["redis://a:6379", "redis://b:6379"]
        assert "mine" not in (tmp_path / "servers.json").read_text()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("url", "price"),
    [(A, 1.0), (f"{A}?", 1.0), (f"{A}?price=2.5", 2.5), ("rediss://me:mine@a:1?price=1e-3", 0.001)],
)
def test_price_is_part_of_the_list_and_not_of_the_address(tmp_path: Path, url: str, price: float) -> None:
    async def scenario() -> None:
        async with GivenServers([url], tmp_path) as servers:
            assert servers.price(1) == price
            assert servers.servers[0].url in (A, "rediss://a:1")
        assert "price" not in (tmp_path / "servers.json").read_text()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("price=0", "redis://a:1: the price must be a positive number, not '0'"),
        ("price=-1", "must be a positive number"),
        ("price=cheap", "must be a positive number, not 'cheap'"),
        ("price=", "must be a positive number, not ''"),
        ("price=nan", "must be a positive number"),
        ("price=inf", "must be a positive number"),
        ("price=1&price=2", "redis://a:1: give the price once"),
        ("cost=2&db=1&price=2", "redis://a:1: unknown cost, db; a server's only parameter is price"),
        ("sesame@b", "write a \\? in a password as %3F"),
    ],
)
def test_other_parameters_and_prices_are_refused_without_the_password(
    tmp_path: Path, query: str, words: str
) -> None:
    with pytest.raises(InvalidConfiguration, match=words) as refused:
        GivenServers([f"redis://me:mine@a:1?{query}"], tmp_path)
    assert not {"mine", "sesame"} & {*refused.value.message.replace("@", " ").split()}


def test_same_address_with_two_prices_is_given_twice(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match="once"):
        GivenServers([f"{A}?price=1", f"{A}?price=2"], tmp_path)


PRICED = [f"{A}?price=3", f"{B}?price=1", f"{C}?price=2"]


async def in_use(folder: Path, urls: list[str], first_servers: int | None) -> list[str]:
    async with GivenServers(urls, folder, first_servers=first_servers) as servers:
        return [server.url for server in servers.servers]


def test_the_cheapest_servers_are_used_first(tmp_path: Path) -> None:
    assert asyncio.run(in_use(tmp_path / "one", PRICED, 1)) == [B]
    assert asyncio.run(in_use(tmp_path / "two", PRICED, 2)) == [B, C]
    assert asyncio.run(in_use(tmp_path / "equal", [A, B, C], 2)) == [A, B]
    assert asyncio.run(in_use(tmp_path / "all", PRICED, None)) == [A, B, C]


def test_new_owner_goes_on_with_the_servers_in_use(tmp_path: Path) -> None:
    async def lay_aside() -> None:
        async with GivenServers(PRICED, tmp_path) as servers:
            await servers.stop(1)

    asyncio.run(lay_aside())
    assert asyncio.run(in_use(tmp_path, PRICED, 1)) == [B, C]
    assert asyncio.run(in_use(tmp_path, PRICED[:2], 1)) == [B]
    assert asyncio.run(in_use(tmp_path, PRICED, 1)) == [B]
    assert asyncio.run(in_use(tmp_path, PRICED, None)) == [A, B, C]


def test_state_of_an_older_version_means_that_all_servers_are_in_use(tmp_path: Path) -> None:
    (tmp_path / "servers.json").write_text(
        '{"kind":"given","next_number":3,"servers":[{"number":1,"url":"redis://a:1"},{"number":2,"url":"redis://b:2"}]}'
    )
    assert asyncio.run(in_use(tmp_path, PRICED, 1)) == [A, B]


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
