"""A site that runs: its roles, and the order in which its parts start and stop."""

import contextlib
import logging
from collections.abc import AsyncIterator, Callable

from culver.control import Slices
from culver.delivery import Share
from culver.pipeline import LoadReport
from culver.site.gateway_messages import Welcome
from culver.site.gateway_supervisor import GatewayRun
from culver.site.housekeeping import Housekeeping
from culver.site.hub_sessions import HubSessions
from culver.site.remote_site import ServedSite
from culver.site.site_observer import SiteObserver
from culver.site.site_parts import SiteParts


class RunningSite:
    """Everything of one site but its own gateway. Implements `roles.Site`: the committer takes publications, and the
    catalogue holds the subscriptions."""

    def __init__(
        self,
        parts: SiteParts,
        sessions: HubSessions,
        slices: Slices,
        observation: SiteObserver,
        housekeeping: Housekeeping,
    ) -> None:
        self.settings = parts.settings
        self.publications = parts.committer
        self.subscriptions = parts.catalogue
        self.sessions = sessions
        self.slices = slices
        self.observation = observation
        self._parts = parts
        self._housekeeping = housekeeping

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start each part after those that it needs, and stop them in the opposite order."""
        parts = self._parts
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(parts.hub.close)
            stack.push_async_callback(parts.catalogue.close)
            # The index catches up before the engine starts: a driver of an earlier site may still read it.
            await parts.catalogue.start()
            parts.flow.head_moved()
            parts.engine.tell(LoadReport(registrations=self.observation.subscriptions))
            stack.push_async_callback(parts.engine.stop)
            await parts.engine.start()
            await stack.enter_async_context(parts.committer)
            await stack.enter_async_context(self._housekeeping.running())
            yield

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
            self._parts.live,
            is_gone=lambda: run.peer.lost.is_set(),
            sent_elsewhere=lambda: self._parts.group.deliveries_sent(without=run.number),
        )

    def _welcome(self, share: Share) -> Welcome:
        hub, log = self._parts.hub, self._parts.log
        return Welcome(
            settings=self.settings,
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
        )
