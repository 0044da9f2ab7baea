"""A site that may open few files, an address that opens many connections, and the memory that idle ones take."""

import contextlib
import json
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from support.service import Service

pytestmark = [pytest.mark.system, pytest.mark.timeout(300), pytest.mark.slow(seconds=5)]

FILES = 200
CONNECTIONS = 300

WEBSOCKETS = 1_000
MAX_IDLE_BYTES = 20_000
HANDSHAKE = (
    b"GET /v1/ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


@contextlib.contextmanager
def idle_connections(port: int) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
            for _ in range(CONNECTIONS)
        ]


def client_at(service: Service, address: str) -> httpx.Client:
    transport = httpx.HTTPTransport(local_address=address)
    return httpx.Client(base_url=service.url, transport=transport, timeout=30)


def check_works(client: httpx.Client, name: str) -> None:
    filter_text = f"for = '{name}'"
    made = client.post("/v1/subscriptions", json={"id": name, "filter": filter_text})
    assert made.status_code == 201, made.text
    assert client.post("/v1/events", json={"for": name}).status_code == 200
    items = client.get(f"/v1/subscriptions/{name}/events", params={"wait": 20}).json()["items"]
    assert [item["event"] for item in items] == [{"for": name}]


def test_idle_connections_take_no_files_from_a_site_that_may_open_few(tmp_path: Path) -> None:
    with (
        Service(tmp_path / "data", "inline") as service,
        client_at(service, "127.0.0.2") as old,
        client_at(service, "127.0.0.3") as new,
    ):
        resource.prlimit(service.process.pid, resource.RLIMIT_NOFILE, (FILES, FILES))
        service.wait_until_ready()
        assert old.get("/healthz").status_code == 200
        with idle_connections(service.port) as connections:
            answer = connections[-1].makefile("rb").read()  # it is told without having asked
            head, _, body = answer.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 503 ")
            assert "connections of your address are open already" in json.loads(body)["detail"]
            check_works(old, "old")
            check_works(new, "new")
        assert "Traceback" not in service.log_path.read_text()


def idle_websocket(port: int, number: int) -> socket.socket:
    """A WebSocket whose handshake is complete, from one of several addresses: each may open a limited number."""
    address = (f"127.0.1.{1 + number // 100}", 0)
    connection = socket.create_connection(("127.0.0.1", port), timeout=30, source_address=address)
    connection.sendall(HANDSHAKE)
    assert connection.recv(4_096).startswith(b"HTTP/1.1 101 ")
    return connection


def answer_ping(connection: socket.socket) -> None:
    """Wait for the ping that every connection gets, and answer it."""
    ping = connection.recv(6, socket.MSG_WAITALL)
    assert ping[:2] == b"\x89\x04"
    connection.sendall(b"\x8a\x84" + bytes(4) + ping[2:])


@pytest.mark.slow(seconds=40)
def test_a_thousand_idle_websockets_take_20_megabytes_at_most(tmp_path: Path) -> None:
    """It is measured before and after each connection has answered a ping, as all do that are open for long."""
    with contextlib.ExitStack() as stack:
        service = stack.enter_context(Service(tmp_path / "data", "inline"))
        service.wait_until_ready()
        process = psutil.Process(service.process.pid)
        for number in range(20):  # what the first connections make is made once
            stack.enter_context(idle_websocket(service.port, number))
        before = process.memory_info().rss
        opened = [stack.enter_context(idle_websocket(service.port, number)) for number in range(WEBSOCKETS)]
        fresh = (process.memory_info().rss - before) / WEBSOCKETS
        for connection in opened:
            answer_ping(connection)
        service.wait_until_ready()
        settled = (process.memory_info().rss - before) / WEBSOCKETS
        assert max(fresh, settled) <= MAX_IDLE_BYTES, (fresh, settled)
