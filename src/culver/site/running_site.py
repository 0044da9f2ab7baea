"""A site that runs: its roles, and the order in which its parts start and stop."""

import contextlib
import logging
from collections.abc import AsyncIterator, Callable

from culver.config import Settings
from culver.control import Catalogue, Slices
from culver.delivery import Hub, Share
from culver.log import Committer, PublicationLog
from culver.pipeline import Engine, LoadReport
from culver.site.event_flow import EventFlow
from culver.site.gateway_group import GatewayGroup
from culver.site.gateway_messages import Welcome
from culver.site.gateway_supervisor import GatewayRun
from culver.site.housekeeping import Housekeeping
from culver.site.hub_sessions import HubSessions
from culver.site.live_subscriptions import LiveSubscriptions
from culver.site.served_site import ServedSite
from culver.site.site_observer import SiteObserver


class RunningSite:
    """Everything of one site but its own gateway. Implements `roles.Site`: the committer takes publications, and the
    catalogue holds the subscriptions."""

    def __init__(
        self,
        settings: Settings,
        publications: Committer,
        subscriptions: Catalogue,
        sessions: HubSessions,
        slices: Slices,
        observation: SiteObserver,
        live: LiveSubscriptions,
        flow: EventFlow,
        log: PublicationLog,
        engine: Engine,
        hub: Hub,
        group: GatewayGroup,
        housekeeping: Housekeeping,
    ) -> None:
        self.settings = settings
        self.publications = publications
        self.subscriptions = subscriptions
        self.sessions = sessions
        self.slices = slices
        self.observation = observation
        self._live = live
        self._flow = flow
        self._log = log
        self._engine = engine
        self._hub = hub
        self._group = group
        self._housekeeping = housekeeping

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start each part after those that it needs, and stop them in the opposite order."""
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self._hub.close)
            stack.push_async_callback(self.subscriptions.close)
            # The index catches up before the engine starts: a driver of an earlier site may still read it.
            await self.subscriptions.start()
            self._flow.head_moved()
            self._engine.tell(LoadReport(registrations=self.observation.subscriptions))
            stack.push_async_callback(self._engine.stop)
            await self._engine.start()
            await stack.enter_async_context(self.publications)
            await stack.enter_async_context(self._housekeeping.running())
            yield

    @contextlib.asynccontextmanager
    async def with_gateways(self, port: int, deliveries_sent: Callable[[], int]) -> AsyncIterator[None]:
        """Run the further gateways too. The site's own gateway listens on `port` and counts `deliveries_sent`."""
        self._group.own_port, self._group.own_deliveries_sent = port, deliveries_sent
        async with self._group.running(self._serve, self._welcome):
            yield

    def _serve(self, run: GatewayRun) -> ServedSite:
        return ServedSite(
            self,
            self._live,
            is_gone=lambda: run.peer.lost.is_set(),
            sent_elsewhere=lambda: self._group.deliveries_sent(without=run.number),
        )

    def _welcome(self, share: Share) -> Welcome:
        ranges = tuple(
            (item.start, item.notifications.start, item.notifications.end)
            for item in self._hub.mailboxes.ranges
        )
        return Welcome(
            self.settings,
            share,
            self._group.ports,
            ranges,
            self._hub.frontier,
            self._log.address,
            self._log.next_offset,
            logging.getLogger().getEffectiveLevel(),
        )
