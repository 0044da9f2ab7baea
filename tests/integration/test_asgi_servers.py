"""`/v1/ws` under ASGI servers other than the gateway's own: uvicorn as it comes, and bare ASGI messages."""

import asyncio
import json
import socket as sockets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from culver.gateway.app import create_app
from culver.gateway.server.http_protocol import HttpProtocol
from culver.gateway.server.websocket_protocol import WebSocketProtocol
from culver.gateway.websocket.message_sockets import Disconnected, accept_messages
from support.fake_site import FakeSite
from support.gateway import gateway_settings, run
from support.until import until

pytestmark = pytest.mark.timeout(60)


@asynccontextmanager
async def stock_uvicorn(site: FakeSite) -> AsyncIterator[str]:
    """The address of the application under uvicorn with its default protocols."""
    app = create_app(site)
    async with uvicorn_with(app) as url:
        try:
            yield url + "/v1/ws"
        finally:
            app.state.gateway.stop()


@asynccontextmanager
async def uvicorn_with(app: ASGIApp, **options: Any) -> AsyncIterator[str]:
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off", **options))
    with sockets.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(server.serve([listener]))
        try:
            await until(lambda: server.started)
            yield f"ws://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await serving


@asynccontextmanager
async def stock_socket(site: FakeSite, **options: Any) -> AsyncIterator[ClientConnection]:
    async with stock_uvicorn(site) as url, connect(url, proxy=None, **options) as socket:
        yield socket


async def ask(socket: ClientConnection, **message: Any) -> dict[str, Any]:
    await socket.send(json.dumps(message))
    return await hear(socket)


async def hear(socket: ClientConnection) -> dict[str, Any]:
    async with asyncio.timeout(10):
        answer: dict[str, Any] = json.loads(await socket.recv())
    return answer


async def close_of(socket: ClientConnection) -> int | None:
    with pytest.raises(ConnectionClosed):
        async with asyncio.timeout(10):
            await socket.recv()
    return socket.close_code


def test_events_are_published_delivered_and_acknowledged() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        async with stock_socket(site) as socket:
            made = await ask(socket, op="subscribe", ref=1, filter="n >= 0")
            live = made["subscription"]
            assert made == {"op": "subscribed", "ref": 1, "subscription": live, "since": 0}
            await socket.send(
                json.dumps({"op": "publish", "ref": 2, "events": [{"n": 1}, {"n": 2, "é": "ü"}]})
            )
            answers = sorted([await hear(socket), await hear(socket)], key=lambda answer: str(answer["op"]))
            assert answers[0]["events"][1] == {"offset": 1, "event": {"n": 2, "é": "ü"}, "to": [live]}
            assert answers[1] == {"op": "published", "ref": 2, "first_offset": 0, "next_offset": 2}
            assert (await ask(socket, op="ack", ref=3, delivery_id=f"{live}:1"))["op"] == "acknowledged"
            assert (await ask(socket, op="publish", ref=4))["code"] == "invalid_request"
            assert (await ask(socket, op="detach", ref=5, subscription=live))["op"] == "detached"
        await until(lambda: not site.open_sessions and not site.registrations)

    run(scenario())


def test_many_publications_on_their_way_are_all_answered() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        async with stock_socket(site) as socket:
            for number in range(500):
                await socket.send(json.dumps({"op": "publish", "ref": number, "events": [{"n": number}]}))
            assert [(await hear(socket))["ref"] for _ in range(500)] == list(range(500))
            assert [event.data["n"] for event in site.events] == list(range(500))

    run(scenario())


def test_binary_messages_are_refused_with_1003() -> None:
    async def scenario() -> None:
        async with stock_socket(FakeSite(gateway_settings())) as socket:
            await socket.send(b"{}")
            assert await close_of(socket) == 1003

    run(scenario())


def test_a_message_beyond_the_limit_is_refused_with_1009() -> None:
    async def scenario() -> None:
        async with stock_socket(FakeSite(gateway_settings(max_message_bytes=1_000))) as socket:
            await socket.send(json.dumps({"op": "publish", "events": [{"text": "x" * 1_000}]}))
            assert await close_of(socket) == 1009

    run(scenario())


def test_a_site_that_stops_closes_with_1012() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        async with stock_socket(site) as socket:
            await ask(socket, op="subscribe", filter="n > 0")
            site.stop()
            assert await close_of(socket) == 1012

    run(scenario())


