"""The composition root: settings in, a running site out. Only this module names concrete classes."""

import asyncio
import contextlib
import fcntl
import gc
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import uvloop

from culver.config import Settings
from culver.delivery.hub import Hub
from culver.errors import Conflict, CulverError, InvalidConfiguration, NotFound, StorageCorrupt
from culver.gateway.app import create_app
from culver.gateway.server import GatewayServer
from culver.gateway.site import Session
from culver.log.commit import GroupCommitter
from culver.log.files import FileLog
from culver.log.log import PublicationLog, Receipt
from culver.matching.index import IndexWriter
from culver.model.event import Event
from culver.pipeline.catalog import Catalog
from culver.pipeline.dividing import open_index
from culver.pipeline.engine import Engine, Progress
from culver.pipeline.files import SiteFiles
from culver.pipeline.head import Head, HeadFile, HeadTracker
from culver.pipeline.notifications import Notifications, NotificationSink
from culver.pipeline.observation import IndexScheme, IndexSlice, PlacementInfo, Queues, SiteObservation
from culver.pipeline.spark.masters import parallelism
from culver.placement.auto import Choice
from culver.registry.block import Block, BlockSpec
from culver.registry.registration import Registration
from culver.registry.registry import SetSummary, SubscriptionSpec
from culver.registry.sqlite import SqliteRegistry

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
) -> Engine:
    """The engine that the settings name; an unknown name lists the known ones."""
    pipeline = settings.pipeline
    if pipeline.engine == "inline":
        from culver.pipeline.inline import InlineEngine

        return InlineEngine(files, log, sink, head, pipeline.batch_events, progress)
    if pipeline.engine == "spark":
        from culver.pipeline.spark.engine import SparkEngine

        conf = (
            {"spark.ui.enabled": "true", **pipeline.spark_conf} if pipeline.spark_ui else pipeline.spark_conf
        )
        return SparkEngine(files, sink, head, pipeline.spark_master, pipeline.batch_events, progress, conf)
    raise InvalidConfiguration(
        f"unknown engine {pipeline.engine!r}; known engines: inline, spark", field="pipeline.engine"
    )


class RunningSite:
    """Everything of one site but its sockets; implements `gateway.site.Site`. Made by `open_site`."""

    def __init__(
        self,
        settings: Settings,
        log: FileLog,
        registry: SqliteRegistry,
        index: IndexWriter,
        choice: Choice,
        hub: Hub,
        progress: Progress,
    ) -> None:
        self._settings = settings
        self._files = SiteFiles(settings.data_dir)
        self._log = log
        self._registry = registry
        self._hub = hub
        self._index = index
        self._tracker = HeadTracker(log.next_offset, index.version, hub.frontier, index.placed.slices)
        self._head = self._tracker.head
        self._head_file = HeadFile.create(self._files.head)
        self._committer = GroupCommitter(log, settings.log, self._on_committed, clock_us)
        self._catalog = Catalog(
            registry,
            index,
            self._tracker,
            hub,
            log_end=lambda: log.next_offset,
            horizon=lambda: hub.stored_frontier,
            on_head_moved=self._head_moved,
            clock_us=clock_us,
        )
        self._choice = choice
        self._began = time.monotonic()
        self._engine = create_engine(settings, self._files, log, self, self._head, progress)
        self._subscriptions = registry.count()  # as of the last housekeeping
        self._left_behind: set[str] = set()  # live subscriptions whose end could not be written yet

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start everything in order of need, and stop it in the opposite one."""
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(self._head_file.close)
            stack.push_async_callback(self._hub.close)
            stack.push_async_callback(self._catalog.close)
            await self._catalog.start()
            # Not before the index has caught up: a driver that an earlier site left behind may still read it.
            self._head = self._tracker.head
            self._head_file.write(self._head)
            stack.push_async_callback(self._engine.stop)
            await self._engine.start()
            await stack.enter_async_context(self._committer)
            keeper = asyncio.create_task(self._keep_house())
            stack.push_async_callback(_cancel, keeper)
            yield

    # --- what moves the head --------------------------------------------------------------------------

    def accept(self, notifications: Notifications, *, stored: bool) -> None:
        """The engine's sink."""
        self._hub.accept(notifications, stored=stored)
        self._tracker.accepted(self._hub.frontier)
        self._head_moved()

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
        return self._engine.ready and self._catalog.trouble is None

    def status(self) -> dict[str, Any]:
        return {
            "ready": self.ready,
            "engine": self._engine.name,
            "state": self._catalog.trouble or self._engine.state,
            "log_first_offset": self._log.first_offset,
            "log_next_offset": self._log.next_offset,
            "delivered_offset": self._hub.frontier,
            "subscriptions": self._subscriptions,
            "index_version": self._index.registry_version,
        }

    def observe(self) -> SiteObservation:
        pipeline, head, end = self._engine.observe(), self._head, self._log.next_offset
        choice, contents = self._choice, self._index.contents()
        return SiteObservation(
            engine=self._engine.name,
            state=self._catalog.trouble or self._engine.state,
            ready=self.ready,
            uptime_seconds=time.monotonic() - self._began,
            log_next_offset=end,
            subscriptions=self._subscriptions,
            placement=PlacementInfo(choice.name, choice.slices, choice.reason),
            queues=Queues(
                commit=self._committer.pending_events,
                index=max(0, end - head.log_end),
                match=max(0, head.log_end - pipeline.position - pipeline.ahead),
                accept=pipeline.ahead,
                mailboxes=self._hub.mailboxes.all_pending(),
            ),
            index=tuple(IndexSlice(number, *each) for number, each in enumerate(contents)),
            pipeline=pipeline,
            schemes=tuple(IndexScheme(name, *each) for name, each in sorted(self._index.schemes().items())),
        )

    def publish(self, events: Sequence[Event]) -> "asyncio.Future[Receipt]":
        return self._committer.publish(events)

    async def subscribe(self, specs: Sequence[SubscriptionSpec]) -> list[Registration]:
        return await self._catalog.add(specs)

    async def subscribe_block(self, spec: BlockSpec) -> Block:
        return await self._catalog.add_block(spec)

    async def sets(self, after: str | None, limit: int) -> list[SetSummary]:
        return await self._catalog.sets(after, limit)

    async def unsubscribe_set(self, name: str) -> int:
        return await self._catalog.remove_set(name)

    async def replace(self, spec: SubscriptionSpec) -> Registration:
        return await self._catalog.replace(spec)

    async def unsubscribe(self, subscription: str) -> Registration:
        return await self._catalog.remove(subscription)

    async def subscription(self, subscription: str) -> Registration:
        return await self._catalog.get(subscription)

    async def subscriptions(self, after: str | None, limit: int) -> list[Registration]:
        return await self._catalog.page(after, limit)

    def pending(self, registration: Registration) -> int:
        return self._hub.pending(registration.id)

    async def open_session(self, registration: Registration, after: int | None = None) -> Session:
        session = await self._hub.open_session(registration, after)
        return session if registration.durable else _LiveSession(session, self)

    async def end_live(self, subscription: str) -> None:
        """End a live subscription now, or when the disk allows it. Never fails."""
        self._left_behind.add(subscription)
        try:
            await self._catalog.remove(subscription)
        except NotFound:
            pass  # it has expired, or was removed by hand
        except CulverError as exc:
            logger.warning("cannot end %s yet: %s", subscription, exc)
            return
        self._left_behind.discard(subscription)

    # --- housekeeping ---------------------------------------------------------------------------------

    async def _keep_house(self) -> None:
        while True:
            await asyncio.sleep(_HOUSEKEEPING_SECONDS)
            try:
                await self._keep_house_once()
            except Exception:
                logger.exception("housekeeping failed and is tried again")

    async def _keep_house_once(self) -> None:
        await self._catalog.remove_expired()
        for subscription in tuple(self._left_behind):
            await self.end_live(subscription)
        self._subscriptions = await self._catalog.count()
        done_with = await self._hub.housekeep(clock_us())
        await self._catalog.forget(done_with.numbers, done_with.blocks)
        await asyncio.to_thread(self._log.trim, min(self._hub.frontier, self._hub.needed_from()))
        await self._catalog.retire(self._hub.index_version)


