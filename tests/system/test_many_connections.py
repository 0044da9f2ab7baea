"""A site that may open few files, and an address that opens many connections: what is open goes on."""

import contextlib
import json
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from support.service import Service

pytestmark = [pytest.mark.system, pytest.mark.timeout(300), pytest.mark.slow(seconds=5)]

FILES = 200
CONNECTIONS = 300


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
