"""How a running site is doing, gathered from its parts when somebody asks."""

import time
from typing import Any

from culver.control import (
    Catalogue,
    GatewayInfo,
    IndexScheme,
    IndexSlice,
    PlacementInfo,
    SiteObservation,
    SiteQueues,
)
from culver.delivery import Hub
from culver.log import Committer, PublicationLog
from culver.matching import IndexWriter
from culver.pipeline import Engine
from culver.placement import Choice
from culver.site.event_flow import EventFlow
from culver.site.gateway_group import GatewayGroup


class SiteObserver:
    """Implements the role `observation`. Housekeeping counts the `subscriptions` about once a second."""

    def __init__(
        self,
        flow: EventFlow,
        log: PublicationLog,
        committer: Committer,
        catalogue: Catalogue,
        index: IndexWriter,
        choice: Choice,
        engine: Engine,
        hub: Hub,
        group: GatewayGroup,
        subscriptions: int,
    ) -> None:
        self.subscriptions = subscriptions
        self._flow = flow
        self._log = log
        self._committer = committer
        self._catalogue = catalogue
        self._index = index
        self._choice = choice
        self._engine = engine
        self._hub = hub
        self._group = group
        self._began = time.monotonic()

    async def refresh(self) -> None:
        """Nothing to do: every part is in this process."""

    @property
    def ready(self) -> bool:
        return self._engine.ready and self._catalogue.trouble is None and self._group.started

    @property
    def _state(self) -> str:
        return self._catalogue.trouble or self._group.trouble or self._engine.state

    def status(self) -> dict[str, Any]:
        return {
            "ready": self.ready,
            "engine": self._engine.name,
            "state": self._state,
            "log_first_offset": self._log.first_offset,
            "log_next_offset": self._log.next_offset,
            "delivered_offset": self._group.frontier(self._hub.frontier),
            "subscriptions": self.subscriptions,
            "index_version": self._index.registry_version,
        }

    def observe(self) -> SiteObservation:
        pipeline, head, end = self._engine.observe(), self._flow.head, self._log.next_offset
        choice, contents = self._choice, self._index.contents_of_slices()
        own = GatewayInfo(0, self._group.ports[0], "running", self._hub.subscriptions, self._hub.sessions)
        return SiteObservation(
            engine=self._engine.name,
            state=self._state,
            ready=self.ready,
            uptime_seconds=time.monotonic() - self._began,
            log_next_offset=end,
            subscriptions=self.subscriptions,
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
            deliveries_sent=self._group.deliveries_sent(without=0),
            gateways=(own, *self._group.infos()),
        )
