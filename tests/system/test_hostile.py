"""Random and hostile requests against a real service: each ends in a clear refusal, and the service lives on."""

import contextlib
import http.client
import json
import os
import random
import socket
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest

from support.service import Service

SEED = 4242
JSON = {"Content-Type": "application/json"}
Request = tuple[str, str, bytes, dict[str, str]]


T = TypeVar("T")


def one_of(rng: random.Random, *makers: Callable[[], T]) -> T:
    return rng.choice(makers)()


def garbage(rng: random.Random, most: int = 200) -> bytes:
    return rng.randbytes(rng.randrange(most))


def odd_value(rng: random.Random) -> Any:
    return rng.choice(
        [
            None, True, -1, 0, 10**18, 10**40, 1e308, "", "x" * 5000, "\u0000", "é" * 300, [], {}, [[]], [1, "a"],
            {"$timestamp": "2026-01-01"}, {"$timestamp": 5}, {"a": {"b": {"c": None}}}, "'; DROP TABLE x; --",
        ]
    )  # fmt: skip


def odd_object(rng: random.Random, names: list[str]) -> Any:
    kind = rng.randrange(6)
    if kind == 0:
        return odd_value(rng)
    if kind == 1:
        return [odd_value(rng) for _ in range(rng.randrange(5))]
    chosen = rng.sample(names, rng.randrange(len(names) + 1)) + ["surprise"] * (kind == 2)
    return {name: odd_value(rng) for name in chosen}


def deep(rng: random.Random) -> bytes:
    depth = rng.choice([20, 1_000, 100_000])
    return rng.choice([b"[" * depth, b'{"a":' * depth, b"[" * depth + b"]" * depth])


def hostile_filter(rng: random.Random) -> str:
    n = rng.choice([10, 100, 3_000, 20_000])
    words = [
        "a",
        "=",
        "AND",
        "OR",
        "NOT",
        "(",
        ")",
        "'x'",
        "5",
        "IN",
        "LIKE",
        "BETWEEN",
        "IS",
        "NULL",
        ",",
        "<>",
        "'",
    ]
    return one_of(
        rng,
        lambda: "(" * n + "a = 1" + ")" * n,
        lambda: "NOT " * n + "a",
        lambda: " AND ".join(f"(a{i} = 1 OR b{i} = 1)" for i in range(min(n, 300))),
        lambda: "NOT (" + " OR ".join(f"(a{i} = 1 AND b{i} = 2)" for i in range(min(n, 300))) + ")",
        lambda: "a IN (" + ",".join(map(str, range(n))) + ")",
        lambda: "a LIKE '" + "%a" * min(n, 3_000) + "'",
        lambda: "a = '" + "x" * n,
        lambda: "a = " + "9" * min(n, 5_000),
        lambda: "1" + "+1" * min(n, 3_000) + " > a",
        lambda: " ".join(rng.choice(words) for _ in range(min(n, 200))),
        lambda: garbage(rng).decode("latin-1"),
        lambda: "a = 1e999",
        lambda: "t > TIMESTAMP '2026-13-45T99:00:00'",
        lambda: "\ud800 = 1",
    )


def mutated(rng: random.Random, body: bytes) -> bytes:
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(body) + 1)
        removed = rng.choice([0, 1, rng.randrange(8)])
        added = rng.choice([b"", garbage(rng, 4), b'"', b"{", b"\xff", b"NaN", b"1e999"])
        body = body[:at] + added + body[at + removed :]
    return body


