"""Connections beyond the limits are refused with a reason, and those that are open do not suffer."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from culver.config import GatewaySettings
from culver.gateway import connection_limits as limits_module
from culver.gateway.connection_limits import ConnectionLimits, connection_limits
from culver.gateway.server.gateway_server import GatewayServer
from support.fake_site import FakeSite
from support.gateway import gateway_settings, run, served
from support.until import until

pytestmark = pytest.mark.timeout(30)

HANDSHAKE = (
    b"GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


def test_the_limits_count_what_is_open() -> None:
    limits = ConnectionLimits(most=3, most_of_address=2, most_spare=1)
    first, second, third = (limits.admit("a") for _ in range(3))
    assert first.refusal is None
    assert second.refusal is None
    assert third.refusal is not None
    assert (third.refusal.field, third.kept) == ("connections_per_address", True)
    assert not limits.admit("a").kept
    assert limits.admit("b").refusal is None
    full = limits.admit("c")
    assert full.refusal is not None
    assert (full.refusal.field, full.kept) == ("max_connections", False)
    for _ in range(2):
        first.release()
        third.release()
    again = limits.admit("a")
    assert again.refusal is None
    assert limits.admit("c").refusal is not None


def settled(monkeypatch: pytest.MonkeyPatch, room: int, **settings: Any) -> dict[str, Any]:
    monkeypatch.setattr(limits_module, "free_handles", lambda: room)
    return vars(connection_limits(GatewaySettings(**settings)))


def test_limits_follow_from_the_free_handles_unless_they_are_set(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    free = settled(monkeypatch, 800)
    assert (free["_most"], free["_most_of_address"], free["_most_spare"]) == (700, 350, 100)
    assert settled(monkeypatch, 10**6)["_most"] == 65_536
    assert settled(monkeypatch, -50)["_most"] == 8
    own = settled(monkeypatch, 800, max_connections=20, connections_per_address=15)
    assert (own["_most"], own["_most_of_address"]) == (20, 15)
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        assert settled(monkeypatch, 800, max_connections=5_000)["_most"] == 700
    assert "leaves room for 700 connections" in caplog.text


class RawConnection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def ask(self, path: str = "/v1/subscriptions") -> tuple[int, dict[str, Any]]:
        self.writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        return await self.answer()

    async def answer(self) -> tuple[int, dict[str, Any]]:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
        return int(head.split()[1]), json.loads(await self.reader.readexactly(length))

    async def at_end(self) -> bool:
        return await self.reader.read() == b""


@asynccontextmanager
async def connected(server: GatewayServer, address: str = "127.0.0.1") -> AsyncIterator[RawConnection]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, local_addr=(address, 0))
    try:
        yield RawConnection(reader, writer)
    finally:
        writer.transport.abort()


def test_beyond_the_limit_of_an_address_only_operators_are_answered_and_others_are_served() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings(max_connections=3, connections_per_address=2))
        async with served(site) as server, connected(server) as one, connected(server) as two:
            assert (await one.ask())[0] == (await two.ask())[0] == 200
            async with connected(server) as three:
                status, problem = await three.ask()
                assert (status, problem["field"]) == (503, "connections_per_address")
                assert "2 connections of your address" in problem["detail"]
                assert await three.at_end()
            async with connected(server) as four:
                assert (await four.ask("/readyz"))[0] == 200
                assert await four.at_end()
            assert (await one.ask())[0] == 200
            async with connected(server, "127.0.0.2") as other, connected(server, "127.0.0.3") as beyond:
                assert (await other.ask())[0] == 200
                status, problem = await beyond.ask()
                assert (status, problem["field"]) == (503, "max_connections")

    run(scenario())


def test_a_websocket_counts_until_it_ends() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings(connections_per_address=1))
        async with served(site) as server:
            async with connected(server) as socket:
                socket.writer.write(HANDSHAKE)
                assert b" 101 " in await socket.reader.readuntil(b"\r\n\r\n")
                async with connected(server) as second:
                    second.writer.write(HANDSHAKE)
                    assert (await second.answer())[1]["field"] == "connections_per_address"

            async def is_admitted() -> bool:
                async with connected(server) as third:
                    return (await third.ask())[0] == 200

            await until(is_admitted)

    run(scenario())


def test_when_all_spare_connections_are_taken_a_further_one_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits_module, "_LEAST", 1)
    monkeypatch.setattr(limits_module, "free_handles", lambda: 2)

    async def scenario() -> None:
        async with (
            served(FakeSite(gateway_settings())) as server,
            connected(server) as served_one,
            connected(server) as spare,
            connected(server) as further,
        ):
            status, problem = await further.answer()  # without having asked
            assert (status, problem["field"]) == (503, "max_connections")
            assert await further.at_end()
            assert (await spare.ask("/healthz"))[0] == 200
            assert (await served_one.ask())[0] == 200

    run(scenario())


async def drip(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0)


def test_a_body_that_drips_on_after_the_answer_is_cut() -> None:
    async def scenario() -> None:
        async with (
            served(FakeSite(gateway_settings()), head_seconds=0.2) as server,
            connected(server) as client,
        ):
            client.writer.write(
                b"POST /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999999999\r\n\r\n"
            )
            assert (await client.answer())[0] == 404
            with pytest.raises(ConnectionError):
                await drip(client.writer)

    run(scenario())
