"""Pipelined requests: each learns that its client is gone, and a WebSocket waits for the answers."""

import asyncio
import logging

import pytest

from culver.gateway.server.http_protocol import HttpProtocol
from support.fake_site import FakeSite
from support.gateway import gateway_settings, run, served
from support.until import until

pytestmark = pytest.mark.timeout(30)

HANDSHAKE = (
    b"GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
STREAM = b"GET /v1/stream?filter=n%20%3E%200 HTTP/1.1\r\nHost: localhost\r\n\r\n"


def test_a_request_ahead_of_a_websocket_is_not_forgotten() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        async with served(site) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(STREAM)
            assert b"subscribed" in await reader.readuntil(b"\n\n")
            writer.write(HANDSHAKE)
            async with asyncio.timeout(5):
                assert b" 400 Bad Request" in await reader.read()
            await until(lambda: not site.open_sessions)
            writer.close()

    run(scenario())


def test_a_request_with_others_waiting_behind_it_learns_that_its_client_is_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        async with served(site, heartbeat_seconds=0.02) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(STREAM)
            assert b"subscribed" in await reader.readuntil(b"\n\n")
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 3)
            (protocol,) = server._server.server_state.connections
            assert isinstance(protocol, HttpProtocol)
            await until(lambda: len(protocol.pipeline) == 3)
            writer.transport.abort()
            await until(lambda: not site.open_sessions)

    run(scenario())
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
