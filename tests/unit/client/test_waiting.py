"""The first connection may wait for a site that is not there yet."""

import asyncio
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import culver
from culver.cli import main
from culver.client.link import Link
from culver.client.websocket_connection import Connection
from support.fake_site import FakeSite
from support.gateway import gateway_settings, run, served
from support.service import free_port
from support.site_thread import site_in_thread
from support.until import until


@asynccontextmanager
async def _answering(status: str, port: int = 0) -> AsyncIterator[tuple[int, list[str]]]:
    """A proxy without a site: answers every request with the status. Yields its port and the requests."""
    requests: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", port)
    try:
        yield server.sockets[0].getsockname()[1], requests
    finally:
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize("status", ["502 Bad Gateway", "503 Service Unavailable", "504 Gateway Timeout"])
def test_the_first_connection_waits_for_a_port_that_refuses_and_a_proxy_without_its_site(status: str) -> None:
    async def scenario() -> None:
        port = free_port()
        client = culver.connect(f"http://127.0.0.1:{port}", wait_seconds=60)
        entering = asyncio.create_task(client.__aenter__())
        async with _answering(status, port) as (_, requests):
            await until(lambda: requests)
        assert not entering.done()
        async with served(FakeSite(gateway_settings(port=port))):
            await entering
            assert (await client.publish(n=1)).first_offset == 0
            await client.close()

    run(scenario())


def test_when_the_time_is_over_the_error_has_the_last_reason() -> None:
    async def scenario() -> None:
        async with _answering("502 Bad Gateway") as (port, requests):
            with pytest.raises(culver.ConnectionFailed) as caught:
                async with culver.connect(f"http://127.0.0.1:{port}", wait_seconds=2):
                    pass
        assert len(requests) > 1
        assert caught.value.message.startswith(f"waited 2 s in vain: http://127.0.0.1:{port} answered 502 ")
        assert caught.value.details["status"] == 502

    run(scenario())


def test_an_answer_that_waiting_cannot_change_is_raised_at_once() -> None:
    async def scenario() -> None:
        async with _answering("404 Not Found") as (port, requests):
            client = culver.connect(f"http://127.0.0.1:{port}", wait_seconds=600)
            with pytest.raises(culver.ConnectionFailed, match="answered 404"):
                await client.__aenter__()
            assert client.state is culver.ClientState.CLOSED
        assert len(requests) == 1

    run(scenario())


def test_a_server_that_never_answers_is_waited_for_no_longer_than_asked() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with (
            pytest.raises(culver.ConnectionFailed, match=r"waited 0\.2 s in vain: .* did not answer"),
            culver.connect_sync(url, wait_seconds=0.2),
        ):
            pass


def test_without_waiting_nothing_is_sent_before_the_first_call() -> None:
    async def scenario() -> None:
        async with culver.connect(f"http://127.0.0.1:{free_port()}") as client:
            with pytest.raises(culver.ConnectionFailed, match="connection refused"):
                await client.publish(n=1)

    run(scenario())


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_a_time_that_is_none_is_refused(seconds: float) -> None:
    with pytest.raises(culver.InvalidRequest, match="wait_seconds"):
        culver.connect(wait_seconds=seconds)


@pytest.fixture
def first_attempt(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Is set once a connection to a site has been tried for the first time."""
    tried = threading.Event()
    connection = Link.connection

    async def watched(self: Link) -> Connection:
        try:
            return await connection(self)
        finally:
            tried.set()

    monkeypatch.setattr(Link, "connection", watched)
    return tried


def test_the_synchronous_client_waits_too(first_attempt: threading.Event) -> None:
    port = free_port()
    receipts: list[culver.Receipt] = []

    def publish() -> None:
        with culver.connect_sync(f"http://127.0.0.1:{port}", wait_seconds=60) as client:
            receipts.append(client.publish(n=1))

    publisher = threading.Thread(target=publish)
    publisher.start()
    assert first_attempt.wait(60)
    with site_in_thread(FakeSite(gateway_settings(port=port))):
        publisher.join(60)
    assert [receipt.first_offset for receipt in receipts] == [0]


def test_the_command_line_waits_for_the_site(
    first_attempt: threading.Event, capsys: pytest.CaptureFixture[str]
) -> None:
    port = free_port()
    codes: list[int] = []
    arguments = ["pub", '{"n": 1}', "--wait", "60", "--url", f"http://127.0.0.1:{port}"]
    publisher = threading.Thread(target=lambda: codes.append(main(arguments)))
    publisher.start()
    assert first_attempt.wait(60)
    with site_in_thread(FakeSite(gateway_settings(port=port))):
        publisher.join(60)
    assert codes == [0]
    assert capsys.readouterr().out == "1 event at offset 0\n"


def test_a_command_that_waited_in_vain_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sub", "TRUE", "--wait", "0.1", "--url", f"http://127.0.0.1:{free_port()}"]) != 0
    assert "waited 0.1 s in vain" in capsys.readouterr().err


def test_an_interrupt_ends_the_waiting_of_the_synchronous_client() -> None:
    program = """
import sys, threading, culver
try:
    print("waiting", flush=True)
    with culver.connect_sync(sys.argv[1], wait_seconds=600):
        pass
except KeyboardInterrupt:
    print([thread.name for thread in threading.enumerate()])
"""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with subprocess.Popen(
            [sys.executable, "-c", program, url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                silent.settimeout(60)
                peer, _ = silent.accept()  # it has connected, and waits for the answer
                with peer:
                    process.send_signal(signal.SIGINT)
                    output, errors = process.communicate(timeout=60)
            finally:
                process.kill()
    assert (output, errors) == ("waiting\n['MainThread']\n", "")
