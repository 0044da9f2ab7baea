"""Hostile input on real sockets: it ends in a 4xx or a close code, and the gateway lives on in little memory."""

import asyncio
import contextlib
import json
import random
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import psutil
import pytest

from culver.gateway.server.gateway_server import GatewayServer
from support.fake_site import FakeSite
from support.gateway import gateway_settings, run, served
from support.until import until

pytestmark = pytest.mark.timeout(120)

SEED = 20260
MEGABYTE = 1024 * 1024

HANDSHAKE = (
    b"GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)

BODIES: list[tuple[str, str, str]] = [
    (
        "/v1/events",
        "application/json",
        '{"symbol": "ACME", "price": 21.5, "tags": ["a", "b"], "deep": {"x": 1}}',
    ),
    ("/v1/events", "application/json", '[{"n": 1}, {"n": 2, "at": {"$timestamp": "2030-01-01T00:00:00Z"}}]'),
    ("/v1/events", "application/x-ndjson", '{"n": 1}\n{"n": 2}\n\n{"n": 3}'),
    (
        "/v1/events",
        "application/cloudevents+json",
        '{"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "time": "2030-01-01T00:00:00Z"}',
    ),
    ("/v1/events", "application/cloudevents-batch+json", '[{"specversion": "1.0", "id": "1"}]'),
    (
        "/v1/subscriptions",
        "application/json",
        '{"filter": "a = 1 AND b LIKE \'x%\'", "expires_in_seconds": 5}',
    ),
    ("/v1/subscriptions", "application/json", '[{"filter": "a IN (1, 2)", "mailbox": {"max_count": 5}}]'),
    ("/v1/filters/test", "application/json", '{"filter": "a + 1 > b * 2", "event": {"a": 1, "b": 2.5}}'),
    ("/v1/filters/explain", "application/json", '{"filter": "NOT (a BETWEEN 1 AND 5 OR \'x\' IN tags)"}'),
    ("/v1/subscriptions/kept/ack", "application/json", '{"delivery_id": "kept:0"}'),
    ("/v1/groups/ack", "application/json", '{"prefix": "ke", "offset": 0}'),
    ("/v1/groups/ack", "application/json", '{"subscriptions": ["kept", "kept"], "position": "0-3f2a9c01"}'),
]

MESSAGES = [
    '{"op": "publish", "ref": 1, "events": [{"a": 1}]}',
    '{"op": "publish_each", "ref": 7, "events": [{"a": 1}, {"b": 2, "c": {"d": ["x"]}}, 3, {"e": null}]}',
    '{"op": "subscribe", "ref": 2, "filter": "a > 5", "after": 3}',
    '{"op": "attach", "ref": 3, "subscription": "kept", "after": "kept:0"}',
    '{"op": "ack", "ref": 4, "delivery_id": "kept:0"}',
    '{"op": "detach", "ref": 5, "subscription": "kept"}',
    '{"op": "follow", "ref": 8, "prefix": "ke", "after": 0}',
    '{"op": "follow", "ref": 9, "subscriptions": ["kept", "other"]}',
    '{"op": "ack", "ref": 10, "group": 1, "offset": 0}',
    '{"op": "detach", "ref": 11, "group": 1}',
    '{"op": "ping", "ref": 6}',
]

SPLINTERS = [
    b"\x00", b"\xff", b"\xed\xa0\x80", b'"', b"{", b"}", b"[", b"]", b",", b":", b"NaN", b"-Infinity", b"1e999",
    b"9" * 40, b"null", b"true", b"\\ud800", b"\\u0000", b'{"a":', b"[" * 200, b"(" * 200, b"NOT " * 200, b"'",
    b"--", b"/*", b"%", b"\r\n", b"\n", b'"filter"', b'"op"', b'"events"', b"live-", b" OR a = 1", b" " * 500,
    b"9223372036854775808", b"-0", b"\xf0\x9f\xa6\x8a", b"specversion", b"$timestamp",
]  # fmt: skip


def mutated(source: random.Random, text: bytes) -> bytes:
    data = bytearray(text)
    for _ in range(source.choice([1, 1, 2, 3, 8])):
        at = source.randrange(len(data) + 1)
        kind = source.randrange(5)
        if kind == 0:
            data[at : at + source.randrange(1, 8)] = b""
        elif kind == 1:
            data[at:at] = source.choice(SPLINTERS)
        elif kind == 2:
            data[at : at + 1] = bytes([source.randrange(256)])
        elif kind == 3:
            data = data[:at]
        else:
            end = source.randrange(at, len(data) + 1)
            data[at:at] = data[at:end] * source.randrange(1, 4)
    return bytes(data)


@asynccontextmanager
async def besieged(**options: Any) -> AsyncIterator[tuple[FakeSite, GatewayServer, httpx.AsyncClient]]:
    """A gateway with one subscription; afterwards it must still work, in about the memory of before."""
    site = FakeSite(gateway_settings(requests_per_second=0, events_per_second=0))
    async with (
        served(site, **options) as server,
        httpx.AsyncClient(base_url=server.url, trust_env=False, timeout=20) as client,
    ):
        await client.post("/v1/subscriptions", json={"filter": "n >= 0", "id": "kept"})
        await client.post("/v1/events", json={"n": 1})
        before = psutil.Process().memory_info().rss
        yield site, server, client
        assert (await client.get("/healthz")).status_code == 200
        assert (await client.post("/v1/events", json={"n": 2})).status_code == 200
        items = (await client.get("/v1/subscriptions/kept/events?wait=5&limit=1000")).json()["items"]
        assert items
        assert psutil.Process().memory_info().rss - before < 64 * MEGABYTE


async def exchange(server: GatewayServer, data: bytes, seconds: float = 2.0) -> bytes:
    """Send bytes and read what comes back until the connection is closed or the time is up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    answer = b""
    with contextlib.suppress(ConnectionError, TimeoutError):
        async with asyncio.timeout(seconds):
            writer.write(data)
            await writer.drain()
            while chunk := await reader.read(65_536):
                answer += chunk
    writer.transport.abort()
    return answer


def statuses(answer: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", answer)]


@pytest.mark.slow(seconds=4)
def test_mutated_bodies_never_make_the_gateway_fail() -> None:
    async def scenario() -> None:
        source = random.Random(SEED)
        seen: set[int] = set()
        async with besieged() as (_, _, client):
            for number in range(1_500):
                path, media, text = BODIES[number % len(BODIES)]
                body = mutated(source, text.encode())
                answer = await client.post(path, content=body, headers={"content-type": media})
                assert answer.status_code < 500, (path, body, answer.text)
                if answer.status_code >= 400:
                    problem = answer.json()
                    assert problem["status"] == answer.status_code
                    assert problem["code"]
                    assert problem["detail"]
                seen.add(answer.status_code)
        assert {200, 400} <= seen

    run(scenario())


def test_mutated_requests_never_make_the_gateway_fail() -> None:
    async def scenario() -> None:
        source = random.Random(SEED + 1)
        seen: set[int] = set()
        lines = [
            b"GET /v1/subscriptions?limit=5&after=a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
            b"GET /v1/subscriptions/kept/events?wait=0 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
            b"GET /v1/groups/events?prefix=ke&wait=0 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
            b"DELETE /v1/subscriptions/none HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
            b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
            b'Content-Length: 8\r\n\r\n{"a": 1}',
            b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
            b'Transfer-Encoding: chunked\r\n\r\n8\r\n{"a": 1}\r\n0\r\n\r\n',
            HANDSHAKE,
        ]
        async with besieged() as (_, server, _):
            for begin in range(0, 600, 100):
                requests = [mutated(source, lines[n % len(lines)]) for n in range(begin, begin + 100)]
                answers = await asyncio.gather(*(exchange(server, data, 0.5) for data in requests))
                for data, answer in zip(requests, answers, strict=True):
                    assert all(status < 500 for status in statuses(answer)), (data, answer)
                    seen.update(statuses(answer))
        assert {200, 400, 404} <= seen

    run(scenario())


def test_random_bytes_are_no_request() -> None:
    async def scenario() -> None:
        source = random.Random(SEED + 2)
        async with besieged() as (_, server, _):
            garbage = [source.randbytes(source.randrange(1, 3_000)) for _ in range(100)]
            answers = await asyncio.gather(*(exchange(server, data, 0.5) for data in garbage))
            seen = {status for answer in answers for status in statuses(answer)}
            assert seen == {400}

    run(scenario())


def frame(payload: bytes, opcode: int = 1, *, final: bool = True, claimed: int | None = None) -> bytes:
    """A client's WebSocket frame with a mask of zeros."""
    length = len(payload) if claimed is None else claimed
    head = bytes([opcode | (0x80 if final else 0)])
    if length < 126:
        head += bytes([0x80 | length])
    elif length < 65_536:
        head += b"\xfe" + length.to_bytes(2, "big")
    else:
        head += b"\xff" + length.to_bytes(8, "big")
    return head + b"\0\0\0\0" + payload


def close_codes(answer: bytes) -> set[int]:
    return {
        int.from_bytes(code, "big") for code in re.findall(rb"\x88[\x02-\x7d]([\x03\x04].)", answer, re.S)
    }


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(b"\xff\xff"), 1007),
        (frame(b"{}", opcode=2), 1003),
        (frame(b"", claimed=2**62), 1009),
        (frame(b"", claimed=2**63 + 5), 1009),
        (frame(b"x", opcode=3), 1002),
        (frame(b"x" * 200, opcode=9), 1002),
        (b"\x81\x02{}", 1002),
        (frame(b"{}", opcode=0), 1002),
        (frame(b"\x00", opcode=8), 1002),
        (b"\xf1" + frame(b"{}")[1:], 1002),
        (frame(b"x" * 700_000, final=False) + frame(b"x" * 700_000, opcode=0), 1009),
        (frame(b"x", final=False) + frame(b"", opcode=0, final=False) * 5_000, 1009),
        (b"".join(frame(b"oops") for _ in range(120)), 1008),
    ],
)
def test_a_broken_frame_closes_with_its_code(data: bytes, code: int) -> None:
    async def scenario() -> None:
        async with besieged() as (_, server, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(HANDSHAKE)
            await reader.readuntil(b"\r\n\r\n")
            writer.write(data)
            answer = b""
            async with asyncio.timeout(5):
                while not close_codes(answer):
                    answer += await reader.read(65_536)
            assert close_codes(answer) == {code}
            writer.transport.abort()

    run(scenario())


def test_mutated_messages_and_frames_never_make_the_gateway_fail(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        source = random.Random(SEED + 3)

        def garbage() -> bytes:
            frames = []
            for _ in range(source.randrange(1, 12)):
                data = frame(mutated(source, source.choice(MESSAGES).encode()))
                frames.append(mutated(source, data) if source.random() < 0.3 else data)
            return b"".join(frames)

        async with besieged() as (site, server, _):
            for _ in range(6):
                await asyncio.gather(*(talk(server, garbage()) for _ in range(50)))
            await until(lambda: set(site.registrations) == {"kept"} and not site.open_sessions)

    run(scenario())
    assert "failed" not in caplog.text
    assert "Exception in ASGI" not in caplog.text


async def talk(server: GatewayServer, data: bytes) -> bytes:
    """Send frames after a handshake and read for a moment."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    answer = b""
    with contextlib.suppress(ConnectionError, TimeoutError):
        async with asyncio.timeout(0.3):
            writer.write(HANDSHAKE)
            await reader.readuntil(b"\r\n\r\n")
            writer.write(data)
            while chunk := await reader.read(65_536):
                answer += chunk
    assert b"internal_error" not in answer
    writer.transport.abort()
    return answer


def endless(start: bytes, more: bytes) -> Iterator[bytes]:
    yield start
    while True:
        yield more


FLOODS: dict[str, Callable[[], Iterator[bytes]]] = {
    "a path without end": lambda: endless(b"GET /", b"a" * 65_536),
    "headers without end": lambda: endless(b"GET / HTTP/1.1\r\n", b"a: b\r\n" * 10_000),
    "a header without end": lambda: endless(b"GET / HTTP/1.1\r\na: ", b"b" * 65_536),
    "a chunk extension without end": lambda: endless(
        b"POST /v1/filters/test HTTP/1.1\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n1;",
        b"x" * 65_536,
    ),
    "trailers without end": lambda: endless(
        b"POST /v1/filters/test HTTP/1.1\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\n",
        b"a: b\r\n" * 10_000,
    ),
    "a websocket head without end": lambda: endless(HANDSHAKE[:-2], b"a: b\r\n" * 10_000),
}


@pytest.mark.parametrize("name", FLOODS)
def test_what_never_ends_is_cut_off(name: str) -> None:
    async def scenario() -> None:
        async with besieged() as (_, server, _):
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            with pytest.raises(ConnectionError):
                await flood(writer, FLOODS[name]())
            writer.transport.abort()

    run(scenario())


async def flood(writer: asyncio.StreamWriter, source: Iterator[bytes]) -> None:
    sent = 0
    for data in source:
        writer.write(data)
        sent += len(data)
        await writer.drain()
        await asyncio.sleep(0)
        assert sent < 64 * MEGABYTE


def test_an_oversized_body_is_answered_at_once_and_read_away_without_being_kept() -> None:
    async def scenario() -> None:
        async with besieged() as (_, server, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(
                b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Transfer-Encoding: chunked\r\n\r\n"
            )
            for _ in range(1_500):
                writer.write(b"10000\r\n" + b" " * 65_536 + b"\r\n")
                await writer.drain()
            head = await reader.readuntil(b"\r\n\r\n")
            assert statuses(head) == [413]
            writer.transport.abort()

    run(scenario())


def test_pings_of_a_client_that_reads_nothing_do_not_pile_up() -> None:
    async def scenario() -> None:
        async with besieged(stall_seconds=0.3) as (_, server, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1)
            head = b""
            writer.write(HANDSHAKE)
            while b"\r\n\r\n" not in head:
                head += await reader.read(1)
            pings = frame(b"x" * 125, opcode=9) * 500
            with contextlib.suppress(ConnectionError):
                for _ in range(2_000):
                    writer.write(pings)
                    await writer.drain()
            writer.transport.abort()
            del reader

    run(scenario())


def test_a_handshake_that_cannot_be_understood_is_refused() -> None:
    async def scenario() -> None:
        async with besieged() as (_, server, _):
            many = HANDSHAKE[:-2] + b"".join(b"x%d: y\r\n" % n for n in range(300)) + b"\r\n"
            assert statuses(await exchange(server, many)) == [400]
            assert statuses(await exchange(server, HANDSHAKE.replace(b"GET", b"POST"))) in ([400], [405])
            assert statuses(await exchange(server, HANDSHAKE.replace(b": 13", b": 12"))) in ([400], [426])

    run(scenario())


def test_a_connection_that_never_sends_a_request_is_closed() -> None:
    async def scenario() -> None:
        async with besieged(head_seconds=0.2) as (_, server, _):
            for start in (b"", b"GET /v1/subscr"):
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                writer.write(start)
                with contextlib.suppress(ConnectionError):
                    async with asyncio.timeout(5):
                        assert await reader.read() == b""
                writer.close()

    run(scenario())


HOSTILE_FILTERS = [
    "(" * 10_000 + "a = 1" + ")" * 10_000,
    "NOT " * 4_000 + "a = 1",
    "a = " + "-" * 10_000 + "1",
    " AND ".join("(a = 1 OR b = 2)" for _ in range(1_000)),
    "a IN (" + ",".join(map(str, range(5_000))) + ")",
    "a LIKE '" + "%_" * 5_000 + "'",
    "a = '" + "x" * 16_000,
    "a = 1 " + "OR " * 5_000,
    "a = " + "9" * 10_000,
    "a = " + "0" * 4_300 + "1",
    "a = 1e" + "9" * 1_000,
    "\x00",
    "a = '\u202e'",
    '"' * 9_999,
    "1 + " * 3_000 + "1 > a",
]


def test_a_hostile_filter_is_answered_soon() -> None:
    async def scenario() -> None:
        async with besieged() as (_, _, client):
            loop = asyncio.get_running_loop()
            for text in HOSTILE_FILTERS:
                started = loop.time()
                for path in ("/v1/filters/explain", "/v1/subscriptions"):
                    answer = await client.post(path, content=json.dumps({"filter": text}), headers=JSON)
                    assert answer.status_code < 500, text[:20]
                live = await client.get("/v1/stream", params={"filter": text[:5_000] + " AND"})
                assert 400 <= live.status_code < 500, text[:20]
                assert loop.time() - started < 5, text[:20]

    run(scenario())


JSON = {"content-type": "application/json"}
