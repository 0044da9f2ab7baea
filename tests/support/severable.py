"""A TCP relay in front of a server, whose connections a test can cut."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Severable:
    """Clients connect to `url`. `sever` cuts every connection that is open; while `refusing`, new ones are
    cut at once; while not `flowing`, the server's bytes are held back."""

    def __init__(self, port: int) -> None:
        self.upstream_port = port
        self.refusing = False
        self.accepted = 0
        self.flowing = asyncio.Event()
        self.flowing.set()
        self.url = ""
        self._writers: set[asyncio.StreamWriter] = set()

    def sever(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            if not self.refusing:
                self.accepted += 1
                await self._relay(reader, writer)
        except OSError:
            pass  # cut
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection("127.0.0.1", self.upstream_port)
        self._writers.add(to_server)
        try:
            pumps = [
                asyncio.create_task(self._pump(reader, to_server, held=False)),
                asyncio.create_task(self._pump(from_server, writer, held=True)),
            ]
            _, rest = await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            for pump in rest:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
        finally:
            self._writers.discard(to_server)
            to_server.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, held: bool) -> None:
        while chunk := await reader.read(65_536):
            if held:
                await self.flowing.wait()
            writer.write(chunk)
            await writer.drain()


@asynccontextmanager
async def severable(port: int) -> AsyncIterator[Severable]:
    relay = Severable(port)
    server = await asyncio.start_server(relay.accept, "127.0.0.1", 0)
    relay.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield relay
    finally:
        server.close()
        relay.sever()
        await server.wait_closed()
