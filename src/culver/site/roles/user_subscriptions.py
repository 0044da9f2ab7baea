"""The subscriptions as users see them: without the mailboxes of other sites, and with times of the system's clock."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from culver.control import Catalogue
from culver.errors import InvalidRequest, NotFound
from culver.model import ENCODED, SITE_PREFIX
from culver.registry import Block, BlockSpec, Registration, SetSummary, SubscriptionSpec

Expiring = TypeVar("Expiring", SubscriptionSpec, BlockSpec, Registration, Block)


class UserSubscriptions:
    """Implements the role `subscriptions` on the catalogue. What belongs to another site is not there for a user.

    The catalogue's subscriptions expire by the site's clock. `clock_ahead_us` tells how far that is ahead of the
    system's, which users go by."""

    def __init__(self, catalogue: Catalogue, clock_ahead_us: Callable[[], int]) -> None:
        self._catalogue = catalogue
        self._clock_ahead_us = clock_ahead_us

    async def add(self, specs: Sequence[SubscriptionSpec]) -> list[Registration]:
        if any(spec.scheme == ENCODED for spec in specs):
            raise InvalidRequest(f"the scheme {ENCODED!r} is for other sites", field="scheme")
        added = await self._catalogue.add([self._taken(spec) for spec in specs])
        return [self._shown(each) for each in added]

    async def add_block(self, spec: BlockSpec) -> Block:
        return self._shown(await self._catalogue.add_block(self._taken(spec)))

    async def replace(self, spec: SubscriptionSpec) -> Registration:
        _refuse_site(spec.id or "")
        return self._shown(await self._catalogue.replace(self._taken(spec)))

    async def remove(self, subscription: str) -> Registration:
        _refuse_site(subscription)
        return self._shown(await self._catalogue.remove(subscription))

    async def remove_set(self, name: str) -> int:
        return await self._catalogue.remove_set(name)

    async def get(self, subscription: str) -> Registration:
        _refuse_site(subscription)
        return self._shown(await self._catalogue.get(subscription))

    async def page(self, after: str | None, limit: int) -> list[Registration]:
        return [self._shown(each) for each in await self._catalogue.page(after, limit)]

    async def sets(self, after: str | None, limit: int) -> list[SetSummary]:
        return await self._catalogue.sets(after, limit)

    def _taken(self, spec: Expiring) -> Expiring:
        return _moved(spec, self._clock_ahead_us())

    def _shown(self, registration: Expiring) -> Expiring:
        return _moved(registration, -self._clock_ahead_us())


def _moved(record: Expiring, by_us: int) -> Expiring:
    if not by_us or record.expires_at_us is None:
        return record
    return replace(record, expires_at_us=record.expires_at_us + by_us)


def _refuse_site(subscription: str) -> None:
    if subscription.startswith(SITE_PREFIX):
        raise NotFound(
            f"there is no subscription {subscription!r}: ids that start with {SITE_PREFIX!r} are those of other "
            "sites, which GET /v1/overlay shows",
            field="subscription",
        )
