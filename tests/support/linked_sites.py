"""Sites that are only their links, observed; and peers that speak the protocol by hand."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from random import Random
from typing import Any

import uvloop

from culver.overlay import Link, LinkManager, LinkSettings, site_key
from culver.overlay.links.frame_format import Frame, FrameKind, FrameStream, pack_frame
from culver.overlay.links.hello import encode_hello
from support.until import until

Run = Callable[[Coroutine[Any, Any, None]], None]


def run_on(loop: str) -> Run:
    """Runs a test on this kind of event loop; at its end, no task is left."""

    async def whole(body: Coroutine[Any, Any, None]) -> None:
        await body
        await until(lambda: asyncio.all_tasks() == {asyncio.current_task()}, 2.0)

    def start(body: Coroutine[Any, Any, None]) -> None:
        (uvloop.run if loop == "uvloop" else asyncio.run)(whole(body))

    return start


def key_of(name: str) -> str:
    return site_key(name, name.encode().ljust(8, b"."))


class ObservedSite:
    """A manager that is observed: what happened, in order, and which frames arrived."""

    def __init__(self, settings: LinkSettings, name: str, boot: int) -> None:
        self.events: list[tuple[str, str, str]] = []
        self.bodies: list[tuple[int, bytes]] = []
        self.refusals: list[tuple[str, str]] = []
        self.fails_at = b"never"
        self.manager = LinkManager(settings, key_of(name), boot, self, Random(f"{name}{boot}"))

    def opened(self, link: Link) -> None:
        self.events.append(("opened", link.peer.key, link.peer.label))

    def received(self, link: Link, body: bytes) -> None:
        if body == self.fails_at:
            raise RuntimeError("the observer fails")
        self.bodies.append((link.number, body))

    def closed(self, link: Link, reason: str) -> None:
        self.events.append(("closed", link.peer.key, reason))

    def refused(self, address: str, reason: str) -> None:
        self.refusals.append((address, reason))

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.manager.port}"

    @property
    def links(self) -> list[Link]:
        return list(self.manager.links.values())

    def link(self) -> Link:
        (only,) = self.manager.links.values()
        return only

    def count(self, kind: str) -> int:
        return sum(event[0] == kind for event in self.events)


@asynccontextmanager
async def site(name: str, *peers: str, boot: int = 1, **settings: Any) -> AsyncIterator[ObservedSite]:
    settings = {"listen": "127.0.0.1:0", "peers": peers, **settings}
    made = ObservedSite(LinkSettings(**settings), name, boot)
    async with made.manager:
        yield made
    assert made.count("opened") == made.count("closed")
    assert not made.manager.links


class FakePeer:
    """Speaks the protocol by hand, as well or as badly as a test wants."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._stream = FrameStream(1 << 24)
        self._frames: list[Frame] = []

    def say(self, kind: FrameKind, content: bytes = b"") -> None:
        self.writer.write(pack_frame(kind, content))

    def say_hello(self, name: str, *, boot: int = 1, label: str = "", cost: int = 1) -> None:
        self.say(FrameKind.HELLO, encode_hello(key_of(name), boot, label, cost, 1 << 20))

    async def hear(self) -> Frame:
        while not self._frames:
            chunk = await self.reader.read(65_536)
            if not chunk:
                raise EOFError
            self._frames.extend(self._stream.split(chunk))
        return self._frames.pop(0)

    async def hear_kind(self, kind: FrameKind) -> bytes:
        while (frame := await self.hear()).kind is not kind:
            pass
        return frame.content

    async def hear_all(self) -> list[Frame]:
        frames = []
        try:
            while True:
                frames.append(await self.hear())
        except (EOFError, ConnectionError):
            return frames


@asynccontextmanager
async def fake_peer(port: int) -> AsyncIterator[FakePeer]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield FakePeer(reader, writer)
    finally:
        writer.transport.abort()
        await asyncio.sleep(0)


@asynccontextmanager
async def linked_fake(
    at: ObservedSite, name: str, *, boot: int = 1, label: str = ""
) -> AsyncIterator[FakePeer]:
    """A fake peer with a larger key than the site's, which therefore opens the link."""
    async with fake_peer(at.manager.port) as fake:
        fake.say_hello(name, boot=boot, label=label)
        await fake.hear_kind(FrameKind.OPEN)
        yield fake


@contextmanager
def reserved_port() -> Iterator[int]:
    """A port where nobody answers until a site listens there; no other process gets it meanwhile."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()[1]
