"""The composition root: settings in, a running site out. Only this module names concrete classes."""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import uvloop

from culver.config import Settings
from culver.control import (
    Catalogue,
    ElasticityController,
    ElasticSlices,
    FixedSlices,
    GatewayInfo,
    IndexScheme,
    IndexSlice,
    PlacementInfo,
    SiteObservation,
    SiteQueues,
    SliceMeter,
    Slices,
    SlicesView,
    dividing_of,
    elasticity_settings,
    open_index,
    recent_events,
)
from culver.delivery import Hub, Share, share_of
from culver.errors import InvalidConfiguration, StorageCorrupt
from culver.gateway import GatewayServer, create_app
from culver.log import CommitReceipt, PublicationLog
from culver.matching import IndexWriter
from culver.model import Event
from culver.pipeline import (
    Engine,
    Head,
    HeadFile,
    HeadTracker,
    LoadReport,
    Notifications,
    NotificationSink,
    Progress,
    SiteFiles,
    parallelism,
)
from culver.placement import Choice, MPartition
from culver.plugins import open_log
from culver.registry import Block, BlockSpec, Registration, SetSummary, SqliteRegistry, SubscriptionSpec
from culver.roles import Session
from culver.site import Group, LiveSubscriptions, Methods, Welcome, check_gateways, listeners, site_lock

logger = logging.getLogger(__name__)

_HOUSEKEEPING_SECONDS = 1.0
# The garbage collector stops the loop, for tens of milliseconds where it walks all that 40,000 subscriptions are
# made of, and by default it does that every few seconds. What a site lets go of is hardly ever a cycle. The young are
# few at a time, for less than half a millisecond.
_COLLECTIONS = (3_000, 30, 50)

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


