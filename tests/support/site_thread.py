"""A gateway with a site in memory, on an event loop in a thread of its own: for code that blocks."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager

from support.fake_site import FakeSite
from support.gateway import gateway_settings, served


@contextmanager
def site_in_thread(site: FakeSite | None = None) -> Iterator[str]:
    """The address of the gateway, which is stopped at the end."""
    address: Future[str] = Future()
    stopper: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def work() -> None:
        async with served(site or FakeSite(gateway_settings())) as server:
            done = asyncio.Event()
            stopper.set_result((asyncio.get_running_loop(), done))
            address.set_result(server.url)
            await done.wait()

    thread = threading.Thread(target=lambda: asyncio.run(work()), name="site")
    thread.start()
    url = address.result(10)
    try:
        yield url
    finally:
        loop, done = stopper.result()
        loop.call_soon_threadsafe(done.set)
        thread.join()
