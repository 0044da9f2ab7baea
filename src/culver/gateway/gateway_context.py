"""What all endpoints of one app share: the site, rate limits, metrics, and a way to stop long requests."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, ParamSpec, TypeVar, cast
from urllib.parse import quote

from starlette.requests import HTTPConnection
from starlette.types import Receive

from culver.config import Settings
from culver.errors import Elsewhere, Unavailable
from culver.gateway.api.publication_numbers import fresh_events
from culver.gateway.gateway_metrics import GatewayMetrics
from culver.gateway.origin_policy import OriginPolicy
from culver.gateway.rate_limits import RateLimit, address_key
from culver.model import Event
from culver.roles import PublicationNumbers, Site

THREAD_BYTES = 32 * 1024
"""Input of at least this size is worth the trip to a thread: decoding it takes some milliseconds."""

_UNKNOWN_HOST = "127.0.0.1"

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
        self.origins = OriginPolicy(self.settings.gateway)
        self._interruptions: set[Interruption] = set()
        self.requests = RateLimit(self.settings.gateway, "requests_per_second")
        """Counts WebSocket messages too."""
        self.events = RateLimit(self.settings.gateway, "events_per_second")

    def publish(self, events: Sequence[Event], numbers: PublicationNumbers | None) -> "asyncio.Future[Any]":
        """Hand events to the site, and count those that it stores. The answer is that of its role `publications`: to
        `publish_once` where the events have numbers, and otherwise to `publish`. Raises Unavailable."""
        started = time.perf_counter()
        publications = self.site.publications
        answer: asyncio.Future[Any]
        answer = (
            publications.publish(events) if numbers is None else publications.publish_once(events, numbers)
        )
        answer.add_done_callback(partial(self._count, events, numbers, started))
        return answer

    def _count(
        self,
        events: Sequence[Event],
        numbers: PublicationNumbers | None,
        started: float,
        answer: "asyncio.Future[Any]",
    ) -> None:
        if not answer.cancelled() and answer.exception() is None:
            fresh = events if numbers is None else fresh_events(events, answer.result())
            self.metrics.count_publication(fresh, time.perf_counter() - started)

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


def gateway_of(connection: HTTPConnection) -> Gateway:
    return cast(Gateway, connection.app.state.gateway)


def client_of(connection: HTTPConnection) -> str:
    """The key under which the rate limits count this client."""
    return address_key(connection.client.host if connection.client else None)


def check_here(connection: HTTPConnection, subscription: str) -> None:
    """Raises Elsewhere where another gateway has the subscription's mailbox."""
    port = gateway_of(connection).site.sessions.elsewhere(subscription)
    if port is not None:
        url = url_of(connection, port)
        raise Elsewhere(f"the gateway at {url} has subscription {subscription!r}; ask there", url=url)


def url_of(connection: HTTPConnection, port: int) -> str:
    """The address of another gateway: the host by which this client reached this one, and the other's port."""
    scheme = {"ws": "http", "wss": "https"}.get(connection.scope["scheme"], connection.scope["scheme"])
    try:
        host = connection.url.hostname or _UNKNOWN_HOST
    except ValueError:  # the Host header names no host
        host = _UNKNOWN_HOST
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def location(connection: HTTPConnection, error: Elsewhere) -> str:
    """The `Location` of a redirection to the gateway that the error names."""
    query = connection.scope["query_string"].decode("latin-1")
    return f"{error.details['url']}{quote(connection.scope['path'])}" + (f"?{query}" if query else "")


async def compute(size: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """`function(*args)`, in a thread where `size` of the input is large, so that other clients need not wait."""
    if size < THREAD_BYTES:
        return function(*args, **kwargs)
    return await asyncio.to_thread(function, *args, **kwargs)


def _stopping() -> Unavailable:
    return Unavailable("the site is stopping; try again soon")
