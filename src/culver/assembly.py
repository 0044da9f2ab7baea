"""The composition root: settings in, a running site out. Only this module names concrete classes.

It also puts a further gateway process together, which the site starts as
`python -m culver.assembly gateway SOCKET LISTENER DATA_DIR`.
"""

import asyncio
import contextlib
import logging
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from culver.config import Settings
from culver.control import Catalogue, ClockFile, SiteClock, elasticity_settings, open_index
from culver.delivery import Hub
from culver.disk_reserve import DiskReserve
from culver.errors import StorageCorrupt
from culver.log import FollowedLog, PublicationLog, PublishersFile
from culver.pipeline import EngineSetup, HeadTracker, Progress, SiteFiles
from culver.placement import MPartition
from culver.plugins import engine_named, open_log, open_reader
from culver.process_setup import LOG_FORMAT, clock_us, run_process
from culver.registry import Block, Registration, SqliteRegistry
from culver.sealed import SealFile, read_seal, seal_path
from culver.site import (
    EventFlow,
    GatewayFollower,
    GatewayGroup,
    OnReady,
    RemoteSite,
    RunningSite,
    SiteParts,
    SitePublications,
    Welcome,
    channels_of,
    check_channels,
    check_gateways,
    check_overlay,
    gateway_lock,
    listeners,
    pause_log,
    serve,
    site_lock,
    stop_signal,
)

logger = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def open_site(settings: Settings, progress: Progress = lambda text: None) -> AsyncIterator[RunningSite]:
    """Recover a site from its data directory and run it, without its gateways."""
    pipeline, files = settings.pipeline, SiteFiles(settings.data_dir)
    engine_type = engine_named(pipeline.engine)
    check_gateways(settings.gateway, engine_type)
    check_channels(settings.channels)
    check_overlay(settings.overlay)
    elasticity_settings(pipeline)
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(site_lock(settings.data_dir))
        sockets = [stack.enter_context(listener) for listener in listeners(settings.gateway)]
        group = GatewayGroup(sockets, settings.data_dir)
        reserve = DiskReserve(files.reserve, settings.log.reserve_bytes)
        reserve.open()
        stack.callback(reserve.close)
        clock_file = ClockFile(files.clock)
        clock = SiteClock.after(clock_file.read())
        progress("opening the publication log")
        log = open_log(files.log_address, settings.log)
        stack.callback(log.close)
        pause_log(log, reserve)
        log_seal = _sealed(log, files.log)
        stack.callback(log_seal.close)
        registry = SqliteRegistry(files.registry, settings.registry)
        stack.callback(registry.close)
        progress("opening the mailboxes")
        hub = Hub.open(
            files.delivery, log, settings.delivery, clock.now_us, group.share, group, reserve.give_up
        )
        stack.push_async_callback(hub.close)
        if hub.frontier > log.next_offset:
            raise StorageCorrupt(
                f"deliveries reach offset {hub.frontier}, but the log {log.address} ends at {log.next_offset}: log "
                "files are missing. Put them back, or move the whole data directory away to start empty"
            )
        # An index may lack filters that have been replaced, which the registry still has.
        unfit = [f"{name} is matched again" for name in hub.damaged]
        index, choice = open_index(
            files.index, pipeline, engine_type.parallelism(pipeline), log, registry.version, unfit
        )
        logger.info("placement %s", choice.reason)
        registry.remove_live(lambda version: log.next_offset, clock_us())
        hub.register(registry.registrations())
        tracker = HeadTracker(log.next_offset, index.version, hub.frontier, index.placement.slices)
        flow = EventFlow(log, hub, group, tracker, log_seal)
        elastic = pipeline.elastic and isinstance(index.partitioner, MPartition)
        engine = engine_type(EngineSetup(pipeline, files, log, flow, flow.head, progress, elastic))
        flow.engine = engine
        committer = log.committer(flow, clock.now_us)
        publishers_file = PublishersFile(files.publishers)
        memory = publishers_file.recover(log, settings.publishing)
        publications = SitePublications(log, committer, memory, publishers_file, settings.log)
        catalogue = Catalogue(
            registry,
            index,
            tracker,
            flow,
            log_end=lambda: log.next_offset,
            horizon=lambda: hub.stored_frontier,
            clock_us=clock_us,
            reserve=reserve,
        )
        parts = SiteParts(
            settings,
            log,
            committer,
            publications,
            catalogue,
            index,
            choice,
            flow,
            engine,
            hub,
            group,
            registry.identity,
            clock,
            clock_file,
            reserve,
            (log_seal, registry.seal, hub.seal),
        )
        site = RunningSite(parts, registry.count())
        async with site.running():
            yield site


