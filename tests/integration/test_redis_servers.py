"""Links to real servers: Valkey 9.1 and Redis 6.2 from their wheels."""

import asyncio
import contextlib
import os
import signal
import ssl
import time
from pathlib import Path

import pytest
import uvloop

from culver.channels.servers.local_servers import LocalServerSettings
from culver.channels.servers.redis_address import ServerAccess
from culver.channels.servers.redis_link import LinkSettings, Push, RedisLink
from culver.errors import (
    CommandRefused,
    ServerAccessDenied,
    ServerBusy,
    ServerError,
    ServerTlsFailed,
    ServerUnreachable,
    ServerUnsuitable,
)
from support.redis_servers import (
    PROGRAMS,
    make_certificate,
    one_server,
    relay_to,
    showing,
    strange_server,
)
from support.severable import severable
from support.until import until

MEGABYTE = 1 << 20


@pytest.fixture(params=list(PROGRAMS))
def settings(request: pytest.FixtureRequest) -> LocalServerSettings:
    return LocalServerSettings(program=PROGRAMS[request.param])


@pytest.fixture(autouse=True)
def the_loop_of_the_services(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio, "run", uvloop.run)


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def test_one_connection_subscribes_publishes_and_asks(tmp_path: Path, settings: LocalServerSettings) -> None:
    async def scenario() -> None:
        got: list[Push] = []
        async with one_server(tmp_path, settings) as (_, url), RedisLink(url, got.extend, name="me") as link:
            assert link.version.startswith(("9.", "6.2"))
            await link.request((b"SUBSCRIBE", b"a", b"b"))
            await link.request((b"PSUBSCRIBE", b"a*"))
            assert await link.request((b"PUBLISH", b"a", b"hello")) == 2
            assert await link.request((b"CLIENT", b"GETNAME")) == b"me"
            assert await link.request((b"HSET", b"h", b"f", b"v")) == 1
            assert await link.request((b"HGETALL", b"h")) == {b"f": b"v"}
            assert await link.request((b"GET", b"nothing")) is None
            await link.request((b"UNSUBSCRIBE", b"a", b"never"))
            assert await link.request((b"PUBSUB", b"NUMSUB", b"a", b"b")) == [b"a", 0, b"b", 1]
            with pytest.raises(CommandRefused, match="WRONGTYPE"):
                await link.request((b"GET", b"h"))
        assert got == [
            [b"subscribe", b"a", 1],
            [b"subscribe", b"b", 2],
            [b"psubscribe", b"a*", 3],
            [b"message", b"a", b"hello"],
            [b"pmessage", b"a*", b"a", b"hello"],
            [b"unsubscribe", b"a", 2],
            [b"unsubscribe", b"never", 2],
        ]

    asyncio.run(scenario())


def test_ten_thousand_requests_at_once_are_answered_in_order(
    tmp_path: Path, settings: LocalServerSettings
) -> None:
    async def scenario() -> None:
        replies: list[object] = []
        async with one_server(tmp_path, settings) as (_, url), RedisLink(url) as link:
            for number in range(10_000):
                link.send((b"ECHO", b"%d" % number), replies.append)
            await link.drain()
            await until(lambda: len(replies) == 10_000)
            awaited = await asyncio.gather(*(link.request((b"ECHO", b"%d" % each)) for each in range(10_000)))
        assert replies == awaited == [b"%d" % number for number in range(10_000)]

    asyncio.run(scenario())


@pytest.mark.parametrize("name", [b"n" * MEGABYTE, b"", b"\x00\xff\r\n \t*[", "größe".encode()])
def test_long_empty_and_binary_names_and_payloads_arrive_whole(
    tmp_path: Path, settings: LocalServerSettings, name: bytes
) -> None:
    async def scenario() -> None:
        got: list[Push] = []
        payload = os.urandom(MEGABYTE)
        async with one_server(tmp_path, settings) as (_, url), RedisLink(url, got.extend) as link:
            await link.request((b"SUBSCRIBE", name, name + b"2"))
            assert await link.request((b"PUBLISH", name, payload)) == 1
            assert await link.request((b"PUBLISH", name, b"")) == 1
            assert await link.request((b"UNSUBSCRIBE", name)) is None
        messages = [push for push in got if push[0] == b"message"]
        assert messages == [[b"message", name, payload], [b"message", name, b""]]

    asyncio.run(scenario())


