"""How the processes of Spark ask a site: each keeps one client for a site, and waits while the site is away."""

import functools
import logging
import os
import random
import time
from collections.abc import Callable
from typing import TypeVar

from culver.client import SyncClient
from culver.errors import ConnectionFailed, RequestRefused

Answer = TypeVar("Answer")

_LONGEST_PAUSE_SECONDS = 2.0
# What a proxy answers for a site that is busy or away. The site itself says whether to ask again.
_BUSY_OR_AWAY = (429, 502, 503, 504)

logger = logging.getLogger(__name__)


class SiteAccess:
    """Small, and sent to the workers; the client stays in its process. `wait_seconds` is how long a site may be away,
    stopping, full or too busy before a question fails; with 0, it is asked once."""

    def __init__(self, url: str, wait_seconds: float) -> None:
        self.url = url
        self.wait_seconds = wait_seconds

    def ask(self, question: Callable[[SyncClient], Answer]) -> Answer:
        """The answer to a question that can be asked again. Raises ConnectionFailed or RequestRefused, at once where
        asking again cannot help."""
        deadline = time.monotonic() + self.wait_seconds
        pause = 0.05
        while True:
            try:
                return question(_client(self.url, os.getpid()))
            except (ConnectionFailed, RequestRefused) as exc:
                if not _may_help(exc) or time.monotonic() >= deadline:
                    raise
                logger.info("%s: %s; asking again", self.url, exc)
            time.sleep(pause * (0.5 + random.random() / 2))
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


def _may_help(failure: ConnectionFailed | RequestRefused) -> bool:
    if isinstance(failure, RequestRefused):
        return bool(failure.details.get("retryable"))
    return failure.details.get("status", 503) in _BUSY_OR_AWAY


def close_clients() -> None:
    """Close the clients of this process. Spark's processes just end."""
    while _open:
        _open.pop().close()
    _client.cache_clear()


_open: list[SyncClient] = []


@functools.cache
def _client(url: str, process: int) -> SyncClient:
    """The process is named because a forked one must not use its parent's. The client leaves repeating to `ask`."""
    client = SyncClient(url, retry_seconds=0)
    client.__enter__()
    _open.append(client)
    return client
