"""Live subscriptions, opened so that none outlives the connection that asked for it."""

import asyncio
from contextlib import suppress

from culver.errors import CulverError
from culver.registry import SubscriptionSpec
from culver.roles import Session, Site


async def open_live(site: Site, spec: SubscriptionSpec, after: int | None) -> Session:
    """Register a live subscription and connect to it. Where that fails half-way, or the caller is cancelled, the
    subscription ends before this raises."""
    opening = asyncio.ensure_future(_open(site, spec, after))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        with suppress(CulverError):
            session = await opening
            await session.close()
        raise


async def _open(site: Site, spec: SubscriptionSpec, after: int | None) -> Session:
    (registration,) = await site.subscriptions.add([spec])
    try:
        return await site.sessions.open(registration, after)
    except BaseException:
        with suppress(CulverError):
            await site.subscriptions.remove(registration.id)
        raise