def test_killed_server_is_noticed_at_once_and_can_be_reached_again_after_its_restart(
    tmp_path: Path, settings: LocalServerSettings
) -> None:
    async def scenario() -> None:
        lost: list[ServerError] = []
        async with one_server(tmp_path, settings) as (pool, url), RedisLink(url, on_lost=lost.append) as link:
            killed = pool.process_id(1)
            os.kill(killed, signal.SIGKILL)
            await until(lambda: lost, timeout_seconds=1.0)
            assert isinstance(lost[0], ServerUnreachable)
            assert not link.is_open
            await until(lambda: pool.crashed() == {1})
            with pytest.raises(ServerUnreachable, match="no connection to"):
                await RedisLink(url).connect()
            await pool.restart(1)
            assert pool.crashed() == frozenset()
            assert pool.process_id(1) != killed
            async with RedisLink(url) as again:
                assert await again.request((b"PING",)) == b"PONG"
        assert len(lost) == 1

    asyncio.run(scenario())


def test_half_open_connection_is_noticed_within_two_seconds(tmp_path: Path) -> None:
    async def scenario() -> None:
        lost: list[ServerError] = []
        async with one_server(tmp_path) as (_, url), severable(port_of(url)) as relay:
            async with RedisLink(relay.url.replace("http", "redis"), on_lost=lost.append) as link:
                assert await link.request((b"PING",)) == b"PONG"
                relay.flowing.clear()
                started = time.monotonic()
                await until(lambda: lost, timeout_seconds=4.0)
                assert 1.0 < time.monotonic() - started < 3.0
            relay.flowing.set()
        (reason,) = lost
        assert isinstance(reason, ServerUnreachable)
        assert "silent for 2 s" in reason.message

    asyncio.run(scenario())


def test_stopped_process_is_noticed_and_restarted(tmp_path: Path, settings: LocalServerSettings) -> None:
    async def scenario() -> None:
        lost: list[ServerError] = []
        quick = LinkSettings(silence_seconds=0.4, connect_seconds=0.4)
        async with one_server(tmp_path, settings) as (pool, url):
            async with RedisLink(url, on_lost=lost.append, settings=quick):
                os.kill(pool.process_id(1), signal.SIGSTOP)
                await until(lambda: lost)
            with pytest.raises(ServerUnreachable, match="has not answered"):
                await RedisLink(url, settings=quick).connect()
            assert pool.crashed() == frozenset()
            await pool.restart(1)
            async with RedisLink(url, settings=quick) as link:
                assert await link.request((b"PING",)) == b"PONG"

    asyncio.run(scenario())


def test_wrong_and_missing_passwords_are_denied(tmp_path: Path, settings: LocalServerSettings) -> None:
    awkward = 'a "quoted" \\ größe\n'
    rules = ("alice on >wonder resetchannels &a* ~* +@all", "bob on nopass ~* +@all")
    protected = LocalServerSettings(program=settings.program, password=awkward, users=rules)

    async def scenario() -> None:
        async with one_server(tmp_path, protected) as (_, url):
            async with RedisLink(url, access=ServerAccess(password=awkward)) as link:
                assert await link.request((b"ACL", b"WHOAMI")) == b"default"
            async with RedisLink(url.replace("//", "//alice:wonder@")) as link:
                assert await link.request((b"ACL", b"WHOAMI")) == b"alice"
                assert await link.request((b"SUBSCRIBE", b"a1")) is None
                with pytest.raises(ServerAccessDenied, match="NOPERM"):
                    await link.request((b"SUBSCRIBE", b"a2", b"b"))
                with pytest.raises(ServerAccessDenied, match="NOPERM"):
                    await link.request((b"PUBLISH", b"b", b""))
                assert await link.request((b"PING",)) == b"PONG"
            async with RedisLink(url.replace("//", "//bob@"), access=ServerAccess("alice", "wonder")) as link:
                assert await link.request((b"ACL", b"WHOAMI")) == b"bob"
            with pytest.raises(ServerAccessDenied, match="wants a password"):
                await RedisLink(url).connect()
            with pytest.raises(ServerAccessDenied, match="refuses the user name or password") as caught:
                await RedisLink(url, access=ServerAccess("alice", "guess")).connect()
            assert "guess" not in str(caught.value)
            assert not caught.value.retryable

    asyncio.run(scenario())


