"""How a running site is doing, gathered from its parts when somebody asks."""

import time
from typing import Any

from culver.control import GatewayInfo, IndexScheme, IndexSlice, PlacementInfo, SiteObservation, SiteQueues
from culver.site.site_parts import SiteParts


class SiteObserver:
    """Implements the role `observation`. Housekeeping counts the `subscriptions` about once a second."""

    def __init__(self, parts: SiteParts, subscriptions: int) -> None:
        self.subscriptions = subscriptions
        self._parts = parts
        self._began = time.monotonic()

    async def refresh(self) -> None:
        """Nothing to do: every part is in this process."""

    @property
    def ready(self) -> bool:
        parts = self._parts
        return parts.engine.ready and parts.catalogue.trouble is None and parts.group.started

    @property
    def _state(self) -> str:
        parts = self._parts
        return parts.catalogue.trouble or parts.group.trouble or parts.engine.state

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
        }

    def observe(self) -> SiteObservation:
        parts, hub, group = self._parts, self._parts.hub, self._parts.group
        pipeline, head, end = parts.engine.observe(), parts.flow.head, parts.log.next_offset
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
                mailboxes=hub.mailboxes.all_pending() + group.pending,
            ),
            index=tuple(IndexSlice(number, *each) for number, each in enumerate(contents)),
            pipeline=pipeline,
            schemes=tuple(IndexScheme(name, *each) for name, each in sorted(parts.index.schemes().items())),
            deliveries_sent=group.deliveries_sent(without=0),
            gateways=(
                GatewayInfo(0, group.ports[0], "running", hub.subscriptions, hub.sessions),
                *group.infos(),
            ),
        )
