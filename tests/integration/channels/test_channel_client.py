"""The client's connections, limits and errors, with real servers and with things that are none."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from culver.channels import Channels
from culver.channels.channel_connections import ChannelConnections
from culver.channels.core.channel_plan import Ring, ServerAddress
from culver.channels.servers.local_servers import LocalServerSettings
from culver.errors import (
    ConnectionFailed,
    CulverError,
    InvalidRequest,
    RequestRefused,
    ServerAccessDenied,
    ServerUnsuitable,
    TooLarge,
)
from support.channel_directory import directory_of, http_server, listed_servers
from support.redis_servers import PROGRAMS, scripted, silent, strange_server
from support.until import settled, until

NOWHERE = "http://127.0.0.1:1"
MEGABYTE = 1 << 20


@asynccontextmanager
async def client_of(url: str, **options: Any) -> AsyncIterator[Channels]:
    """A client of a service whose one server has this URL."""
    ring = Ring(1, (ServerAddress(1, url),), (1,))
    body = msgspec.json.encode(directory_of(ring))
    async with http_server(lambda: body) as service, Channels(service, **options) as channels:
        yield channels


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("", InvalidRequest, "must not be empty"),
        (b"", InvalidRequest, "must not be empty"),
        ("x" * MEGABYTE, TooLarge, "at most 4,096 bytes, not 1,048,576"),
        (b"\xff" * 4_097, TooLarge, "at most 4,096 bytes"),
        ("__culver:ring", InvalidRequest, "reserved"),
        (None, InvalidRequest, "NoneType is not bytes, a string or a number"),
        (True, InvalidRequest, "bool is not bytes"),
        ("\ud800", InvalidRequest, "cannot be encoded"),
    ],
)
def test_a_name_that_no_channel_can_have_changes_nothing(
    name: object, error: type[CulverError], words: str
) -> None:
    async def scenario() -> None:
        channels = Channels(NOWHERE)
        pubsub = channels.pubsub()
        for refused in (
            channels.publish(name, "data"),  # type: ignore[arg-type]
            pubsub.subscribe("fine", name),
            pubsub.psubscribe("fine", name),
            pubsub.subscribe(["fine", name]),
        ):
            with pytest.raises(error, match=words) as caught:
                await refused
            assert caught.value.field == "channel"
        assert (pubsub.channels, pubsub.patterns, pubsub.subscribed) == ({}, {}, False)
        await channels.aclose()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("message", "error"), [(None, InvalidRequest), ({"a": 1}, InvalidRequest), (b"x" * (65 << 20), TooLarge)]
)
def test_a_message_that_cannot_be_sent_is_refused(message: object, error: type[CulverError]) -> None:
    async def scenario() -> None:
        channels = Channels(NOWHERE)
        with pytest.raises(error) as caught:
            await channels.publish("a", message)  # type: ignore[arg-type]
        assert caught.value.field == "message"

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "url", ["redis://127.0.0.1:6379", "127.0.0.1:8500", "ftp://host", "http://", "http://a:0", "http://a?b"]
)
def test_a_url_of_no_service_is_refused_at_once(url: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        Channels(url)
    assert caught.value.field == "url"
    with pytest.raises(InvalidRequest, match="not an encoding"):
        Channels(NOWHERE, encoding="klingon")


@pytest.mark.parametrize(
    ("status", "body", "error", "words"),
    [
        ("404 Not Found", b"", RequestRefused, "not a channel service: it answers with HTTP 404"),
        ("200 OK", b"<html>", RequestRefused, "not a channel service: its answer cannot be read"),
        ("200 OK", b"{}", RequestRefused, "cannot be read"),
        ("200 OK", b'{"version":1,"servers":[],"homes":[],"secret":"*"}', RequestRefused, "cannot be read"),
        ("200 OK", b'{"version":1,"servers":[],"homes":[],"secret":""}', ConnectionFailed, "no servers yet"),
        ("503 Service Unavailable", b"", ConnectionFailed, "not ready"),
    ],
)
def test_what_is_not_a_service_is_named_as_such(
    status: str, body: bytes, error: type[CulverError], words: str
) -> None:
    async def scenario() -> None:
        async with http_server(lambda: body, status) as url:
            channels = Channels(url)
            pubsub = channels.pubsub()
            for refused in (channels.publish("a", "b"), pubsub.subscribe("a"), channels.ping()):
                with pytest.raises(error, match=words):
                    await refused
            assert not pubsub.subscribed
            await channels.aclose()

    asyncio.run(scenario())


def test_a_service_that_comes_later_is_found_by_the_next_call(tmp_path: Path) -> None:
    async def scenario() -> None:
        channels = Channels(NOWHERE)
        with pytest.raises(ConnectionFailed, match="culver channels serve"):
            await channels.publish("a", "b")
        await channels.aclose()
        async with listed_servers(tmp_path) as service:
            answers = [b"", msgspec.json.encode(directory_of(service.ring))]
            async with http_server(lambda: answers.pop(0)) as url:
                channels = Channels(url)
                with pytest.raises(RequestRefused):
                    await channels.publish("a", "b")
                assert await channels.publish("a", "b") == 0
                await channels.aclose()

    asyncio.run(scenario())


def test_a_wrong_password_is_an_error_of_the_first_call(tmp_path: Path) -> None:
    async def scenario() -> None:
        settings = LocalServerSettings(program=PROGRAMS["valkey"], password="right")
        async with listed_servers(tmp_path, settings=settings) as service:
            async with Channels(service.url, password="right") as channels:
                assert await channels.ping()
                assert await channels.publish("a", "b") == 0
            for password in (None, "wrong"):
                async with Channels(service.url, password=password) as channels:
                    pubsub = channels.pubsub()
                    for refused in (
                        pubsub.subscribe("a"),
                        pubsub.psubscribe("a"),
                        channels.publish("a", "b"),
                        channels.publish("a", "b"),
                        channels.ping(),
                    ):
                        with pytest.raises(ServerAccessDenied, match="password"):
                            await refused
                    assert (pubsub.channels, pubsub.patterns) == ({}, {})
                    assert await service.clients(1) == []

    asyncio.run(scenario())


def test_a_channel_that_is_forbidden_is_an_error_of_its_reader_and_others_go_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        rule = "alice on >secret ~* +@all resetchannels &ok* &__culver:*"
        settings = LocalServerSettings(program=PROGRAMS["valkey"], users=(rule,))
        async with (
            listed_servers(tmp_path, settings=settings) as service,
            Channels(service.url, username="alice", password="secret") as channels,
            channels.pubsub() as pubsub,
        ):
            with pytest.raises(ServerAccessDenied, match="NOPERM"):
                await channels.publish("forbidden", "x")
            await pubsub.subscribe("ok-1", "forbidden", "ok-2")
            await pubsub.psubscribe("for*")
            happened: list[object] = []
            while len(happened) < 4:
                try:
                    message = await pubsub.get_message(timeout=5)
                    assert message is not None
                    happened.append(message["channel"])
                except ServerAccessDenied as error:
                    happened.append("NOPERM" in str(error))
            assert sorted(map(str, happened)) == ["True", "True", "b'ok-1'", "b'ok-2'"]
            assert (sorted(pubsub.channels), pubsub.patterns) == ([b"ok-1", b"ok-2"], {})
            assert await channels.publish("ok-2", "x") == 1
            message = await pubsub.get_message(timeout=5)
            assert message is not None
            assert message["data"] == b"x"

    asyncio.run(scenario())


def test_a_user_who_may_not_read_the_plan_is_told_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        settings = LocalServerSettings(program=PROGRAMS["valkey"], users=("alice on >secret &* +@all",))
        async with (
            listed_servers(tmp_path, settings=settings) as service,
            Channels(service.url, username="alice", password="secret") as channels,
            channels.pubsub() as pubsub,
        ):
            await pubsub.subscribe("a")
            with pytest.raises(ServerAccessDenied, match="NOPERM"):
                await pubsub.get_message(timeout=5)
            assert not pubsub.subscribed

    asyncio.run(scenario())


def test_a_server_that_is_not_redis_is_named_as_such() -> None:
    async def scenario() -> None:
        async with (
            strange_server(scripted(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as url,
            client_of(url) as client,
        ):
            with pytest.raises(ServerUnsuitable, match="speaks HTTP"):
                await client.publish("a", "b")
            with pytest.raises(ServerUnsuitable, match="speaks HTTP"):
                await client.pubsub().subscribe("a")

    asyncio.run(scenario())


def test_a_server_that_does_not_answer_ends_a_publication_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("culver.channels.channel_connections._CONNECT_SECONDS", 0.2)

    async def scenario() -> None:
        async with strange_server(silent) as url, client_of(url, publish_timeout_seconds=0.2) as client:
            with pytest.raises(ConnectionFailed, match=r"no answer from server \[1\] within 0.2 s"):
                await client.publish("a", "b")
            pubsub = client.pubsub()
            with pytest.raises(ConnectionFailed, match="no connection to a server"):
                await pubsub.subscribe("a")
            assert not pubsub.subscribed
        async with client_of("redis://127.0.0.1:1", publish_timeout_seconds=0.2) as client:
            with pytest.raises(ConnectionFailed, match=r"no connection to redis://127\.0\.0\.1:1"):
                await client.publish("a", "b")

    asyncio.run(scenario())


def test_a_closed_client_says_so_to_callers_and_readers(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with listed_servers(tmp_path) as service:
            channels = Channels(service.url)
            pubsub, idle = channels.pubsub(), channels.pubsub()
            await pubsub.subscribe("a")
            assert await pubsub.get_message(timeout=5)
            reader = asyncio.create_task(pubsub.get_message(timeout=None))
            await settled()
            await channels.aclose()
            await channels.aclose()
            for closed in (
                reader,
                pubsub.get_message(),
                pubsub.subscribe("a"),
                idle.subscribe("a"),
                channels.publish("a", "b"),
                channels.ping(),
            ):
                with pytest.raises(ConnectionFailed, match="closed"):
                    await closed
            await pubsub.aclose()

    asyncio.run(scenario())


def test_a_publication_that_waits_fails_when_its_client_closes() -> None:
    async def scenario() -> None:
        async with strange_server(silent) as url, client_of(url) as client:
            publication = asyncio.create_task(client.publish("a", "b"))
            await settled()
            await client.aclose()
            with pytest.raises(ConnectionFailed, match="closed"):
                await publication

    asyncio.run(scenario())


@pytest.mark.parametrize("servers", [1, 3])
def test_clients_of_a_process_share_two_connections_to_each_server(tmp_path: Path, servers: int) -> None:
    async def scenario() -> None:
        async with listed_servers(tmp_path, servers) as service:
            clients = [Channels(service.url, decode_responses=number > 1) for number in range(4)]
            pubsubs = [client.pubsub(ignore_subscribe_messages=True) for client in clients for _ in range(2)]
            for number, pubsub in enumerate(pubsubs):
                await pubsub.subscribe("all", f"own-{number}")
                await pubsub.psubscribe("pattern-*")
            for client in clients:
                for number in range(20):
                    await client.publish(f"other-{number}", "x")
            for server in service.links:
                names = sorted(client["name"].rpartition("-")[2] for client in await service.clients(server))
                assert names == ["publish", "subscribe"]
            assert await clients[0].publish("all", "hello") == 1

            async def heard(number: int) -> object:
                while (message := await pubsubs[number].get_message(timeout=5)) is None:
                    pass
                return message["data"]

            assert [await heard(number) for number in range(8)] == [b"hello"] * 4 + ["hello"] * 4
            await clients[0].aclose()
            assert await clients[1].publish("all", "again") == 1
            assert [await heard(number) for number in range(2, 8)] == [b"again"] * 2 + ["again"] * 4
            for client in clients[1:]:
                await client.aclose()

            async def all_gone() -> bool:
                return not any([await service.clients(server) for server in service.links])

            await until(all_gone)

    asyncio.run(scenario())


def test_a_second_reader_is_confirmed_alone_and_keeps_the_channel(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with listed_servers(tmp_path) as service, Channels(service.url) as channels:
            first, second = channels.pubsub(), channels.pubsub()
            for pubsub in (first, second):
                await pubsub.subscribe("a")
                message = await pubsub.get_message(timeout=5)
                assert message is not None
                assert (message["type"], message["data"]) == ("subscribe", 1)
            await first.unsubscribe("a")
            assert await channels.publish("a", "x") == 1
            message = await second.get_message(timeout=5)
            assert message is not None
            assert message["data"] == b"x"
            await first.get_message()
            assert await first.get_message() is None
            await second.aclose()
            assert await channels.pubsub_numsub("a") == [(b"a", 0)]

    asyncio.run(scenario())


def test_clients_with_other_credentials_or_a_wish_for_it_have_their_own_connections(tmp_path: Path) -> None:
    async def scenario() -> None:
        settings = LocalServerSettings(program=PROGRAMS["valkey"], users=("alice on >secret ~* &* +@all",))
        async with (
            listed_servers(tmp_path, settings=settings) as service,
            Channels(service.url) as one,
            Channels(service.url) as same,
            Channels(service.url, own_connections=True) as own,
            Channels(service.url, username="alice", password="secret") as alice,
        ):
            numbers = [await client.publisher_id() for client in (one, same, own, alice)]
            assert numbers[0] == numbers[1]
            assert len(set(numbers)) == 3

    asyncio.run(scenario())


def test_publications_beyond_the_bounds_wait_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("culver.channels.channel_connections._MOST_UNFINISHED", 50)
    monkeypatch.setattr("culver.channels.channel_connections._MOST_UNFINISHED_BYTES", 10_000)
    most = 0
    inside = ChannelConnections._finish

    def watched(self: ChannelConnections, done: object) -> None:
        nonlocal most
        most = max(most, len(self._unfinished))
        inside(self, done)  # type: ignore[arg-type]

    monkeypatch.setattr(ChannelConnections, "_finish", watched)

    async def scenario() -> None:
        async with listed_servers(tmp_path) as service, Channels(service.url) as channels:
            pubsub = channels.pubsub(ignore_subscribe_messages=True)
            await pubsub.subscribe("a")
            await until(lambda: channels.publish("a", "first"))
            sizes = [1_000 if number % 10 == 0 else 1 for number in range(1_000)]
            payloads = [b"%d:" % number + b"x" * size for number, size in enumerate(sizes)]
            await asyncio.gather(*(channels.publish("a", payload) for payload in payloads))
            got: list[bytes] = []
            while len(got) < len(payloads):
                message = await pubsub.get_message(timeout=5)
                if message is not None and message["data"] != b"first":
                    got.append(message["data"])
            assert got == payloads
            cancelled = [asyncio.create_task(channels.publish("a", b"x" * 5_000)) for _ in range(10)]
            await asyncio.sleep(0)
            for task in cancelled[2:]:
                task.cancel()
            assert await channels.publish("a", "last") == 1

    asyncio.run(scenario())
    assert 40 <= most <= 51


def test_large_messages_at_once_do_not_break_the_connection(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with listed_servers(tmp_path) as service, Channels(service.url) as channels:
            data = b"x" * (4 * MEGABYTE)
            assert sum(await asyncio.gather(*(channels.publish("a", data) for _ in range(80)))) == 0

    asyncio.run(scenario())
