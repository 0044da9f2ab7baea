"""The main process of a site: it serves clients until a signal comes."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable

from culver.gateway import GatewayServer, create_app
from culver.pipeline import Progress
from culver.process_setup import freeze_objects
from culver.site.running_site import RunningSite

OnReady = Callable[[str, str | None], None]


def stop_signal(progress: Progress) -> asyncio.Event:
    """An event that SIGINT and SIGTERM set. A second signal ends the process at once."""
    stop = asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            os._exit(130)
        progress("stopping")
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    return stop


async def serve(site: RunningSite, stop: asyncio.Event, on_ready: OnReady) -> None:
    """Serve clients with all gateways of the site until `stop` is set. Once events flow, `on_ready` gets the site's
    address, and that of Spark's web interface if there is one."""
    async with contextlib.AsyncExitStack() as stack:
        app = create_app(site)
        gateway = await stack.enter_async_context(GatewayServer(app, site.settings.gateway))
        sent: Callable[[], int] = app.state.gateway.metrics.deliveries_sent
        await stack.enter_async_context(site.with_gateways(gateway.port, sent))
        announcer = asyncio.create_task(_announce(site, gateway.url, on_ready))
        await stop.wait()
        announcer.cancel()
        await asyncio.gather(announcer, return_exceptions=True)


async def _announce(site: RunningSite, url: str, on_ready: OnReady) -> None:
    while not site.observation.ready:  # noqa: ASYNC110 - an engine's readiness can only be polled, as by /readyz
        await asyncio.sleep(0.02)
    freeze_objects()
    on_ready(url, site.observation.observe().pipeline.spark_ui)