class RunningSite:
    """Everything of one site but its sockets; implements `gateway.site.Site`. Made by `open_site`."""

    def __init__(
        self,
        settings: Settings,
        log: PublicationLog,
        registry: SqliteRegistry,
        index: IndexWriter,
        choice: Choice,
        hub: Hub,
        group: Group,
        progress: Progress,
    ) -> None:
        self._settings = settings
        self._group = group
        self._port = settings.gateway.port
        self._deliveries_sent: Callable[[], int] = lambda: 0
        self._files = SiteFiles(settings.data_dir)
        self._log = log
        self._registry = registry
        self._hub = hub
        self._index = index
        self._tracker = HeadTracker(log.next_offset, index.version, hub.frontier, index.placed.slices)
        self._head = self._tracker.head
        self._head_file = HeadFile.create(self._files.head)
        self._committer = log.committer(self._on_committed, clock_us, self._on_committing)
        self._catalogue = Catalogue(
            registry,
            index,
            self._tracker,
            self,
            log_end=lambda: log.next_offset,
            horizon=lambda: hub.stored_frontier,
            on_head_moved=self._head_moved,
            clock_us=clock_us,
        )
        self._choice = choice
        self._began = time.monotonic()
        elastic = settings.pipeline.elastic and isinstance(index.slicing, MPartition)
        self._engine = create_engine(settings, self._files, log, self, self._head, progress, elastic=elastic)
        self._subscriptions = registry.count()  # as of the last housekeeping
        self._meter = SliceMeter()
        self._elastic: ElasticSlices | None = None
        if isinstance(index.slicing, MPartition):
            self._elastic = ElasticSlices(
                index,
                self._catalogue,
                self.observe,
                self._meter,
                partial(recent_events, log),
                dividing_of(settings.pipeline) if index.placed.name == MPartition.name else None,
                settings.pipeline.forwarding,
                ElasticityController(elasticity_settings(settings.pipeline))
                if settings.pipeline.elastic
                else None,
            )
        self.slices: Slices = self._elastic or FixedSlices(self.observe, self._meter)
        self._live = LiveSubscriptions(self._catalogue.remove)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start everything in order of need, and stop it in the opposite one."""
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(self._head_file.close)
            stack.push_async_callback(self._hub.close)
            stack.push_async_callback(self._catalogue.close)
            await self._catalogue.start()
            # Not before the index has caught up: a driver that an earlier site left behind may still read it.
            self._head = self._tracker.head
            self._head_file.write(self._head)
            self._engine.tell(LoadReport(registrations=self._subscriptions))
            stack.push_async_callback(self._engine.stop)
            await self._engine.start()
            await stack.enter_async_context(self._committer)
            for work in (self._keep_house_once, self._look_at_slices):
                stack.push_async_callback(_cancel, asyncio.create_task(_regularly(work)))
            yield

    @contextlib.asynccontextmanager
    async def with_gateways(self, port: int, deliveries_sent: Callable[[], int]) -> AsyncIterator[None]:
        """Run the further gateways too, once the site's own listens on `port`; it tells how much it has sent."""
        self._port, self._deliveries_sent = port, deliveries_sent
        async with self._group.running(self._methods, self._welcome):
            yield

    def _welcome(self, share: Share) -> Welcome:
        ranges = tuple(
            (item.start, item.notifications.start, item.notifications.end)
            for item in self._hub.mailboxes.ranges
        )
        ports = (self._port, *self._group.ports)
        level = logging.getLogger().getEffectiveLevel()
        return Welcome(
            self._settings,
            share,
            ports,
            ranges,
            self._hub.frontier,
            self._log.address,
            self._log.next_offset,
            level,
        )

    def _methods(self, number: int) -> Methods:
        """What a gateway may ask of the site."""

        def look() -> tuple[dict[str, Any], SiteObservation, SlicesView]:
            sent = self._deliveries_sent() + self._group.deliveries_sent(without=number)
            return self.status(), replace(self.observe(), deliveries_sent=sent), self.slices.view()

        async def subscribe(specs: Sequence[SubscriptionSpec]) -> list[Registration]:
            is_gone = self._group.watch(number)
            made = await self.subscribe(specs)
            for each in made if is_gone() else ():
                if not each.durable:  # its connection ended with the gateway
                    await self._live.end(each.id)
            return made

        async def subscribe_block(spec: BlockSpec) -> Block:
            return replace(await self.subscribe_block(spec), values=b"")

        return {
            "look": look,
            "publish": self.publish,
            "subscribe": subscribe,
            "subscribe_block": subscribe_block,
            "sets": self.sets,
            "unsubscribe_set": self.unsubscribe_set,
            "replace": self.replace,
            "unsubscribe": self.unsubscribe,
            "subscription": self.subscription,
            "subscriptions": self.subscriptions,
            "pending": self.pending,
            "add_slice": self.slices.add,
            "remove_slice": self.slices.remove,
        }

    def register(self, registrations: Iterable[Registration | Block]) -> None:
        """The catalogue's sink."""
        changed = list(registrations)
        self._hub.register(changed)
        self._group.register(changed)

    # --- what moves the head --------------------------------------------------------------------------

    def accept(self, notifications: Notifications, *, stored: bool) -> None:
        """The engine's sink."""
        before = self._hub.frontier
        self._hub.accept(notifications, stored=stored)
        frontier = self._hub.frontier
        if frontier > before:
            self._group.accepted(notifications.start, notifications.end, self._log.next_offset)
        self._tracker.accepted(frontier)
        self._head_moved()

    def _on_committing(self, first_offset: int, batches: Sequence[pa.RecordBatch]) -> None:
        self._engine.foresee(first_offset, batches)

    def _on_committed(self, first_offset: int, events: Sequence[Event]) -> None:
        self._hub.payloads.remember(first_offset, [event.payload for event in events])
        self._tracker.committed(first_offset + len(events))
        self._head_moved()

    def _head_moved(self) -> None:
        head = self._tracker.head
        if head != self._head:
            self._head = head
            if self._engine.reads_head_file:
                self._head_file.write(head)
            self._engine.follow(head)

    # --- gateway.site.Site ----------------------------------------------------------------------------

    @property
    def settings(self) -> Settings:
        return self._settings

    @property
    def ready(self) -> bool:
        return self._engine.ready and self._catalogue.trouble is None and self._group.started

    @property
    def _state(self) -> str:
        return self._catalogue.trouble or self._group.trouble or self._engine.state

    async def refresh(self) -> None:
        """It is all here."""

    def status(self) -> dict[str, Any]:
        return {
            "ready": self.ready,
            "engine": self._engine.name,
            "state": self._state,
            "log_first_offset": self._log.first_offset,
            "log_next_offset": self._log.next_offset,
            "delivered_offset": self._group.frontier(self._hub.frontier),
            "subscriptions": self._subscriptions,
            "index_version": self._index.registry_version,
        }

    def observe(self) -> SiteObservation:
        pipeline, head, end = self._engine.observe(), self._head, self._log.next_offset
        choice, contents = self._choice, self._index.contents_of_slices()
        return SiteObservation(
            engine=self._engine.name,
            state=self._state,
            ready=self.ready,
            uptime_seconds=time.monotonic() - self._began,
            log_next_offset=end,
            subscriptions=self._subscriptions,
            placement=PlacementInfo(choice.name, len(contents), choice.reason),
            queues=SiteQueues(
                commit=self._committer.pending_events,
                index=max(0, end - head.log_end),
                match=max(0, head.log_end - pipeline.position - pipeline.ahead),
                accept=pipeline.ahead,
                mailboxes=self._hub.mailboxes.all_pending() + self._group.pending,
            ),
            index=tuple(IndexSlice(number, *each) for number, each in enumerate(contents)),
            pipeline=pipeline,
            schemes=tuple(IndexScheme(name, *each) for name, each in sorted(self._index.schemes().items())),
            deliveries_sent=self._group.deliveries_sent(),
            gateways=(
                GatewayInfo(0, self._port, "running", self._hub.subscriptions, self._hub.sessions),
                *self._group.infos(),
            ),
        )

    def publish(self, events: Sequence[Event]) -> "asyncio.Future[CommitReceipt]":
        return self._committer.publish(events)

    async def subscribe(self, specs: Sequence[SubscriptionSpec]) -> list[Registration]:
        return await self._catalogue.add(specs)

    async def subscribe_block(self, spec: BlockSpec) -> Block:
        return await self._catalogue.add_block(spec)

    async def sets(self, after: str | None, limit: int) -> list[SetSummary]:
        return await self._catalogue.sets(after, limit)

    async def unsubscribe_set(self, name: str) -> int:
        return await self._catalogue.remove_set(name)

    async def replace(self, spec: SubscriptionSpec) -> Registration:
        return await self._catalogue.replace(spec)

    async def unsubscribe(self, subscription: str) -> Registration:
        return await self._catalogue.remove(subscription)

    async def subscription(self, subscription: str) -> Registration:
        return await self._catalogue.get(subscription)

    async def subscriptions(self, after: str | None, limit: int) -> list[Registration]:
        return await self._catalogue.page(after, limit)

    async def pending(self, registrations: Sequence[Registration]) -> list[int]:
        others = await self._group.ask_pending([each.id for each in registrations if each.durable])
        return [
            others[each.id] if each.id in others else self._hub.pending(each.id) for each in registrations
        ]

    def elsewhere(self, subscription: str) -> int | None:
        number = share_of(subscription, self._group.gateways)
        return self._group.ports[number - 1] if number else None

    def new_live_id(self) -> str:
        return Share(0, self._group.gateways).new_live_id()

    async def open_session(self, registration: Registration, after: int | None = None) -> Session:
        session = await self._hub.open_session(registration, after)
        return session if registration.durable else self._live.session(session)

    # --- housekeeping ---------------------------------------------------------------------------------

    async def _keep_house_once(self) -> None:
        pipeline = self._engine.observe()
        self._meter.observe(time.monotonic(), self._log.next_offset, pipeline.position, pipeline.slices)
        await self._catalogue.remove_expired()
        await self._live.try_again()
        self._subscriptions = await self._catalogue.count()
        done_with = self._group.take_finished(await self._hub.housekeep(clock_us()))
        await self._catalogue.forget(done_with.numbers, done_with.blocks)
        needed = min(self._hub.frontier, self._hub.needed_from(), self._group.needed_from())
        await asyncio.to_thread(self._log.trim, needed)
        await self._catalogue.retire(self._hub.index_version)
        # Last, because it writes: on a full disk that fails, and room must be made all the same.
        self._engine.tell(replace(pipeline.load, registrations=self._subscriptions))

    async def _look_at_slices(self) -> None:
        if self._elastic is not None:
            await self._elastic.tick()