def event_request(rng: random.Random) -> Request:
    good = json.dumps(
        {"symbol": "XYZ", "price": 21.5, "tags": ["a"], "at": {"$timestamp": "2026-01-01T00:00:00Z"}}
    )
    cloud = json.dumps({"specversion": "1.0", "id": "1", "source": "/x", "type": "t", "data": {"price": 3}})
    body = one_of(
        rng,
        lambda: mutated(rng, good.encode()),
        lambda: mutated(rng, cloud.encode()),
        lambda: deep(rng),
        lambda: garbage(rng),
        lambda: json.dumps(odd_value(rng)).encode(),
        lambda: json.dumps([odd_value(rng), odd_value(rng)]).encode(),
        lambda: b'{"a": 1, "a": 2}',
        lambda: b'{"a": NaN}',
        lambda: b'{"a": ' + b"9" * 6_000 + b"}",
        lambda: json.dumps({f"a{i}": i for i in range(400)}).encode(),
        lambda: b'{"a": "\\ud800"}',
    )
    kind = rng.choice(
        [
            "application/json", "application/x-ndjson", "application/cloudevents+json", "text/plain", "",
            "application/cloudevents-batch+json", "application/json; charset=utf-16", "\u00e9/x", "a/b/c;;;",
        ]
    )  # fmt: skip
    headers = {"Content-Type": kind}
    if rng.random() < 0.2:
        headers |= {"ce-specversion": rng.choice(["1.0", "9", ""]), "ce-id": "%ZZ%", "ce-time": "yesterday"}
    return "POST", "/v1/events", body, headers


def subscription_request(rng: random.Random) -> Request:
    names = ["filter", "id", "expires_in_seconds", "mailbox"]
    document: Any = odd_object(rng, names)
    if isinstance(document, dict) and rng.random() < 0.7:
        document["filter"] = hostile_filter(rng)
    body = json.dumps(document).encode("utf-8", "surrogatepass")
    method = rng.choice(["POST", "PUT"])
    path = (
        "/v1/subscriptions"
        if method == "POST"
        else f"/v1/subscriptions/{rng.choice(['nobody', '%00', 'a' * 400])}"
    )
    return method, path, rng.choice([body, mutated(rng, body), deep(rng)]), JSON


def filter_request(rng: random.Random) -> Request:
    document = {"filter": hostile_filter(rng), "event": odd_value(rng)}
    body = json.dumps(document).encode("utf-8", "surrogatepass")
    return "POST", rng.choice(["/v1/filters/test", "/v1/filters/explain"]), body, JSON


def path_request(rng: random.Random) -> Request:
    path = rng.choice(
        [
            "/v1/subscriptions?limit=-1", "/v1/subscriptions?limit=x", "/v1/subscriptions?limit=99999999999999999999",
            "/v1/subscriptions/nobody", "/v1/subscriptions/nobody/events?wait=NaN", "/v1/stream", "//", "/v2",
            "/v1/stream?filter=%28%28", "/v1/subscriptions/nobody/stream", "/v1/%ff%fe", "/../../etc/passwd",
            "/v1/subscriptions/nobody/ack", "/v1/events", "/v1/ws", "/v1/subscriptions?surprise=1",
            "/v1/stream?filter=",
        ]
    )  # fmt: skip
    method = rng.choice(["GET", "DELETE", "PATCH", "PUT", "HEAD", "OPTIONS"])
    return (
        method,
        path,
        b"" if rng.random() < 0.5 else garbage(rng),
        {"Last-Event-ID": "x" * rng.randrange(50)},
    )


REQUESTS: list[Callable[[random.Random], Request]] = [
    event_request,
    subscription_request,
    filter_request,
    path_request,
]


def send(connection: http.client.HTTPConnection, request: Request) -> tuple[int, bytes]:
    method, path, body, headers = request
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return response.status, response.read()
    except (http.client.HTTPException, ConnectionError, UnicodeEncodeError):
        # The server refused before all was sent, and hung up; or this client could not even send it.
        connection.close()
        return 0, b""


