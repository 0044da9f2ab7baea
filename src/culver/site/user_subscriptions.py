"""The subscriptions as users see them: without the mailboxes of other sites."""

from collections.abc import Sequence

from culver.control import Catalogue
from culver.errors import InvalidRequest, NotFound
from culver.model import ENCODED, SITE_PREFIX
from culver.registry import Block, BlockSpec, Registration, SetSummary, SubscriptionSpec


class UserSubscriptions:
    """Implements the role `subscriptions` on the catalogue. What belongs to another site is not there for a user."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    async def add(self, specs: Sequence[SubscriptionSpec]) -> list[Registration]:
        if any(spec.scheme == ENCODED for spec in specs):
            raise InvalidRequest(f"the scheme {ENCODED!r} is for other sites", field="scheme")
        return await self._catalogue.add(specs)

    async def add_block(self, spec: BlockSpec) -> Block:
        return await self._catalogue.add_block(spec)

    async def replace(self, spec: SubscriptionSpec) -> Registration:
        _refuse_site(spec.id or "")
        return await self._catalogue.replace(spec)

    async def remove(self, subscription: str) -> Registration:
        _refuse_site(subscription)
        return await self._catalogue.remove(subscription)

    async def remove_set(self, name: str) -> int:
        return await self._catalogue.remove_set(name)

    async def get(self, subscription: str) -> Registration:
        _refuse_site(subscription)
        return await self._catalogue.get(subscription)

    async def page(self, after: str | None, limit: int) -> list[Registration]:
        return await self._catalogue.page(after, limit)

    async def sets(self, after: str | None, limit: int) -> list[SetSummary]:
        return await self._catalogue.sets(after, limit)


def _refuse_site(subscription: str) -> None:
    if subscription.startswith(SITE_PREFIX):
        raise NotFound(
            f"there is no subscription {subscription!r}: ids that start with {SITE_PREFIX!r} are those of other "
            "sites, which GET /v1/overlay shows",
            field="subscription",
        )
