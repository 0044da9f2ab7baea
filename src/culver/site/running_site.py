"""A site that runs: its parts, how they start and stop, its housekeeping, its roles, and how it serves clients."""

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from culver.config import Settings
from culver.control import (
    Catalogue,
    ClockFile,
    GatewayInfo,
    IndexScheme,
    IndexSlice,
    PlacementInfo,
    SiteClock,
    SiteObservation,
    SiteQueues,
    slices_of,
)
from culver.delivery import Hub, LogHistory, Share, told_once
from culver.disk_reserve import DiskReserve
from culver.gateway import GatewayServer, create_app
from culver.log import Committer, PublicationLog
from culver.matching import IndexWriter
from culver.pipeline import Engine, LoadReport, Progress
from culver.placement import PlacementChoice
from culver.process_setup import freeze_objects, repeated
from culver.sealed import SealFile
from culver.site.event_flow import EventFlow
from culver.site.gateway_group import GatewayGroup
from culver.site.gateway_messages import Welcome
from culver.site.gateway_supervisor import GatewayRun
from culver.site.remote_site import ServedSite
from culver.site.roles.hub_sessions import HubSessions, LiveSubscriptions
from culver.site.roles.site_publications import SitePublications
from culver.site.roles.user_subscriptions import UserSubscriptions
from culver.site.site_channels import channels_of
from culver.site.site_overlay import overlay_of

_FULL = (
    "the disk is full: publications and new subscriptions are refused until acknowledgements, removals and lower "
    "limits have freed space"
)

OnReady = Callable[[str, str | None, str | None], None]


@dataclass(frozen=True, slots=True)
class SiteParts:
    settings: Settings
    log: PublicationLog
    committer: Committer
    publications: SitePublications
    catalogue: Catalogue
    index: IndexWriter
    choice: PlacementChoice
    flow: EventFlow
    engine: Engine
    hub: Hub
    group: GatewayGroup
    identity: bytes
    clock: SiteClock
    clock_file: ClockFile
    reserve: DiskReserve
    seals: tuple[SealFile, ...]


class RunningSite:
    """Everything of one site but its own gateway. Implements `roles.Site`: the catalogue holds the subscriptions, of
    which there are so many at the start."""

    def __init__(self, parts: SiteParts, subscriptions: int) -> None:
        group, hub = parts.group, parts.hub
        self.settings = parts.settings
        self.publications = parts.publications
        self.subscriptions = UserSubscriptions(parts.catalogue, parts.clock.ahead_us)
        self.live = LiveSubscriptions(parts.catalogue.remove)
        self.sessions = HubSessions(
            hub, group.share, group.ports, self.live, partial(group.count_pending, own=hub.pending)
        )
        self.history = LogHistory(parts.log)
        self.channels = channels_of(parts.settings, hub, parts.identity)
        self.overlay = overlay_of(
            parts.settings, parts.log, parts.committer, parts.catalogue, hub, parts.identity
        )
        self.observation = SiteObserver(parts, subscriptions, lambda: self.overlay.mailboxes)
        self.slices = slices_of(
            parts.index, parts.catalogue, self.observation.observe, parts.log, parts.settings.pipeline
        )
        self._parts = parts

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start each part after those that it needs, and stop them in the opposite order."""
        parts = self._parts
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(lambda: parts.clock_file.write(parts.clock.now_us()))
            stack.push_async_callback(parts.hub.close)
            stack.push_async_callback(parts.catalogue.close)
            # The index catches up before the engine starts: a driver of an earlier site may still read it.
            await parts.catalogue.start()
            parts.flow.head_moved()
            parts.engine.tell(LoadReport(registrations=self.observation.subscriptions))
            stack.push_async_callback(parts.engine.stop)
            await parts.engine.start()
            stack.push_async_callback(parts.publications.store)
            await stack.enter_async_context(parts.committer)
            await stack.enter_async_context(self.channels.running())
            await stack.enter_async_context(self.overlay.running(parts.flow))
            await stack.enter_async_context(repeated(self.keep_house))
            await stack.enter_async_context(repeated(self.slices.tick))
            yield

    async def keep_house(self) -> None:
        """Remove, trim and retire what nobody needs any more."""
        parts, hub, group = self._parts, self._parts.hub, self._parts.group
        parts.clock.follow()
        now_us = parts.clock.now_us()
        await parts.catalogue.remove_expired(now_us)
        await self.live.try_again()
        self.observation.subscriptions = await parts.catalogue.count()
        finished = group.take_finished(await hub.housekeep(now_us))
        await parts.catalogue.forget(finished.numbers, finished.blocks)
        needed = min(hub.frontier, hub.needed_from(), group.needed_from())
        needed = min(self.overlay.needed_from(needed), parts.publications.needed_from())
        await asyncio.to_thread(self._trim, needed, now_us)
        await parts.catalogue.retire(hub.mailboxes.index_version)
        if parts.reserve.spent:
            await asyncio.to_thread(parts.reserve.restore)
        await asyncio.to_thread(self._sync_seals)
        # This comes last because it writes: a full disk must not keep the steps above from making room.
        load = parts.engine.observe().load
        parts.engine.tell(msgspec.structs.replace(load, registrations=self.observation.subscriptions))
        await parts.publications.keep_house(now_us)
        if parts.clock_file.is_due(now_us):
            await asyncio.to_thread(parts.clock_file.write, now_us)

    def _trim(self, needed: int, now_us: int) -> None:
        """Let go of what no mailbox needs, and history does not have to keep. A full disk has no room for history."""
        log, keep_seconds = self._parts.log, self.settings.log.retention_seconds
        if keep_seconds and not self._parts.reserve.spent:
            needed = min(needed, log.offset_at(now_us - keep_seconds * 1_000_000))
        log.trim(needed)

    def _sync_seals(self) -> None:
        # Nobody waits for this: a seal proves more after a power cut if it is on disk, and is not needed otherwise.
        for seal in self._parts.seals:
            with contextlib.suppress(OSError):
                seal.sync()

    @contextlib.asynccontextmanager
    async def with_gateways(self, port: int, deliveries_sent: Callable[[], int]) -> AsyncIterator[None]:
        """Run the further gateways too. The site's own gateway listens on `port` and counts `deliveries_sent`."""
        group = self._parts.group
        group.own_port, group.own_deliveries_sent = port, deliveries_sent
        async with group.running(self._serve, self._welcome):
            yield

    def _serve(self, run: GatewayRun) -> ServedSite:
        return ServedSite(
            self,
            self.live,
            is_gone=lambda: run.peer.lost.is_set(),
            sent_elsewhere=lambda: self._parts.group.deliveries_sent(without=run.number),
            give_up_reserve=lambda: asyncio.to_thread(self._parts.reserve.give_up),
        )

    def _welcome(self, share: Share) -> Welcome:
        hub, log = self._parts.hub, self._parts.log
        return Welcome(
            settings=self.settings,
            identity=self._parts.identity,
            share=share,
            ports=self._parts.group.ports,
            ranges=tuple(
                (each.start, each.notifications.start, each.notifications.end)
                for each in hub.mailboxes.ranges
            ),
            frontier=hub.frontier,
            log_address=log.address,
            next_offset=log.next_offset,
            log_level=logging.getLogger().getEffectiveLevel(),
            now_us=self._parts.clock.now_us(),
        )


