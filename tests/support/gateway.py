"""Running the gateway in tests: in memory through ASGI, or on a real socket."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import uvloop
from websockets.asyncio.client import ClientConnection, connect

from culver.config import Settings
from culver.gateway.app import create_app
from culver.gateway.server.gateway_server import GatewayServer
from culver.site import RunningSite
from support.fake_site import FakeSite


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """Run one test's coroutine on the loop that production uses."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario)


def gateway_settings(settings: Settings | None = None, **changes: Any) -> Settings:
    """Settings with a free port and other changes of the gateway's section."""
    settings = settings or Settings()
    return replace(settings, gateway=replace(settings.gateway, **{"port": 0, **changes}))


@asynccontextmanager
async def memory_client(site: FakeSite, **headers: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client that calls the application without a socket; for requests that end."""
    transport = httpx.ASGITransport(create_app(site), client=("192.0.2.1", 50_000))
    async with httpx.AsyncClient(transport=transport, base_url="http://site", headers=headers) as client:
        yield client


@asynccontextmanager
async def served(
    site: FakeSite | RunningSite,
    *,
    heartbeat_seconds: float = 15.0,
    head_seconds: float = 30.0,
    stall_seconds: float = 60.0,
) -> AsyncIterator[GatewayServer]:
    """A gateway on a free port of this machine."""
    app = create_app(site, heartbeat_seconds=heartbeat_seconds)
    server = GatewayServer(app, site.settings.gateway, head_seconds=head_seconds, stall_seconds=stall_seconds)
    async with server:
        yield server


@asynccontextmanager
async def socket_to(server: GatewayServer, **options: Any) -> AsyncIterator[ClientConnection]:
    address = server.url.replace("http", "ws", 1) + "/v1/ws"
    async with connect(address, proxy=None, compression=None, max_size=None, **options) as socket:
        yield socket