def test_server_with_too_many_clients_is_busy(tmp_path: Path, settings: LocalServerSettings) -> None:
    crowded = LocalServerSettings(program=settings.program, max_clients=2)

    async def scenario() -> None:
        async with one_server(tmp_path, crowded) as (_, url), contextlib.AsyncExitStack() as links:

            async def crowd() -> None:
                for _ in range(3):
                    await links.enter_async_context(RedisLink(url))

            with pytest.raises(ServerBusy, match="max number of clients") as caught:
                await crowd()
            assert caught.value.retryable

    asyncio.run(scenario())


def test_unix_socket_is_an_address_too(tmp_path: Path, settings: LocalServerSettings) -> None:
    path = tmp_path / "s"
    options = (("unixsocket", str(path)),)

    async def scenario() -> None:
        listening = LocalServerSettings(program=settings.program, options=options)
        async with one_server(tmp_path, listening), RedisLink(f"unix://{path}") as link:
            assert await link.request((b"PING",)) == b"PONG"

    asyncio.run(scenario())


@pytest.mark.parametrize("size", [1000, MEGABYTE])
def test_subscriber_that_reads_too_slowly_is_cut_off_and_told(
    tmp_path: Path, settings: LocalServerSettings, size: int
) -> None:
    small = LocalServerSettings(program=settings.program, output_buffer_bytes=4 * MEGABYTE)

    async def scenario() -> None:
        lost: list[ServerError] = []
        async with (
            one_server(tmp_path, small) as (_, url),
            RedisLink(url) as publisher,
            RedisLink(url, on_lost=lost.append) as slow,
        ):
            await slow.request((b"SUBSCRIBE", b"a"))
            slow.pause_reading()
            command = (b"PUBLISH", b"a", bytes(size))

            async def cut_off() -> bool:
                return 0 in await asyncio.gather(
                    *(publisher.request(command) for _ in range(MEGABYTE // size))
                )

            await until(cut_off)
            slow.resume_reading()
            await until(lambda: lost)
        assert isinstance(lost[0], ServerUnreachable)

    asyncio.run(scenario())


def test_tls_with_a_trusted_certificate_works_and_every_mismatch_is_named(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    trusted = ServerAccess(tls=ssl.create_default_context(cafile=certificate))
    quick = LinkSettings(connect_seconds=0.5)

    async def scenario() -> None:
        # The servers of the wheels are built without TLS, so a relay ends it.
        async with (
            one_server(tmp_path / "servers") as (_, plain),
            strange_server(relay_to(port_of(plain)), showing(certificate, key)) as encrypted,
        ):
            got: list[Push] = []
            async with RedisLink(encrypted, got.extend, access=trusted) as link:
                await link.request((b"SUBSCRIBE", b"a"))
                assert await link.request((b"PUBLISH", b"a", bytes(MEGABYTE))) == 1
                await until(lambda: len(got) == 2)
            assert got[-1] == [b"message", b"a", bytes(MEGABYTE)]
            with pytest.raises(ServerTlsFailed, match="is not trusted: self-signed certificate"):
                await RedisLink(encrypted).connect()
            with pytest.raises(ServerTlsFailed, match="is not trusted"):
                await RedisLink(encrypted.replace("127.0.0.1", "localhost"), access=trusted).connect()
            with pytest.raises((ServerUnsuitable, ServerUnreachable), match="TLS"):
                await RedisLink(encrypted.replace("rediss", "redis"), settings=quick).connect()
            with pytest.raises((ServerTlsFailed, ServerUnreachable), match=r"TLS|connection"):
                await RedisLink(plain.replace("redis", "rediss"), access=trusted, settings=quick).connect()

    asyncio.run(scenario())


def test_web_server_is_not_a_redis_server() -> None:
    async def web(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()

    async def scenario() -> None:
        async with strange_server(web) as url:
            with pytest.raises(ServerUnsuitable, match="it speaks HTTP"):
                await RedisLink(url).connect()

    asyncio.run(scenario())