class SiteObserver:
    """Implements the role `observation`. Housekeeping counts the `subscriptions`. `remote_mailboxes` tells how many
    of the hub's mailboxes are those of other sites."""

    def __init__(self, parts: SiteParts, subscriptions: int, remote_mailboxes: Callable[[], int]) -> None:
        self.subscriptions = subscriptions
        self._remote_mailboxes = remote_mailboxes
        self._parts = parts
        self._began = time.monotonic()

    async def refresh(self) -> None:
        """Nothing to do: every part is in this process."""

    @property
    def ready(self) -> bool:
        parts = self._parts
        troubles = (parts.log.refusal, parts.catalogue.trouble)
        return parts.engine.ready and parts.group.started and not any(troubles)

    @property
    def _state(self) -> str:
        parts = self._parts
        full = _FULL if parts.reserve.spent else None
        return (
            parts.log.refusal or parts.catalogue.trouble or full or parts.group.trouble or parts.engine.state
        )

    def status(self) -> dict[str, Any]:
        parts = self._parts
        return {
            "ready": self.ready,
            "engine": parts.engine.name,
            "state": self._state,
            "log_first_offset": parts.log.first_offset,
            "log_next_offset": parts.log.next_offset,
            "delivered_offset": parts.group.frontier(parts.hub.frontier),
            "subscriptions": self.subscriptions,
            "index_version": parts.index.registry_version,
            "log_damage": [each._asdict() for each in told_once([*parts.log.damage, *parts.hub.lost])],
        }

    def observe(self) -> SiteObservation:
        parts, hub, group = self._parts, self._parts.hub, self._parts.group
        pipeline, head, end = parts.engine.observe(), parts.flow.head, parts.log.next_offset
        own = hub.subscriptions - self._remote_mailboxes()
        contents = parts.index.contents_of_slices()
        return SiteObservation(
            engine=parts.engine.name,
            state=self._state,
            ready=self.ready,
            uptime_seconds=time.monotonic() - self._began,
            log_next_offset=end,
            subscriptions=self.subscriptions,
            placement=PlacementInfo(parts.choice.name, len(contents), parts.choice.reason),
            queues=SiteQueues(
                commit=parts.committer.pending_events,
                index=max(0, end - head.log_end),
                match=max(0, head.log_end - pipeline.position - pipeline.ahead),
                accept=pipeline.ahead,
                mailboxes=hub.mailboxes.columns.all_pending() + group.pending,
            ),
            index=tuple(IndexSlice(number, *each) for number, each in enumerate(contents)),
            pipeline=pipeline,
            schemes=tuple(IndexScheme(name, *each) for name, each in sorted(parts.index.schemes().items())),
            deliveries_sent=group.deliveries_sent(without=0),
            gateways=(
                GatewayInfo(0, group.ports[0], "running", own, hub.sessions),
                *group.infos(),
            ),
        )


def pause_log(log: PublicationLog, reserve: DiskReserve) -> None:
    """Have the log take no events while the reserve is spent."""
    reserve.on_change = lambda spent: log.pause(_FULL if spent else None)
    reserve.on_change(reserve.spent)


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
    address, that of Spark's web interface if there is one, and where in an overlay the site is, if it is in one."""
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
    on_ready(url, site.observation.observe().pipeline.spark_ui, site.overlay.description)
