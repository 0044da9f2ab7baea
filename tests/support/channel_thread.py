"""Real Redis servers and the one page by which clients find them, in a thread of their own."""

import asyncio
import base64
import threading
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from culver.channels.core.reserved_names import PLAN_KEY, PLAN_MARK
from culver.channels.servers.local_servers import LocalServers, LocalServerSettings
from culver.channels.servers.redis_link import RedisLink
from culver.channels.service_directory import ServiceDirectory
from support.redis_servers import PROGRAMS
from support.service import free_port

T = TypeVar("T")


class ChannelThread:
    """`url` is for clients. The page and the servers can go away and come back."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.asked = 0
        self._folder = folder
        self._page = b""
        self._listener: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._stack = AsyncExitStack()
        self._pool: LocalServers | None = None

    async def open(self, servers: int) -> None:
        settings = LocalServerSettings(program=PROGRAMS["valkey"])
        self._pool = await self._stack.enter_async_context(LocalServers(self._folder, settings))
        for _ in range(servers):
            await self._pool.start()
        await self._prepare_servers()
        addresses = list(self._pool.servers)
        directory = ServiceDirectory(
            version=1,
            servers=addresses,
            homes=[each.number for each in addresses],
            secret=base64.b64encode(b"secret").decode(),
        )
        self._page = msgspec.json.encode(directory)

    async def close(self) -> None:
        await self.hide()
        await self._stack.aclose()

    async def show(self) -> None:
        self._listener = await asyncio.start_server(self._answer, "127.0.0.1", self.port)

    async def hide(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    async def restart_servers(self) -> None:
        assert self._pool is not None
        for server in self._pool.servers:
            await self._pool.restart(server.number)
        await self._prepare_servers()

    async def _prepare_servers(self) -> None:
        """Tell clients that the servers have their plan, as the service does."""
        assert self._pool is not None
        for server in self._pool.servers:
            link = RedisLink(server.url, access=self._pool.access(server.number))
            await link.connect()
            await link.request((b"HSET", PLAN_KEY, PLAN_MARK, b"1"))
            link.close()
            await link.wait_closed()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something on the thread's loop, from another thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    @contextmanager
    def in_thread(self) -> Iterator["ChannelThread"]:
        thread = threading.Thread(target=self._loop.run_forever, name="channels")
        thread.start()
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join()
            self._loop.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked += 1
        await reader.readuntil(b"\r\n\r\n")
        head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(self._page)
        writer.write(head + self._page)
        await writer.drain()
        writer.close()


@contextmanager
def channel_thread(folder: Path, servers: int = 2) -> Iterator[ChannelThread]:
    """A directory that can be reached, and its servers."""
    directory = ChannelThread(folder)
    with directory.in_thread():
        try:
            directory.run(directory.open(servers))
            directory.run(directory.show())
            yield directory
        finally:
            directory.run(directory.close())
