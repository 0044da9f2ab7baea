"""Real servers with a directory of them over HTTP, as a service without dispatchers and balancer."""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from culver.channels.core.channel_plan import Ring, ServerAddress
from culver.channels.core.envelope import pack_ring
from culver.channels.core.reserved_names import PLAN_KEY, PLAN_MARK, RING_KEY
from culver.channels.servers.local_servers import LocalServers, LocalServerSettings
from culver.channels.servers.redis_link import RedisLink
from culver.channels.service_directory import ServiceDirectory
from support.redis_servers import PROGRAMS

SECRET = b"s" * 32


@asynccontextmanager
async def http_server(answer: Callable[[], bytes], status: str = "200 OK") -> AsyncIterator[str]:
    """A server that answers every request alike; yields its URL."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            body = answer()
            head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            writer.write(head.encode() + body)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client has gone
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await server.wait_closed()


def directory_of(ring: Ring) -> ServiceDirectory:
    secret = base64.b64encode(SECRET).decode()
    return ServiceDirectory(ring.version, list(ring.servers), list(ring.homes), secret)


@dataclass
class ListedServers:
    """``links`` has a connection to each server for the test's own questions."""

    url: str
    pool: LocalServers
    ring: Ring
    links: dict[int, RedisLink] = field(default_factory=dict)

    async def clients(self, server: int) -> list[dict[str, str]]:
        """What CLIENT LIST says of the clients that use this library."""
        reply = await self.links[server].request((b"CLIENT", b"LIST"))
        text = reply["txt"] if isinstance(reply, dict) else reply
        assert isinstance(text, bytes)
        found = [
            dict(word.partition("=")[::2] for word in line.split()) for line in text.decode().splitlines()
        ]
        return [client for client in found if client["name"].startswith("culver-")]

    async def cut(self, server: int, kind: str) -> None:
        """Closes all connections of a kind, ``publish`` or ``subscribe``, to a server."""
        for client in await self.clients(server):
            if client["name"].endswith(kind):
                await self.links[server].request((b"CLIENT", b"KILL", b"ID", client["id"].encode()))


@asynccontextmanager
async def listed_servers(
    folder: Path, servers: int = 1, settings: LocalServerSettings | None = None
) -> AsyncIterator[ListedServers]:
    settings = settings or LocalServerSettings(program=PROGRAMS["valkey"])
    async with LocalServers(folder, settings) as pool:
        addresses: list[ServerAddress] = [await pool.start() for _ in range(servers)]
        ring = Ring(1, tuple(addresses), tuple(address.number for address in addresses))
        body = msgspec.json.encode(directory_of(ring))
        async with http_server(lambda: body) as url:
            service = ListedServers(url, pool, ring)
            for address in addresses:
                link = RedisLink(address.url, access=pool.access(address.number))
                await link.connect()
                service.links[address.number] = link
                await link.request((b"SET", RING_KEY, pack_ring(ring, SECRET)))
                await link.request((b"HSET", PLAN_KEY, PLAN_MARK, b"1"))
            try:
                yield service
            finally:
                for link in service.links.values():
                    link.close()
                    await link.wait_closed()
