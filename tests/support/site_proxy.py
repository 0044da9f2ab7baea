"""A reverse proxy in front of a site, for browsers: it serves pages too, and answers 502 while the site is away."""

import asyncio
import contextlib
import mimetypes
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec

from culver.loop_thread import LoopThread

REPORT = "/report"


class SiteProxy:
    """Clients connect to `url`. It serves the files of each folder in `folders` below its path, and passes everything
    else on to the site, headers and WebSockets included. While `away`, or while nobody listens there, it answers 502.
    What a page posts to `REPORT` is the newest of `reports`."""

    def __init__(self, site_port: int, folders: dict[str, Path]) -> None:
        self.url = ""
        self.away = False
        self.refused = 0
        self.reports: list[Any] = []
        self._site_port = site_port
        self._folders = folders
        self._connections: set[asyncio.Task[None]] = set()

    @contextlib.contextmanager
    def running(self) -> Iterator["SiteProxy"]:
        thread = LoopThread("site-proxy", self._serve())
        try:
            yield self
        finally:
            thread.close()

    @contextlib.asynccontextmanager
    async def _serve(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield
        finally:
            server.close()
            for connection in self._connections:
                connection.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            await self._answer(head, reader, writer)
            await writer.drain()
            writer.close()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the browser has left, or the site was killed
        finally:
            self._connections.discard(task)
            if not writer.is_closing():
                writer.transport.abort()

    async def _answer(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = head.split(b" ", 2)[1].decode().partition("?")[0]
        if path == REPORT:
            length = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
            assert length is not None
            self.reports.append(msgspec.json.decode(await reader.readexactly(int(length[1]))))
            _respond(writer, b"", "text/plain")
        elif (file := self._file(path)) is not None:
            _respond(writer, file.read_bytes(), mimetypes.guess_type(file.name)[0] or "text/plain")
        else:
            await self._pass_on(head, reader, writer)

    def _file(self, path: str) -> Path | None:
        for prefix, folder in self._folders.items():
            if path.startswith(prefix):
                return folder / path.removeprefix(prefix)
        return None

    async def _pass_on(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self.away:
                raise ConnectionRefusedError
            from_site, to_site = await asyncio.open_connection("127.0.0.1", self._site_port)
        except OSError:
            self.refused += 1
            _respond(writer, b"<h1>502 Bad Gateway</h1>", "text/html", "502 Bad Gateway")
            return
        if b"\r\nupgrade: websocket" not in head.lower():
            # One request for each connection: the next one may be for a file.
            head = re.sub(rb"\r\nconnection: [^\r]*", b"\r\nConnection: close", head, flags=re.IGNORECASE)
        to_site.write(head)
        pumps = [asyncio.create_task(_pump(reader, to_site)), asyncio.create_task(_pump(from_site, writer))]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            to_site.transport.abort()


def _respond(writer: asyncio.StreamWriter, body: bytes, content_type: str, status: str = "200 OK") -> None:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
    writer.write(f"{head}Connection: close\r\n\r\n".encode() + body)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(65_536):
        writer.write(chunk)
        await writer.drain()
