"""No client can put a traceback into the log or break a callback, whatever it sends around a close."""

import asyncio
import contextlib
import itertools
import logging
import re
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import uvicorn
from hypothesis import given, strategies as st
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.server import ServerState
from websockets.frames import Frame, Opcode
from websockets.utils import apply_mask

from culver.gateway.server.gateway_server import GatewayServer
from culver.gateway.server.http_protocol import HttpProtocol
from culver.gateway.server.websocket_protocol import MAX_POSTED_BYTES, MAX_WAITING_BYTES, WebSocketProtocol
from culver.gateway.websocket.message_sockets import MESSAGE_SOCKET, Disconnected, MessageSocket
from support.fake_site import FakeSite
from support.gateway import gateway_settings, run, served, socket_to
from support.until import settled, until

pytestmark = pytest.mark.timeout(30)

HANDSHAKE = (
    b"GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)

TEXT, BINARY, CLOSE, PING = 1, 2, 8, 9


def offering(*values: bytes) -> bytes:
    """A handshake with these headers of subprotocols."""
    offers = b"".join(b"Sec-WebSocket-Protocol: %b\r\n" % value for value in values)
    return HANDSHAKE.removesuffix(b"\r\n") + offers + b"\r\n"


def frame(payload: bytes, opcode: int = TEXT, *, final: bool = True) -> bytes:
    """A client's frame of less than 65,536 bytes with a mask of zeros."""
    size = bytes([0x80 | len(payload)]) if len(payload) < 126 else b"\xfe" + struct.pack("!H", len(payload))
    return bytes([opcode | (0x80 if final else 0)]) + size + bytes(4) + payload


NOT_UTF8 = frame(b"\xff\xfe")
FRAGMENTS_NOT_UTF8 = frame(b"\xe2\x82", final=False) + frame(b"(", opcode=0)
NO_START = frame(b"x", opcode=0)
NO_OPCODE = frame(b"x", opcode=3)
LONG_PING = frame(b"x" * 126, PING)
FRAGMENTED_PING = frame(b"x", PING, final=False)
NORMAL_CLOSE = frame(struct.pack("!H", 1000), CLOSE)
CLOSE_OF_ONE_BYTE = frame(b"\x03", CLOSE)
CLOSE_NOT_UTF8 = frame(struct.pack("!H", 1000) + b"\xff", CLOSE)
MESSAGE = frame(b'{"op": "ping"}')

BROKEN = {
    "not UTF-8": (NOT_UTF8, 1007),
    "not UTF-8 in fragments": (FRAGMENTS_NOT_UTF8, 1007),
    "half a character at the end": (frame("€".encode()[:2]), 1007),
    "a continuation without a start": (NO_START, 1002),
    "a start within a message": (frame(b"x", final=False) + MESSAGE, 1002),
    "a binary start within a message": (frame(b"x", final=False) + frame(b"x", BINARY), 1002),
    "a text within a binary message": (frame(b"x", BINARY, final=False) + MESSAGE, 1002),
    "an unknown opcode": (NO_OPCODE, 1002),
    "a control frame that is too long": (LONG_PING, 1002),
    "a control frame in fragments": (FRAGMENTED_PING, 1002),
    "a close of one byte": (CLOSE_OF_ONE_BYTE, 1002),
    "a close whose reason is not UTF-8": (CLOSE_NOT_UTF8, 1007),
    "a close within a message": (frame(b"x", final=False) + NORMAL_CLOSE, 1002),
    "not UTF-8 after a close": (NORMAL_CLOSE + NOT_UTF8, 1000),
    "a close right after what is not UTF-8": (NOT_UTF8 + NORMAL_CLOSE, 1007),
    "a close right after messages": (MESSAGE * 20 + NORMAL_CLOSE, 1000),
}
AFTERWARDS = [
    MESSAGE, NOT_UTF8, FRAGMENTS_NOT_UTF8, NO_START, NO_OPCODE, LONG_PING, frame(b"x", PING), NORMAL_CLOSE, NOT_UTF8
]  # fmt: skip


@pytest.fixture(autouse=True)
def no_tracebacks(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fails a test during which anything is logged as an error or with a traceback; a callback that raised is
    logged by the event loop."""
    with caplog.at_level(logging.INFO):
        yield
    bad = [item for item in caplog.get_records("call") if item.exc_info or item.levelno >= logging.ERROR]
    assert [(item.name, item.getMessage(), item.exc_text) for item in bad] == []


async def opened(server: GatewayServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(HANDSHAKE)
    assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
    return reader, writer


async def read_close(reader: asyncio.StreamReader) -> int:
    """The code of the close frame, after any other short frames."""
    async with asyncio.timeout(5):
        while True:
            head = await reader.readexactly(2)
            payload = await reader.readexactly(head[1])
            if head[0] == 0x88:
                return int.from_bytes(payload[:2], "big")


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_frame_gets_its_close_code_and_later_frames_do_no_harm(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("culver.gateway.server.websocket_protocol.LINGER_SECONDS", 0.05)

    async def scenario() -> None:
        data, code = BROKEN[name]
        site = FakeSite(gateway_settings())
        async with served(site) as server:
            reader, writer = await opened(server)
            writer.write(data)
            assert await read_close(reader) == code
            for more in AFTERWARDS:
                if not writer.is_closing():  # which it is where the server has nothing to wait for
                    writer.write(more)
                await settled()
            with contextlib.suppress(ConnectionError):
                async with asyncio.timeout(5):
                    assert b"\x88" not in await reader.read(), "closed twice"
            writer.transport.abort()
            async with socket_to(server) as socket:  # the server goes on
                await socket.send('{"op": "ping"}')
                assert "pong" in str(await socket.recv())
            await until(lambda: not site.open_sessions)

    run(scenario())


def test_what_the_client_breaks_after_the_server_has_closed_does_no_harm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("culver.gateway.server.websocket_protocol.LINGER_SECONDS", 0.01)

    async def scenario() -> None:
        async with served(FakeSite(gateway_settings())) as server:
            for broken, _ in BROKEN.values():
                reader, writer = await opened(server)
                writer.write(frame(b"binary is refused", BINARY))
                assert await read_close(reader) == 1003
                writer.write(broken)
                writer.write(NOT_UTF8)
                with contextlib.suppress(ConnectionError):
                    async with asyncio.timeout(5):
                        await reader.read()
                writer.transport.abort()

    run(scenario())


@pytest.mark.parametrize(
    ("handshake", "status"),
    [
        (HANDSHAKE.replace(b"/v1/ws", b"/v1/nothing"), b"404"),
        (HANDSHAKE.replace(b"\r\nUpgrade", b"\r\nOrigin: http://other\r\nUpgrade"), b"403"),
        (HANDSHAKE.replace(b": 13", b": 12"), b"400"),
        (offering(b"not a token"), b"400"),
        (offering(b'"quoted"'), b"400"),
        (offering(b"a;b=c"), b"400"),
        (offering(b"\xc3\xa9"), b"400"),
        (offering(b"x" * 10_000), b"400"),
        (offering(*[b"x"] * 200), b"400"),
    ],
)
def test_a_refused_handshake_is_no_error_of_the_gateway(handshake: bytes, status: bytes) -> None:
    async def scenario() -> None:
        async with served(FakeSite(gateway_settings())) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(handshake)
            async with asyncio.timeout(5):
                assert (await reader.read()).startswith(b"HTTP/1.1 " + status + b" ")
            writer.close()

    run(scenario())


# --- one protocol in front of an application of the test's own ------------------------------------------


class _Application:
    """Accepts unless the test holds it back, and then waits until the test says what to do."""

    def __init__(self) -> None:
        self.answers = asyncio.Event()
        self.answers.set()
        self.go = asyncio.Event()
        self.sends = ""
        self.received: list[str] = []
        self.finished = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.answers.wait()
        self.received.append((await receive())["type"])
        await send({"type": "websocket.accept", "subprotocol": None, "headers": []})
        if self.sends:
            await send({"type": "websocket.send", "text": self.sends})
        await self.go.wait()
        while self.received[-1] != "websocket.disconnect":
            self.received.append((await receive())["type"])
        self.finished.set()


@asynccontextmanager
async def listening(app: ASGIApp, **options: Any) -> AsyncIterator[tuple[int, ServerState]]:
    config = uvicorn.Config(app, ws=WebSocketProtocol, lifespan="off", log_config=None, **options)
    config.load()
    state = ServerState()
    listener = await asyncio.get_running_loop().create_server(
        lambda: HttpProtocol(config, state, {}), "127.0.0.1", 0
    )
    async with listener:
        yield listener.sockets[0].getsockname()[1], state
        for protocol in list(state.connections):
            protocol.transport.abort()
        await until(lambda: not state.connections)


def only_connection(state: ServerState) -> WebSocketProtocol:
    (protocol,) = state.connections
    assert isinstance(protocol, WebSocketProtocol)
    return protocol


@pytest.mark.parametrize("early", [NOT_UTF8, NO_OPCODE, NORMAL_CLOSE, frame(b"x", PING)])
def test_frames_before_the_handshake_is_answered_wait_for_it(early: bytes) -> None:
    async def scenario() -> None:
        app = _Application()
        app.answers.clear()
        async with listening(app) as (port, state):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(HANDSHAKE)
            await until(lambda: any(isinstance(p, WebSocketProtocol) for p in state.connections))
            writer.write(early)
            app.answers.set()
            async with asyncio.timeout(5):
                assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
                assert re.match(rb"[\x88\x8a]", await reader.read(1))
            writer.transport.abort()
            app.go.set()
            async with asyncio.timeout(5):
                await app.finished.wait()

    run(scenario())


def test_messages_that_wait_are_read_after_the_connection_is_lost() -> None:
    async def scenario() -> None:
        app = _Application()
        async with listening(app) as (port, state):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(HANDSHAKE)
            await reader.readuntil(b"\r\n\r\n")
            writer.write(MESSAGE * 3 + frame(b"", PING))
            assert await reader.readexactly(2) == b"\x8a\x00"
            only_connection(state).transport.abort()
            await until(lambda: not state.connections)
            app.go.set()
            async with asyncio.timeout(5):
                await app.finished.wait()
            assert app.received == ["websocket.connect", *["websocket.receive"] * 3, "websocket.disconnect"]
            writer.transport.abort()

    run(scenario())


def test_a_client_whose_messages_nobody_takes_is_not_read_any_further() -> None:
    async def scenario() -> None:
        app = _Application()
        async with listening(app) as (port, state):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(HANDSHAKE)
            await reader.readuntil(b"\r\n\r\n")
            protocol = only_connection(state)
            count = 0
            large = frame(b"x" * 60_000)
            # The sockets' own buffers hold much that is not ours.
            while writer.transport.get_write_buffer_size() == 0:
                writer.write(large)
                count += 1
                await settled(writer.transport.get_write_buffer_size)
            assert not protocol.transport.is_reading()
            assert protocol._waiting_bytes <= MAX_WAITING_BYTES + 2 * 256 * 1024
            app.go.set()
            await until(lambda: app.received.count("websocket.receive") == count)
            writer.transport.abort()
            async with asyncio.timeout(5):
                await app.finished.wait()

    run(scenario())


@pytest.mark.parametrize("length", [1, 125, 126, 65_535, 65_536, 200_000])
def test_a_delivery_of_any_length_arrives_in_one_piece(length: int) -> None:
    async def scenario() -> None:
        async with served(FakeSite()) as server, socket_to(server) as socket:
            await socket.send('{"op": "subscribe", "ref": 1, "filter": "n = 1"}')
            await socket.recv()
            text = "é" * (length // 2) + "x" * (length % 2)
            await socket.send(
                msgspec.json.encode({"op": "publish", "ref": 2, "events": [{"n": 1, "t": text}]}).decode()
            )
            answers = [msgspec.json.decode(await socket.recv()) for _ in range(2)]
            (events,) = [answer for answer in answers if answer["op"] == "events"]
            assert events["events"][0]["event"]["t"] == text

    run(scenario())


@pytest.mark.parametrize("length", [1, 125, 126, 65_535, 65_536, MAX_POSTED_BYTES])
def test_what_is_sent_in_one_turn_of_the_loop_arrives_in_order_and_before_a_close(length: int) -> None:
    messages = [(b"%d" % number * length, number % 2 == 1) for number in range(4)]

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept", "subprotocol": None, "headers": []})
        socket: MessageSocket = scope["extensions"][MESSAGE_SOCKET]
        assert all(socket.post(message, is_binary=is_binary) for message, is_binary in messages)
        await send({"type": "websocket.close", "code": 1000, "reason": ""})

    async def scenario() -> None:
        async with listening(app) as (port, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(HANDSHAKE)
            async with asyncio.timeout(5):
                await reader.readuntil(b"\r\n\r\n")
                for message, is_binary in messages:
                    kind = Opcode.BINARY if is_binary else Opcode.TEXT
                    expected = Frame(kind, message).serialize(mask=False)
                    assert await reader.readexactly(len(expected)) == expected
                assert await reader.read(1) == b"\x88"
            writer.transport.abort()

    run(scenario())


class _Listener:
    """An application that takes some messages as they come and receives the others."""

    def __init__(self, takes: Callable[[str | bytes], bool]) -> None:
        self._takes = takes
        self.heard: list[str | bytes] = []
        self.order: list[str | bytes] = []
        self.waits = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept", "subprotocol": None, "headers": []})
        socket: MessageSocket = scope["extensions"][MESSAGE_SOCKET]
        self.waits.set()
        with contextlib.suppress(Disconnected):
            while True:
                self.order.append(await socket.receive(self._hear))

    def _hear(self, message: str | bytes) -> bool:
        if self._takes(message):
            self.heard.append(message)
            self.order.append(message)
            return True
        return False


@asynccontextmanager
async def listened(app: _Listener) -> AsyncIterator[WebSocketProtocol]:
    """The protocol of a connection to an application that listens."""
    async with listening(app) as (port, state):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HANDSHAKE)
        await reader.readuntil(b"\r\n\r\n")
        protocol = only_connection(state)
        await app.waits.wait()
        yield protocol
        writer.transport.abort()


def test_texts_are_taken_the_moment_they_are_complete() -> None:
    texts = ["", "one", "two" * 50, "three" * 20_000]
    whole = [Frame(Opcode.TEXT, text.encode()).serialize(mask=True) for text in texts]
    ping = Frame(Opcode.PING, b"p").serialize(mask=True)

    async def scenario() -> None:
        app = _Listener(lambda text: True)
        async with listened(app) as protocol:
            protocol.data_received(b"".join(whole))
            assert app.heard == texts
            protocol.data_received(whole[1][:3])
            assert app.heard == texts
            protocol.data_received(whole[1][3:] + ping)
            protocol.data_received(ping)
            protocol.data_received(whole[2])
            assert app.heard == [*texts, texts[1], texts[2]]

    run(scenario())


def test_binary_messages_are_taken_whole_long_and_in_fragments() -> None:
    messages = [b"", b"\xff", b"\xfe" * 4_096, b"\xfd" * 100_000]
    whole = [Frame(Opcode.BINARY, message).serialize(mask=True) for message in messages]
    fragments = [
        Frame(Opcode.BINARY, b"\xff", fin=False).serialize(mask=True),
        Frame(Opcode.PING, b"p").serialize(mask=True),
        Frame(Opcode.CONT, b"\xfe").serialize(mask=True),
    ]

    async def scenario() -> None:
        app = _Listener(lambda message: message != b"\xff")
        async with listened(app) as protocol:
            protocol.data_received(whole[0] + whole[2] + whole[3])
            assert app.heard == [messages[0], messages[2], messages[3]]
            protocol.data_received(b"".join(fragments))
            protocol.data_received(whole[1])
            await until(lambda: len(app.order) == 5)
            assert app.order[3:] == [b"\xff\xfe", b"\xff"]
            assert app.heard[3:] == [b"\xff\xfe"]

    run(scenario())


@pytest.mark.parametrize(
    "stream",
    [
        b"\x82\xff" + (2**40).to_bytes(8, "big") + bytes(4),
        b"\x82\xff" + (1_001).to_bytes(8, "big") + bytes(4),
        frame(b"x" * 600, BINARY, final=False) + frame(b"x" * 600, opcode=0),
        frame(b"", BINARY, final=False) + frame(b"", opcode=0, final=False) * 5_000,
    ],
    ids=["terabytes", "a byte too long", "fragments that are too long", "endless empty fragments"],
)
def test_a_binary_message_beyond_the_limits_is_closed_with_1009_before_it_is_held(stream: bytes) -> None:
    async def scenario() -> None:
        app = _Listener(lambda message: True)
        async with listening(app, ws_max_size=1_000) as (port, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(HANDSHAKE)
            await reader.readuntil(b"\r\n\r\n")
            writer.write(stream)
            assert await read_close(reader) == 1009
            assert app.order == []
            writer.transport.abort()

    run(scenario())


@pytest.mark.parametrize(
    ("values", "offered"),
    [
        ((), []),
        ((b"one",), ["one"]),
        ((b"one, two ,\tthree", b"four"), ["one", "two", "three", "four"]),
        ((b",, one,,",), ["one"]),
        ((b"x," * 3_000 + b"x",), ["x"] * 3_001),
    ],
)
def test_the_application_learns_what_subprotocols_the_client_offers(
    values: tuple[bytes, ...], offered: list[str]
) -> None:
    scopes: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scopes.append(scope)
        await receive()
        chosen = scope["subprotocols"][-1] if scope["subprotocols"] else None
        await send({"type": "websocket.accept", "subprotocol": chosen, "headers": []})
        await send({"type": "websocket.send", "bytes": b"\xff"})

    async def scenario() -> None:
        async with listening(app) as (port, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(offering(*values))
            async with asyncio.timeout(5):
                head = await reader.readuntil(b"\r\n\r\n")
                assert await reader.readexactly(3) == b"\x82\x01\xff"
            answered = re.findall(rb"(?i)sec-websocket-protocol: (.*)\r\n", head)
            assert [each.decode() for each in answered] == offered[-1:]
            assert [scope["subprotocols"] for scope in scopes] == [offered]
            writer.transport.abort()

    run(scenario())


def test_the_second_piece_of_a_text_is_not_taken_for_a_message_that_it_looks_like() -> None:
    mask = b"\x80\x80\x80\x80"
    disguised = b"\x81\x82" + mask + apply_mask(b"no", mask)
    text = apply_mask(disguised, mask).decode()
    frame = b"\x81" + bytes((0x80 | len(disguised),)) + mask + disguised

    async def scenario() -> None:
        app = _Listener(lambda text: True)
        async with listened(app) as protocol:
            protocol.data_received(frame)
            protocol.data_received(frame[:6])
            protocol.data_received(frame[6:])
            protocol.data_received(frame)
            await until(lambda: len(app.order) == 3)
            assert app.order == [text] * 3

    run(scenario())


@given(st.data())
def test_every_text_is_heard_or_fetched_once_and_in_order_however_it_is_cut(data: st.DataObject) -> None:
    """Whole frames, fragments, pings and pongs, in any pieces; a text that waits is not overtaken."""
    drawn = data.draw(st.lists(st.text(max_size=200), max_size=12))
    texts = [f"{number}: {text}" for number, text in enumerate(drawn)]
    stream = b""
    for text in texts:
        way = data.draw(st.sampled_from(["whole", "whole", "fragments", "after a ping", "after a pong"]))
        payload = text.encode()
        if way == "fragments":
            at = data.draw(st.integers(0, len(payload)))
            stream += Frame(Opcode.TEXT, payload[:at], fin=False).serialize(mask=True)
            stream += Frame(data.draw(st.sampled_from([Opcode.PING, Opcode.PONG])), b"p").serialize(mask=True)
            stream += Frame(Opcode.CONT, payload[at:]).serialize(mask=True)
            continue
        if way == "after a pong":
            stream += Frame(Opcode.PONG, b"").serialize(mask=True)
        if way == "after a ping":
            stream += Frame(Opcode.PING, b"").serialize(mask=True)
        stream += Frame(Opcode.TEXT, payload).serialize(mask=True)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)), max_size=8)))
    pieces = [stream[begin:end] for begin, end in itertools.pairwise([0, *cuts, len(stream)])]
    pauses = data.draw(st.lists(st.booleans(), min_size=len(pieces), max_size=len(pieces)))
    refused = data.draw(st.sets(st.sampled_from(texts))) if texts else set()

    async def scenario() -> None:
        app = _Listener(lambda text: text not in refused)
        async with listened(app) as protocol:
            for piece, pause in zip(pieces, pauses, strict=True):
                if piece:
                    protocol.data_received(piece)
                if pause:
                    await asyncio.sleep(0)
            await until(lambda: len(app.order) == len(texts))
            assert app.order == texts
            assert not refused.intersection(app.heard)

    run(scenario())


def test_stopping_while_a_client_that_does_not_read_has_closed_raises_nothing() -> None:
    async def scenario() -> None:
        app = _Application()
        app.sends = "x" * (16 * 1024 * 1024)  # more than the sockets' buffers hold
        async with listening(app) as (port, state):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
            writer.write(HANDSHAKE)
            await reader.readuntil(b"\r\n\r\n")
            writer.write(NORMAL_CLOSE)
            protocol = only_connection(state)
            await until(protocol.transport.is_closing)
            protocol.shutdown()
            writer.transport.abort()
            app.go.set()

    run(scenario())


def test_a_client_that_answers_no_pings_is_closed_with_1011() -> None:
    async def scenario() -> None:
        app = _Application()
        async with listening(app, ws_ping_interval=0.01, ws_ping_timeout=0.05) as (port, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(HANDSHAKE)
            await reader.readuntil(b"\r\n\r\n")
            assert (await reader.readexactly(6))[:2] == b"\x89\x04"
            assert await read_close(reader) == 1011
            writer.transport.abort()
            app.go.set()

    run(scenario())


def test_a_client_that_answers_pings_stays() -> None:
    async def scenario() -> None:
        app = _Application()
        async with listening(app, ws_ping_interval=0.001, ws_ping_timeout=5.0) as (port, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(HANDSHAKE)
            await reader.readuntil(b"\r\n\r\n")
            for _ in range(20):
                ping = await reader.readexactly(6)
                assert ping[:2] == b"\x89\x04"
                writer.write(frame(ping[2:], opcode=10))
            writer.transport.abort()
            app.go.set()

    run(scenario())


def test_a_connection_lets_go_of_the_parser_when_its_client_answers_a_ping() -> None:
    async def scenario() -> None:
        app = _Listener(lambda message: True)
        async with listened(app) as protocol:
            assert protocol._protocol is None
            long = Frame(Opcode.TEXT, b"x" * 5_000).serialize(mask=True)
            protocol.data_received(long[:100])
            protocol.data_received(long[100:])
            assert protocol._protocol is not None
            protocol.data_received(Frame(Opcode.PONG, b"").serialize(mask=True))
            assert protocol._protocol is None
            protocol.data_received(Frame(Opcode.TEXT, b"x", fin=False).serialize(mask=True))
            protocol.data_received(Frame(Opcode.PONG, b"").serialize(mask=True))
            protocol.data_received(Frame(Opcode.CONT, b"y").serialize(mask=True))
            assert app.heard == ["x" * 5_000, "xy"]

    run(scenario())


def test_a_refusal_carries_the_headers_of_its_problem() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        async with served(site) as server:
            server._gateway.stopping = True
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(HANDSHAKE)
            async with asyncio.timeout(5):
                head, _, body = (await reader.read()).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 503 ")
            assert b"retry-after: 1" in head.lower()
            assert head.lower().count(b"content-length: %d" % len(body)) == 1
            assert head.lower().count(b"content-type: ") == 1
            writer.close()

    run(scenario())