async def _regularly(work: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(_HOUSEKEEPING_SECONDS)
        try:
            await work()
        except Exception:
            logger.exception("housekeeping failed and is tried again")


@contextlib.asynccontextmanager
async def open_site(settings: Settings, progress: Progress = lambda text: None) -> AsyncIterator[RunningSite]:
    """A site without its gateways, recovered from the data directory and running."""
    files = SiteFiles(settings.data_dir)
    check_gateways(settings)
    elasticity_settings(settings.pipeline)
    with contextlib.ExitStack() as stack:
        stack.enter_context(site_lock(settings.data_dir))
        sockets = [stack.enter_context(listener) for listener in listeners(settings)]
        group = Group(sockets, settings.data_dir)
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
        site = RunningSite(settings, log, registry, index, choice, hub, group, progress)
        async with site.running():
            yield site


async def _cancel(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def run_site(settings: Settings, progress: Callable[[str], None], on_ready: OnReady) -> int:
    """Run a site with its gateway until SIGINT or SIGTERM; returns the exit code.

    `on_ready` gets the site's address, and that of Spark's web interface if there is one, once events flow. A second
    signal ends the process at once."""
    # The loop must not wait for a thread beside it that works; by default one may keep the interpreter for 5 ms while
    # another has work.
    sys.setswitchinterval(0.00005)
    gc.set_threshold(*_COLLECTIONS)
    return uvloop.run(_run(settings, progress, on_ready))


async def _run(settings: Settings, progress: Callable[[str], None], on_ready: OnReady) -> int:
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
        await _cancel(announcer)
    return 0


async def _announce(site: RunningSite, url: str, on_ready: OnReady) -> None:
    while not site.ready:  # noqa: ASYNC110 - an engine's readiness is asked for, here as by /readyz
        await asyncio.sleep(0.02)
    # What start-up has made stays; a full collection would walk it again and again, and stop the loop for it.
    gc.collect()
    gc.freeze()
    on_ready(url, site.observe().pipeline.spark_ui)