def websocket(service: Service) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", service.port), timeout=20)
    connection.sendall(
        b"GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    head = b""
    while b"\r\n\r\n" not in head:
        head += connection.recv(1)
    assert b" 101 " in head.splitlines()[0]
    return connection


def frame(payload: bytes, opcode: int = 1, masked: bool = True) -> bytes:
    length = len(payload)
    size = (
        bytes([length]) if length < 126 else b"\x7e" + struct.pack(">H", length) if length < 65536 else None
    )
    size = size if size is not None else b"\x7f" + struct.pack(">Q", length)
    first = bytes([0x80 | opcode])
    if not masked:
        return first + size + payload
    return first + bytes([size[0] | 0x80]) + size[1:] + b"\0\0\0\0" + payload


def hostile_frames(rng: random.Random) -> bytes:
    message = {
        "op": rng.choice(["publish", "subscribe", "attach", "ack", "detach", "ping", "x", 7]),
        "ref": odd_value(rng),
    }
    message |= {"filter": hostile_filter(rng), "events": odd_value(rng), "subscription": odd_value(rng)}
    text = json.dumps(message).encode("utf-8", "surrogatepass")
    return one_of(
        rng,
        lambda: frame(text),
        lambda: frame(mutated(rng, text)),
        lambda: frame(deep(rng)),
        lambda: frame(b"\xff\xfe"),
        lambda: frame(b"{}", opcode=2),
        lambda: frame(b"{}", opcode=rng.randrange(3, 16)),
        lambda: frame(b"{}", masked=False),
        lambda: b"\x81\xff" + struct.pack(">Q", 2**40) + b"\0\0\0\0",
        lambda: garbage(rng),
    )


@pytest.mark.system
@pytest.mark.timeout(900)
@pytest.mark.slow(seconds=8)
def test_hostile_requests_are_refused_and_do_no_harm(tmp_path: Path, full_length: bool) -> None:
    count = 20_000 if full_length else 6_000
    rng = random.Random(SEED)
    with Service(tmp_path / "data", "inline", CULVER_GATEWAY_REQUESTS_PER_SECOND="0") as service:
        service.wait_until_ready()
        process = psutil.Process(service.process.pid)
        statuses: Counter[int] = Counter()
        connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)
        for i in range(count):
            if i == count // 10:
                first_memory = process.memory_info().rss
            if i % 10 == 9:
                statuses[hostile_websocket(service, rng)] += 1
                continue
            if i % 500 == 250:
                statuses[huge_body(service)] += 1
                continue
            request = rng.choice(REQUESTS)(rng)
            status, body = send(connection, request)
            statuses[status] += 1
            assert status < 500, f"request {i}: {status} {body[:300]!r} to {str(request)[:500]}"
            if status >= 400 and request[0] != "HEAD":
                check_problem(status, body)
        connection.close()
        grown = process.memory_info().rss - first_memory
        assert grown < 64 * 1024 * 1024, f"memory grew by {grown / 1e6:.0f} MB"
        assert service.process.poll() is None, service.log_tail()
        assert "Traceback" not in service.log_path.read_text(errors="replace"), service.log_tail()
        assert statuses[400] > count // 4, statuses
        check_service_works(service)


def check_problem(status: int, body: bytes) -> None:
    if body.startswith(b"Invalid HTTP request"):  # refused by the HTTP parser itself
        return
    problem = json.loads(body)
    assert problem["status"] == status
    assert problem["code"]
    assert problem["detail"]


def hostile_websocket(service: Service, rng: random.Random) -> int:
    """Send a few broken things; whatever happens, the connection ends in a close frame or an end of stream."""
    with websocket(service) as connection, contextlib.suppress(OSError):
        for _ in range(rng.randrange(1, 6)):
            connection.sendall(hostile_frames(rng))
        connection.sendall(frame(struct.pack(">H", 1000), opcode=8))
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass
    return 101


def huge_body(service: Service) -> int:
    """A body that never ends is refused when it passes the limit."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)
    connection.putrequest("POST", "/v1/events")
    connection.putheader("Content-Type", "application/json")
    connection.putheader("Transfer-Encoding", "chunked")
    connection.endheaders()
    block = b"%x\r\n" % 2**20 + os.urandom(2**20) + b"\r\n"
    with contextlib.suppress(ConnectionError):
        for _ in range(24):
            connection.send(block)
    try:
        status = connection.getresponse().status
    except (http.client.HTTPException, ConnectionError):
        status = 0
    connection.close()
    assert status in (0, 400, 413)
    return status


def check_service_works(service: Service) -> None:
    service.http.put("/v1/subscriptions/nobody", json={"filter": "TRUE"})
    made = service.http.post("/v1/subscriptions", json={"filter": "check = 'yes'"})
    assert made.status_code == 201, made.text
    assert service.http.post("/v1/events", json={"check": "yes"}).status_code == 200
    service.wait_until_delivered()
    assert [item["event"] for item in service.receive_all(made.json()["id"])] == [{"check": "yes"}]
