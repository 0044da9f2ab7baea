"""The state that all endpoints of one app share: the site, rate limits, metrics, and a way to stop long requests."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import ParamSpec, TypeVar, cast

from starlette.requests import HTTPConnection
from starlette.types import Receive

from culver.config import Settings
from culver.errors import RateLimited, Unavailable
from culver.gateway.gateway_metrics import GatewayMetrics
from culver.gateway.rate_limits import TokenBuckets, address_key
from culver.roles import Site

THREAD_BYTES = 32 * 1024
"""Input of at least this size is worth the trip to a thread: decoding it takes some milliseconds."""

P = ParamSpec("P")
T = TypeVar("T")


class Interrupted(Exception):
    """Ends a long request early because its client has left."""


class Interruption:
    """A handle on one long request, with which others end it."""

    def __init__(self, scope: asyncio.Timeout) -> None:
        self._scope = scope
        self.stopping = False

    def interrupt(self, *, stopping: bool = False) -> None:
        """End the request at its next await; calling it twice changes nothing."""
        if not self._scope.expired():
            self.stopping = self.stopping or stopping
            with suppress(RuntimeError):  # the request has ended on its own
                self._scope.reschedule(asyncio.get_running_loop().time())

    async def watch(self, receive: Receive) -> None:
        """Interrupt once the client of an HTTP request leaves; runs as a task beside the work."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self.interrupt()


class Gateway:
    """Shared by all endpoints of one app. Used from the event loop's thread only."""

    def __init__(self, site: Site, heartbeat_seconds: float) -> None:
        self.site = site
        self.settings: Settings = site.settings
        self.metrics = GatewayMetrics(site)
        self.heartbeat_seconds = heartbeat_seconds
        self.stopping = False
        # The server sets it.
        self.open_connections: Callable[[], int] = lambda: 0
        self._interruptions: set[Interruption] = set()
        self._requests = TokenBuckets(self.settings.gateway.requests_per_second)
        self._events = TokenBuckets(self.settings.gateway.events_per_second)

    def take_request(self, client: str) -> None:
        """Count one request or message of a client. Raises RateLimited."""
        self._take(self._requests, client, 1, "requests_per_second")

    def take_events(self, client: str, count: int) -> None:
        """Count events of a client. Raises RateLimited."""
        self._take(self._events, client, count, "events_per_second")

    async def await_request(self, client: str) -> None:
        """Count one message of a client; waits where `take_request` would refuse."""
        await self._await(self._requests, client, 1, "requests_per_second", math.inf)

    async def await_events(self, client: str, count: int, longest_seconds: float = math.inf) -> None:
        """Count events of a client; waits where `take_events` would refuse. Raises RateLimited where the wait would
        exceed `longest_seconds`."""
        await self._await(self._events, client, count, "events_per_second", longest_seconds)

    def grant(self, client: str, events: int) -> bool:
        """Count one message of a client and its events. Returns False, and counts nothing, where the message would
        have to wait."""
        now = time.monotonic()
        if self._requests.take(client, 1, now):
            return False
        if self._events.take(client, events, now):
            self._requests.give_back(client, 1)
            return False
        return True

    @asynccontextmanager
    async def long_request(self, kind: str) -> AsyncIterator[Interruption]:
        """Run work that may take as long as a client likes. Raises Unavailable where the gateway stops before or
        during it, and Interrupted where the client leaves."""
        if self.stopping:
            raise _stopping()
        gauge = self.metrics.connections.labels(kind)
        gauge.inc()
        scope = asyncio.timeout(None)
        interruption = Interruption(scope)
        try:
            async with scope:
                self._interruptions.add(interruption)
                yield interruption
        except TimeoutError:
            if not scope.expired():
                raise
            if interruption.stopping:
                raise _stopping() from None
            raise Interrupted from None
        finally:
            self._interruptions.discard(interruption)
            gauge.dec()

    def stop(self) -> None:
        """End every long request and refuse new ones."""
        self.stopping = True
        for interruption in list(self._interruptions):
            interruption.interrupt(stopping=True)

    def _take(self, buckets: TokenBuckets, client: str, amount: int, setting: str) -> None:
        wait = buckets.take(client, amount, time.monotonic())
        if wait:
            raise self._rate_limited(setting, wait)

    async def _await(
        self, buckets: TokenBuckets, client: str, amount: int, setting: str, longest_seconds: float
    ) -> None:
        while wait := buckets.take(client, amount, time.monotonic()):
            if wait > longest_seconds:
                raise self._rate_limited(setting, wait)
            await asyncio.sleep(wait)

    def _rate_limited(self, setting: str, wait: float) -> RateLimited:
        limit = getattr(self.settings.gateway, setting)
        return RateLimited(
            f"this client may send {limit} {setting.replace('_', ' ')}; wait {wait:.3f} seconds",
            field=setting,
            limit=limit,
            retry_after_seconds=wait,
        )


def gateway_of(connection: HTTPConnection) -> Gateway:
    return cast(Gateway, connection.app.state.gateway)


def client_of(connection: HTTPConnection) -> str:
    """The key under which the rate limits count this client."""
    return address_key(connection.client.host if connection.client else None)


async def compute(size: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """`function(*args)`, in a thread where `size` (bytes or characters of input) is large, so that other
    clients are not kept waiting."""
    if size < THREAD_BYTES:
        return function(*args, **kwargs)
    return await asyncio.to_thread(function, *args, **kwargs)


def _stopping() -> Unavailable:
    return Unavailable("the site is stopping; try again soon")
