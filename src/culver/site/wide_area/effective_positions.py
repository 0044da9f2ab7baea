"""From where on this site's subscriptions are in effect at the others, and whoever waits for that."""

import asyncio
from collections.abc import Callable, Iterable, Sequence

from culver.overlay import RoutingNode, name_of
from culver.registry import Registration
from culver.site.wide_area.routing.routing_strategy import RoutingStrategy


class EffectivePositions:
    """`version_of` names the version of the advertisement that has a registration, and None while there is none. The
    owner sets `node` when a run begins. Lives on the event loop."""

    node: RoutingNode

    def __init__(self, strategy: RoutingStrategy, version_of: Callable[[Registration], int | None]) -> None:
        self._strategy = strategy
        self._version_of = version_of
        self._waiters: set[asyncio.Future[None]] = set()

    def of(self, registration: Registration, sites: Iterable[str]) -> dict[str, int | None]:
        """The position of each site's log, by its name; None while it is not in effect there."""
        version = self._version_of(registration)
        return {
            name_of(site): None if version is None else self.node.book.in_effect_from(site, version)
            for site in sites
        }

    async def wait(self, registrations: Sequence[Registration], timeout_seconds: float) -> bool:
        """Wait until registrations are in effect at every site that can be reached. Returns whether they are."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        while not self._is_in_effect(registrations):
            if loop.time() >= deadline:
                return False
            changed: asyncio.Future[None] = loop.create_future()
            self._waiters.add(changed)
            try:
                await asyncio.wait([changed], timeout=deadline - loop.time())
            finally:
                self._waiters.discard(changed)
        return True

    def changed(self) -> None:
        """Have everybody look again who waits."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _is_in_effect(self, registrations: Sequence[Registration]) -> bool:
        versions = [self._version_of(each) for each in registrations]
        return all(
            version is not None and self.node.book.in_effect_from(site, version) is not None
            for site in self.node.states.reachable()
            if not self._strategy.refusal_by(site)  # waiting would not help
            for version in versions
        )
