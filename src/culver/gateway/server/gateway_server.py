"""The gateway on a socket: uvicorn, run by whoever opens it."""

import asyncio
import contextlib
import errno
import socket
from collections.abc import Generator
from typing import Self

import uvicorn
from starlette.applications import Starlette

from culver.config import GatewaySettings
from culver.errors import InvalidConfiguration
from culver.gateway.connection_limits import connection_limits
from culver.gateway.gateway_context import Gateway
from culver.gateway.server.http_protocol import HEAD_SECONDS, STALL_SECONDS, HttpProtocol
from culver.gateway.server.websocket_protocol import WebSocketProtocol

_GRACE_SECONDS = 1
_KEEP_ALIVE_SECONDS = 15
_PING_SECONDS = 20.0
_PONG_SECONDS = 40.0
_BACKLOG = 2048


class GatewayServer:
    """An async context manager: entering it binds, listens and answers, leaving it stops. It handles no signals.

    Stopping takes at most about two seconds: WebSocket connections close with 1012, event streams end, long polls
    get a 503, and connections that are still open after that are cut.
    """

    def __init__(
        self,
        app: Starlette,
        settings: GatewaySettings,
        *,
        listener: socket.socket | None = None,
        head_seconds: float = HEAD_SECONDS,
        stall_seconds: float = STALL_SECONDS,
    ) -> None:
        """`listener` is a socket that listens already; without one, the settings name the address."""
        self._settings = settings
        self._listener = listener
        self._gateway: Gateway = app.state.gateway
        self._server = _Server(_config(app, settings, head_seconds, stall_seconds))
        self._socket: socket.socket | None = None
        self._task: asyncio.Task[None] | None = None
        self.port = settings.port  # from the start on, the one that it listens on

    @property
    def url(self) -> str:
        host = self._settings.host
        host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    async def __aenter__(self) -> Self:
        """Returns once requests are answered. Raises InvalidConfiguration where the address cannot be used."""
        self._socket = self._listener or bind(self._settings)
        self.port = self._socket.getsockname()[1]
        self._task = asyncio.create_task(self._server.serve([self._socket]), name="gateway")
        started = asyncio.create_task(self._server.running.wait())
        try:
            await asyncio.wait([self._task, started], return_when=asyncio.FIRST_COMPLETED)
        finally:
            started.cancel()
        if self._task.done():
            self._socket.close()
            self._task.result()
        return self

    async def stop(self) -> None:
        """Calling it twice changes nothing."""
        if self._task is None:
            return
        self._gateway.stop()
        self._server.leave()
        try:
            await asyncio.wait([self._task])
        finally:
            for connection in list(self._server.server_state.connections):
                connection.transport.abort()
            if self._socket is not None:
                self._socket.close()

    async def __aexit__(self, *error: object) -> None:
        await self.stop()


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.running = asyncio.Event()
        self._leaving = asyncio.Event()

    def leave(self) -> None:
        self.should_exit = True
        self._leaving.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield  # signals belong to the owner of the process

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.running.set()

    async def main_loop(self) -> None:
        # uvicorn polls ten times a second whether to exit; this waits for it. A tick of 0 renews the date header.
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._leaving.wait()


def _config(app: Starlette, settings: GatewaySettings, head: float, stall: float) -> uvicorn.Config:
    class ConfiguredHttp(HttpProtocol):
        head_seconds = head
        stall_seconds = stall
        limits = connection_limits(settings)

    class ConfiguredWebSocket(WebSocketProtocol):
        stall_seconds = stall

    # uvicorn's own limit of connections answers in plain text and does not count those of WebSockets.
    return uvicorn.Config(
        app,
        http=ConfiguredHttp,
        ws=ConfiguredWebSocket,
        ws_max_size=settings.max_message_bytes,
        ws_ping_interval=_PING_SECONDS,
        ws_ping_timeout=_PONG_SECONDS,
        ws_per_message_deflate=False,
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )


def bind(settings: GatewaySettings) -> socket.socket:
    """Open a socket that listens where the settings say. Raises InvalidConfiguration."""
    if not 0 <= settings.port <= 65_535:
        raise InvalidConfiguration(
            f"gateway.port must be from 0 to 65535, it is {settings.port}", field="gateway.port"
        )
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host or None, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as exc:
        raise InvalidConfiguration(
            f"gateway.host {settings.host!r} is not an address of this machine: {exc}", field="gateway.host"
        ) from exc
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError as exc:
        listener.close()
        raise _cannot_bind(settings, exc) from exc
    return listener


def _cannot_bind(settings: GatewaySettings, exc: OSError) -> InvalidConfiguration:
    if exc.errno == errno.EADDRINUSE:
        return InvalidConfiguration(
            f"port {settings.port} of {settings.host} is in use; choose another with --port or gateway.port",
            field="gateway.port",
        )
    if exc.errno == errno.EACCES:
        return InvalidConfiguration(
            f"this user may not listen on port {settings.port}; choose one above 1023", field="gateway.port"
        )
    return InvalidConfiguration(
        f"cannot listen on {settings.host} port {settings.port}: {exc.strerror}", field="gateway.host"
    )