def _sealed(log: PublicationLog, directory: Path) -> SealFile:
    """The seal of a log, which counts its events. Raises StorageCorrupt where acknowledged ones are missing at the
    end: the log takes damage there for a group that was never finished, and cuts it off."""
    sealed = read_seal(directory) or 0
    if sealed > log.next_offset:
        last = max(directory.glob("*.log"), default=directory)
        raise StorageCorrupt(
            f"the log ends at offset {log.next_offset}, but events up to offset {sealed} were acknowledged, as "
            f"{seal_path(directory)} proves: {last} was damaged at its end, or files are missing. Restore the file "
            "from a copy; without one, docs/storage.md tells how to go on without these events",
            path=str(last),
        )
    seal = SealFile(directory)
    seal.write(log.next_offset)
    return seal


def run_site(settings: Settings, progress: Progress, on_ready: OnReady) -> int:
    """Run a site with its gateways until SIGINT or SIGTERM; returns the exit code. See `site.serve`."""

    async def run() -> int:
        stop = stop_signal(progress)
        async with open_site(settings, progress) as site:
            await serve(site, stop, on_ready)
        return 0

    return run_process(run())


def run_gateway(peer_handle: int, listener_handle: int, data_dir: Path) -> int:
    """Run a further gateway process until its site ends or SIGTERM comes; returns the exit code."""
    logging.basicConfig(level=logging.WARNING, format=LOG_FORMAT, stream=sys.stderr)
    half, listener = socket.socket(fileno=peer_handle), socket.socket(fileno=listener_handle)
    with half, listener, gateway_lock(data_dir):
        return run_process(_run_gateway(half, listener))


async def _run_gateway(half: socket.socket, listener: socket.socket) -> int:
    async with GatewayFollower.connected(half) as follower, contextlib.AsyncExitStack() as stack:
        welcome = await follower.welcome()
        if welcome is None:
            return 0
        logging.getLogger().setLevel(welcome.log_level)
        settings, files = welcome.settings, SiteFiles(welcome.settings.data_dir)
        log = FollowedLog(open_reader(welcome.log_address), welcome.next_offset)
        hub, followed = Hub.follow(
            files.delivery,
            log,
            settings.delivery,
            welcome.share,
            welcome.ranges,
            welcome.frontier,
            follower.ask_for_reserve,
        )
        stack.push_async_callback(hub.close)
        follower.follow(hub, followed, log, await asyncio.to_thread(_registrations, welcome))
        channels = channels_of(settings, hub, welcome.identity)
        await stack.enter_async_context(channels.running())
        site = RemoteSite(settings, welcome.share, welcome.ports, follower.peer, hub, channels, log)
        return await follower.serve(site, listener)


def _registrations(welcome: Welcome) -> list[Registration | Block]:
    """The registrations of the share, ended ones too, and all blocks: each gateway has a part of every block."""
    files = SiteFiles(welcome.settings.data_dir)
    with SqliteRegistry(files.registry, welcome.settings.registry, check=False) as registry:
        return [
            each
            for each in registry.registrations()
            if isinstance(each, Block) or welcome.share.owns(each.id)
        ]


if __name__ == "__main__":
    assert sys.argv[1] == "gateway"
    sys.exit(run_gateway(int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])))
