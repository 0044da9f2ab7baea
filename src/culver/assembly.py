"""The composition root: settings in, a running site out. Only this module names concrete classes.

It also puts a further gateway process together, which the site starts as
`python -m culver.assembly gateway SOCKET LISTENER DATA_DIR`.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

from culver.config import Settings
from culver.control import (
    Catalogue,
    ElasticityController,
    ElasticSlices,
    FixedSlices,
    SiteObservation,
    SliceMeter,
    dividing_of,
    elasticity_settings,
    open_index,
    recent_events,
)
from culver.delivery import Hub, Share
from culver.errors import InvalidConfiguration, StorageCorrupt
from culver.gateway import GatewayServer, create_app
from culver.log import FollowedLog, PublicationLog
from culver.matching import IndexWriter
from culver.pipeline import (
    Engine,
    Head,
    HeadTracker,
    NotificationSink,
    Progress,
    SiteFiles,
    parallelism,
)
from culver.placement import MPartition
from culver.plugins import open_log, open_reader
from culver.process_setup import LOG_FORMAT, freeze_objects, run_process
from culver.registry import Block, Registration, SqliteRegistry
from culver.site import (
    EventFlow,
    GatewayFollower,
    GatewayGroup,
    Housekeeping,
    HubSessions,
    LiveSubscriptions,
    RemoteSite,
    RunningSite,
    SiteObserver,
    Welcome,
    check_gateways,
    gateway_lock,
    listeners,
    site_lock,
)

logger = logging.getLogger(__name__)

OnReady = Callable[[str, str | None], None]


def clock_us() -> int:
    return time.time_ns() // 1000


def create_engine(
    settings: Settings,
    files: SiteFiles,
    log: PublicationLog,
    sink: NotificationSink,
    head: Head,
    progress: Progress,
    *,
    elastic: bool,
) -> Engine:
    """The engine that the settings name; an unknown name lists the known ones. With `elastic` slices come and go."""
    pipeline = settings.pipeline
    if pipeline.engine == "inline":
        from culver.pipeline import InlineEngine

        return InlineEngine(files, log, sink, head, pipeline.batch_events, progress, pipeline.forwarding)
    if pipeline.engine == "spark":
        from culver.pipeline import SparkEngine

        conf = (
            {"spark.ui.enabled": "true", **pipeline.spark_conf} if pipeline.spark_ui else pipeline.spark_conf
        )
        return SparkEngine(
            files,
            log.address,
            sink,
            head,
            pipeline.spark_master,
            pipeline.batch_events,
            progress,
            conf,
            pipeline.forwarding,
            elastic=elastic,
        )
    raise InvalidConfiguration(
        f"unknown engine {pipeline.engine!r}; known engines: inline, spark", field="pipeline.engine"
    )


@contextlib.asynccontextmanager
async def open_site(settings: Settings, progress: Progress = lambda text: None) -> AsyncIterator[RunningSite]:
    """Recover a site from its data directory and run it, without its own gateway."""
    files = SiteFiles(settings.data_dir)
    check_gateways(settings)
    elasticity_settings(settings.pipeline)
    with contextlib.ExitStack() as stack:
        stack.enter_context(site_lock(settings.data_dir))
        sockets = [stack.enter_context(listener) for listener in listeners(settings)]
        group = GatewayGroup(sockets, settings.data_dir)
        progress("opening the publication log")
        log = open_log(files.log_address, settings.log)
        stack.callback(log.close)
        registry = SqliteRegistry(files.registry, settings.registry)
        stack.callback(registry.close)
        registry.remove_live(lambda version: log.next_offset, clock_us())
        workers = parallelism(settings.pipeline.spark_master) if settings.pipeline.engine == "spark" else 1
        index, choice = open_index(files.index, settings.pipeline, workers, log, registry.version)
        logger.info("placement %s", choice.reason)
        progress("opening the mailboxes")
        share = Share(0, group.gateways)
        hub = Hub.open(files.delivery, log, settings.delivery, clock_us, share, group)
        if hub.frontier > log.next_offset:
            raise StorageCorrupt(
                f"deliveries reach offset {hub.frontier}, but the log {log.address} ends at {log.next_offset}: log "
                "files are missing. Put them back, or move the whole data directory away to start empty"
            )
        hub.register(registry.registrations())

        tracker = HeadTracker(log.next_offset, index.version, hub.frontier, index.placed.slices)
        flow = EventFlow(log, hub, group, tracker)
        elastic = settings.pipeline.elastic and isinstance(index.slicing, MPartition)
        engine = create_engine(settings, files, log, flow, flow.head, progress, elastic=elastic)
        flow.engine = engine
        committer = log.committer(flow.committed, clock_us, flow.committing)
        catalogue = Catalogue(
            registry,
            index,
            tracker,
            flow,
            log_end=lambda: log.next_offset,
            horizon=lambda: hub.stored_frontier,
            on_head_moved=flow.head_moved,
            clock_us=clock_us,
        )
        live = LiveSubscriptions(catalogue.remove)
        sessions = HubSessions(
            hub, share, group.ports, live, lambda several: group.count_pending(several, hub.pending)
        )
        observer = SiteObserver(
            flow, log, committer, catalogue, index, choice, engine, hub, group, registry.count()
        )
        meter = SliceMeter()
        slices = _slices(settings, index, catalogue, observer.observe, meter, log)
        housekeeping = Housekeeping(
            log, catalogue, live, engine, hub, group, observer, meter, slices, clock_us
        )
        site = RunningSite(
            settings,
            committer,
            catalogue,
            sessions,
            slices,
            observer,
            live,
            flow,
            log,
            engine,
            hub,
            group,
            housekeeping,
        )
        async with site.running():
            yield site


def _slices(
    settings: Settings,
    index: IndexWriter,
    catalogue: Catalogue,
    observe: Callable[[], SiteObservation],
    meter: SliceMeter,
    log: PublicationLog,
) -> ElasticSlices | FixedSlices:
    if not isinstance(index.slicing, MPartition):
        return FixedSlices(observe, meter)
    return ElasticSlices(
        index,
        catalogue,
        observe,
        meter,
        partial(recent_events, log),
        dividing_of(settings.pipeline) if index.placed.name == MPartition.name else None,
        settings.pipeline.forwarding,
        ElasticityController(elasticity_settings(settings.pipeline)) if settings.pipeline.elastic else None,
    )


def run_site(settings: Settings, progress: Progress, on_ready: OnReady) -> int:
    """Run a site with its gateways until SIGINT or SIGTERM; returns the exit code.

    `on_ready` gets the site's address, and that of Spark's web interface if there is one, once events flow. A second
    signal ends the process at once."""
    return run_process(_run_site(settings, progress, on_ready))


async def _run_site(settings: Settings, progress: Progress, on_ready: OnReady) -> int:
    stop = asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            os._exit(130)
        progress("stopping")
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    async with open_site(settings, progress) as site, contextlib.AsyncExitStack() as stack:
        app = create_app(site)
        gateway = await stack.enter_async_context(GatewayServer(app, settings.gateway))
        sent: Callable[[], int] = app.state.gateway.metrics.deliveries_sent
        await stack.enter_async_context(site.with_gateways(gateway.port, sent))
        announcer = asyncio.create_task(_announce(site, gateway.url, on_ready))
        await stop.wait()
        announcer.cancel()
        await asyncio.gather(announcer, return_exceptions=True)
    return 0


async def _announce(site: RunningSite, url: str, on_ready: OnReady) -> None:
    while not site.observation.ready:  # noqa: ASYNC110 - an engine's readiness can only be polled, as by /readyz
        await asyncio.sleep(0.02)
    freeze_objects()
    on_ready(url, site.observation.observe().pipeline.spark_ui)


def run_gateway(peer_handle: int, listener_handle: int, data_dir: Path) -> int:
    """Run a further gateway process until its site ends or SIGTERM comes; returns the exit code."""
    logging.basicConfig(level=logging.WARNING, format=LOG_FORMAT, stream=sys.stderr)
    half, listener = socket.socket(fileno=peer_handle), socket.socket(fileno=listener_handle)
    with half, listener, gateway_lock(data_dir):
        return run_process(_run_gateway(half, listener))


async def _run_gateway(half: socket.socket, listener: socket.socket) -> int:
    async with GatewayFollower.connected(half, clock_us) as follower, contextlib.AsyncExitStack() as stack:
        welcome = await follower.welcome()
        if welcome is None:
            return 0
        logging.getLogger().setLevel(welcome.log_level)
        settings, files = welcome.settings, SiteFiles(welcome.settings.data_dir)
        log = FollowedLog(open_reader(welcome.log_address), welcome.next_offset)
        hub, followed = Hub.follow(
            files.delivery, log, settings.delivery, welcome.share, welcome.ranges, welcome.frontier
        )
        stack.push_async_callback(hub.close)
        follower.follow(hub, followed, log, await asyncio.to_thread(_registrations, welcome))
        site = RemoteSite(settings, welcome.share, welcome.ports, follower.peer, hub)
        if not await follower.end_orphans(site):
            return 0
        app = create_app(site)
        await stack.enter_async_context(GatewayServer(app, settings.gateway, listener=listener))
        freeze_objects()
        return await follower.run(site, app.state.gateway.metrics.deliveries_sent)


def _registrations(welcome: Welcome) -> list[Registration | Block]:
    """The registrations of the share, ended ones too, and all blocks: each gateway has a part of every block."""
    files = SiteFiles(welcome.settings.data_dir)
    with SqliteRegistry(files.registry, welcome.settings.registry) as registry:
        return [
            each
            for each in registry.registrations()
            if isinstance(each, Block) or welcome.share.owns(each.id)
        ]


if __name__ == "__main__":
    assert sys.argv[1] == "gateway"
    sys.exit(run_gateway(int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])))
