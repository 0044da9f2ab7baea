"""Renews the temporary subscription of a live query while the query is open, however long a batch takes, or a trigger
waits for the next one."""

import logging
import threading

from culver.errors import CulverError
from culver.spark.site_access import SiteAccess

LIVE_SECONDS = 600.0
_RENEWAL_SECONDS = 120.0

logger = logging.getLogger(__name__)


class LiveLease:
    """Its thread renews the subscription every two minutes until `close`. A renewal that fails is left to the next
    one, which comes before the subscription expires."""

    def __init__(self, url: str, subscription: str, filter_text: str) -> None:
        self._access = SiteAccess(url, 0)
        self._subscription = subscription
        self._filter_text = filter_text
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="culver-live-lease", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closed.wait(_RENEWAL_SECONDS):
            try:
                renew(self._access, self._subscription, self._filter_text)
            except CulverError as exc:
                logger.warning("%s cannot be renewed now: %s", self._subscription, exc)


def renew(access: SiteAccess, subscription: str, filter_text: str) -> None:
    """Let a temporary subscription live for another ten minutes."""
    access.ask(
        lambda client: client.replace_subscription(subscription, filter_text, expires_in_seconds=LIVE_SECONDS)
    )