class _LiveSession:
    """A session whose end is the end of its subscription."""

    def __init__(self, session: Session, site: RunningSite) -> None:
        self._session = session
        self._site = site
        self.registration = session.registration
        self.receive = session.receive
        self.rewind = session.rewind
        self.acknowledge = session.acknowledge

    async def close(self) -> None:
        await self._session.close()
        await self._site.end_live(self.registration.id)


@contextlib.asynccontextmanager
async def open_site(settings: Settings, progress: Progress = lambda text: None) -> AsyncIterator[RunningSite]:
    """A site without its gateway, recovered from the data directory and running."""
    files = SiteFiles(settings.data_dir)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_locked(settings.data_dir))
        progress("opening the publication log")
        log = FileLog(files.log, settings.log)
        stack.callback(log.close)
        registry = SqliteRegistry(files.registry, settings.registry)
        stack.callback(registry.close)
        registry.remove_live(lambda version: log.next_offset, clock_us())
        workers = parallelism(settings.pipeline.spark_master) if settings.pipeline.engine == "spark" else 1
        index, choice = open_index(files.index, settings.pipeline, workers, log, registry.version)
        logger.info("placement %s", choice.reason)
        progress("opening the mailboxes")
        hub = Hub.open(files.delivery, log, settings.delivery, clock_us)
        if hub.frontier > log.next_offset:
            raise StorageCorrupt(
                f"deliveries reach offset {hub.frontier}, but the log in {files.log} ends at {log.next_offset}: log "
                "files are missing. Put them back, or move the whole data directory away to start empty"
            )
        hub.register(registry.registrations())
        site = RunningSite(settings, log, registry, index, choice, hub, progress)
        async with site.running():
            yield site


@contextlib.contextmanager
def _locked(data_dir: Path) -> Iterator[None]:
    """Hold the data directory for this process alone. Raises Conflict where another has it."""
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        lock = (data_dir / "lock").open("a")
    except OSError as exc:
        message = f"cannot use {data_dir} as data directory: {exc.strerror}"
        raise InvalidConfiguration(message, field="data_dir") from exc
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            message = (
                f"another Culver is running on the data directory {data_dir}; stop it, or give --data-dir"
            )
            raise Conflict(message, field="data_dir") from exc
        yield


async def _cancel(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def run_site(settings: Settings, progress: Callable[[str], None], on_ready: OnReady) -> int:
    """Run a site with its gateway until SIGINT or SIGTERM; returns the exit code.

    `on_ready` gets the site's address, and that of Spark's web interface if there is one, once events flow. A second
    signal ends the process at once."""
    # The loop, the log's thread and the inline engine hand each event on to one another; by default a thread
    # may keep the interpreter for 5 ms while another has work.
    sys.setswitchinterval(0.0002)
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
    async with (
        open_site(settings, progress) as site,
        GatewayServer(create_app(site), settings.gateway) as gateway,
    ):
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