def test_a_client_that_vanishes_leaves_nothing_behind(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        async with stock_uvicorn(site) as url:
            for _ in range(5):
                async with connect(url, proxy=None) as socket:
                    await ask(socket, op="subscribe", filter="n >= 0")
                    await socket.send('{"op": "publish", "events": [{"n": 1}]}')
                    socket.transport.abort()
            await until(lambda: not site.open_sessions and not site.registrations)

    run(scenario())
    assert "Traceback" not in caplog.text


def test_a_refused_handshake_carries_its_problem() -> None:
    async def scenario() -> None:
        async with stock_uvicorn(FakeSite(gateway_settings())) as url:
            with pytest.raises(InvalidStatus) as refused:
                await connect(url, proxy=None, origin="http://elsewhere")  # type: ignore[arg-type]
            assert refused.value.response.status_code == 403
            assert json.loads(refused.value.response.body)["field"] == "origin"

    run(scenario())


SERVERS: dict[str, dict[str, Any]] = {
    "websockets": {"ws": "websockets-sansio"},
    "wsproto": {"ws": "wsproto"},
    "own": {"http": HttpProtocol, "ws": WebSocketProtocol},
}


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """An application that accepts the subprotocol `echo` and sends every message back as what it was."""
    socket = WebSocket(scope, receive, send)
    messages = await accept_messages(socket, "echo" if "echo" in scope["subprotocols"] else None)

    def take(message: str | bytes) -> bool:
        return isinstance(message, bytes) and messages.post(message, is_binary=True)

    with suppress(Disconnected):
        while True:
            message = await messages.receive(take)
            if isinstance(message, str):
                await messages.send(message.encode())
            else:
                await messages.send(message, is_binary=True)


@pytest.mark.parametrize("kind", SERVERS)
def test_messages_of_both_kinds_and_a_subprotocol_work_under_any_server(kind: str) -> None:
    if kind == "wsproto":
        pytest.importorskip("wsproto")

    async def scenario() -> None:
        async with uvicorn_with(echo, **SERVERS[kind]) as url:
            async with connect(url, proxy=None, subprotocols=["other", "echo"]) as socket:  # type: ignore[list-item]
                assert socket.subprotocol == "echo"
                for message in ("é", b"\xff", "", b"", "x" * 70_000, b"\xfe" * 70_000, b"\xfd" * 200):
                    await socket.send(message)
                    async with asyncio.timeout(10):
                        assert await socket.recv() == message
            async with connect(url, proxy=None, subprotocols=["other"]) as socket:  # type: ignore[list-item]
                assert socket.subprotocol is None

    run(scenario())


class BareServer:
    """Exchanges ASGI messages with the application and offers no extension."""

    def __init__(self, *messages: Message) -> None:
        self._messages = [{"type": "websocket.connect"}, *messages]
        self.sent: list[Message] = []
        self.answered = asyncio.Event()

    async def receive(self) -> Message:
        if len(self._messages) == 1:
            await self.answered.wait()
        return self._messages.pop(0)

    async def send(self, message: Message) -> None:
        self.sent.append(message)
        if message["type"] != "websocket.accept":
            self.answered.set()

    async def run(self, path: str) -> None:
        headers = [(b"host", b"localhost")]
        scope: Scope = {"type": "websocket", "path": path, "query_string": b"", "headers": headers}
        await create_app(FakeSite())(scope, self.receive, self.send)


def test_the_endpoint_needs_nothing_but_asgi_messages() -> None:
    async def scenario() -> None:
        publication = '{"op": "publish", "ref": 1, "events": [{"n": 1}]}'
        server = BareServer(
            {"type": "websocket.receive", "text": publication, "bytes": None},
            {"type": "websocket.receive", "bytes": b"{}"},
        )
        await server.run("/v1/ws")
        accepted, answer, closed = server.sent
        assert accepted["type"] == "websocket.accept"
        assert json.loads(answer["text"])["op"] == "published"
        assert (closed["type"], closed["code"]) == ("websocket.close", 1003)

    run(scenario())


def test_a_server_that_cannot_refuse_with_a_response_closes_instead() -> None:
    """The extension `websocket.http.response` of ASGI is optional."""

    async def scenario() -> None:
        server = BareServer({"type": "websocket.disconnect", "code": 1006})
        await server.run("/v1/nothing")
        assert [message["type"] for message in server.sent] == ["websocket.close"]

    run(scenario())
