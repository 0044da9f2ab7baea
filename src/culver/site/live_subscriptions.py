"""Live subscriptions end with their sessions, even if the disk or the site refuses at that moment."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from culver.errors import CulverError, NotFound, Unavailable
from culver.roles import Session

logger = logging.getLogger(__name__)


class LiveSubscriptions:
    """`remove` takes a subscription out of the registry."""

    def __init__(self, remove: Callable[[str], Awaitable[Any]]) -> None:
        self._remove = remove
        self._left_behind: set[str] = set()

    def session(self, session: Session) -> Session:
        """Wrap a session so that closing it ends its subscription."""
        return _LiveSession(session, self)

    async def end(self, subscription: str) -> None:
        """End a live subscription now, or in a later `try_again` if the disk refuses. Never fails."""
        self._left_behind.add(subscription)
        try:
            await self._remove(subscription)
        except NotFound:
            pass  # it has expired, or somebody removed it
        except Unavailable:
            return  # the site is stopping and drops all live subscriptions at its next start
        except CulverError as exc:
            logger.warning("cannot end %s yet: %s", subscription, exc)
            return
        self._left_behind.discard(subscription)

    async def try_again(self) -> None:
        """End the subscriptions that `end` could not. Housekeeping calls it about once a second."""
        for subscription in tuple(self._left_behind):
            await self.end(subscription)


class _LiveSession:
    def __init__(self, session: Session, subscriptions: LiveSubscriptions) -> None:
        self._session = session
        self._subscriptions = subscriptions
        self.registration = session.registration
        self.receive = session.receive
        self.rewind = session.rewind
        self.acknowledge = session.acknowledge

    async def close(self) -> None:
        await self._session.close()
        await self._subscriptions.end(self.registration.id)
