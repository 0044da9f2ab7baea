"""The site as it serves a further gateway process: the object in which the peer looks requests up."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from culver.control import SiteObservation, SlicesView
from culver.registry import Registration, SubscriptionSpec
from culver.roles import Site, Subscriptions
from culver.site.live_subscriptions import LiveSubscriptions


class ServedSite:
    """Has the roles of `site` under the same names. `is_gone` tells whether the gateway process has ended, and
    `sent_elsewhere` how many deliveries the other gateways have sent."""

    def __init__(
        self,
        site: Site,
        live: LiveSubscriptions,
        is_gone: Callable[[], bool],
        sent_elsewhere: Callable[[], int],
    ) -> None:
        self.publications = site.publications
        self.subscriptions = ServedSubscriptions(site.subscriptions, live, is_gone)
        self.sessions = site.sessions
        self.slices = site.slices
        self._observation = site.observation
        self._sent_elsewhere = sent_elsewhere

    def look(self) -> tuple[dict[str, Any], SiteObservation, SlicesView]:
        """Tell everything that the gateway's `observation.refresh` asks for, in one answer."""
        seen = replace(self._observation.observe(), deliveries_sent=self._sent_elsewhere())
        return self._observation.status(), seen, self.slices.view()


class ServedSubscriptions:
    """Ends a live subscription if the process of its connection dies before it hears of it."""

    def __init__(
        self, subscriptions: Subscriptions, live: LiveSubscriptions, is_gone: Callable[[], bool]
    ) -> None:
        self._subscriptions = subscriptions
        self._live = live
        self._is_gone = is_gone

    def __getattr__(self, method: str) -> Any:
        return getattr(self._subscriptions, method)

    async def add(self, specs: Sequence[SubscriptionSpec]) -> list[Registration]:
        added = await self._subscriptions.add(specs)
        for each in added if self._is_gone() else ():
            if not each.durable:
                await self._live.end(each.id)
        return added
