"""The client's way to the site: WebSockets and an HTTP client, each opened when it is first needed.

A site may have several gateways. One that does not have a subscription names the one that has it: over HTTP by a
redirection, which is followed here; over the WebSocket by an error, after which the subscription's feed asks for a
connection to that gateway.
"""

import asyncio
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import msgspec

from culver.client.connection_pool import ConnectionPool
from culver.client.error_boundary import encode_message, http_errors, is_unsent, refusal
from culver.client.site_address import Address, parse_address
from culver.client.websocket_connection import Connection
from culver.errors import ClientError, ConnectionFailed

if TYPE_CHECKING:
    import httpx

Answer = TypeVar("Answer")

_ATTACHING = 64
_ASIDE = 16

# What a proxy answers in place of a site that is starting or away, and a site that is full or stopping.
_NOT_THERE_YET = (502, 503, 504)


class Link:
    """Opens again after a loss, whenever it is asked for a connection; `close` is final."""

    def __init__(self, address: Address, timeout_seconds: float) -> None:
        self.address = address
        self._timeout_seconds = timeout_seconds
        self._pools: dict[str, ConnectionPool] = {}  # by the gateway's address
        self._claims: dict[str, object] = {}
        self.attaching = asyncio.Semaphore(_ATTACHING)
        """Held while a stream is put on a connection: thousands that start at once would else wait for one another
        longer than a request may take."""
        self.aside = asyncio.Semaphore(_ASIDE)
        """Held while a stream that is not on a connection acknowledges."""
        self._http: httpx.AsyncClient | None = None
        self._closed = False
        self.was_reached = False
        """Whether the site has ever answered."""

    async def connection(self) -> Connection:
        """The WebSocket connection to the site, opened now if there is none. Raises ConnectionFailed."""
        connection = await self._pool(None).first()
        self.was_reached = True
        return connection

    def may_come_back(self, failure: ConnectionFailed) -> bool:
        """Whether the site may be there again after a while."""
        return failure.details.get("status", 503) in _NOT_THERE_YET

    async def stream_connection(self, url: str | None = None) -> Connection:
        """A connection to the site or a gateway that has room for one more stream, which is to be put on it in the
        same turn of the loop. Raises ConnectionFailed."""
        return await self._pool(url).with_room()

    def claim(self, subscription: str, owner: object) -> bool:
        """Whether nobody but `owner` receives a durable subscription; from now on, nobody else does."""
        return self._claims.setdefault(subscription, owner) is owner

    def give_up(self, subscription: str, owner: object) -> None:
        if self._claims.get(subscription) is owner:
            del self._claims[subscription]

    async def wait_for_site(self, wait_seconds: float) -> None:
        """Open the connection to the site, trying again while it is not there yet. Raises ConnectionFailed when the
        time is over, and at once where waiting cannot help."""
        failure = ConnectionFailed(f"{self.address.http} did not answer", url=self.address.http)
        try:
            async with asyncio.timeout(wait_seconds):
                for delay in backoff(random.Random(), longest_seconds=1.0):
                    try:
                        await self.connection()
                        return
                    except ConnectionFailed as exc:
                        if not self.may_come_back(exc):
                            raise
                        failure = exc
                    await asyncio.sleep(delay)
        except TimeoutError:
            raise ConnectionFailed(
                f"waited {wait_seconds:g} s in vain: {failure.message}",
                field=failure.field,
                **failure.details,
            ) from failure

    async def ask(self, kind: type[Answer], method: str, path: str, **request: Any) -> Answer:
        """Send one HTTP request, as `http` does, and decode its answer."""
        status, content = await self.http(method, path, **request)
        try:
            return msgspec.json.decode(content, type=kind)
        except msgspec.MsgspecError as exc:
            raise ConnectionFailed(
                f"the answer of {self.address.http} is not a {kind.__name__}; is it a newer or older version?",
                status=status,
            ) from exc

    async def http(
        self,
        method: str,
        path: str,
        *,
        body: msgspec.Struct | None = None,
        content: bytes | None = None,
        content_type: str = "application/json",
        answer_type: str = "application/json",
        accept: tuple[int, ...] = (),
        **query: Any,
    ) -> tuple[int, bytes]:
        """One HTTP request with a message or other content: the status and the body of its answer. A status above
        399 raises RequestRefused unless it is one of `accept`; no answer raises ConnectionFailed."""
        if body is not None:
            content = encode_message(body)
        with http_errors(self.address.http):
            client = self._http_client()
            try:
                response = await client.request(
                    method,
                    path,
                    content=content,
                    headers={"accept": answer_type}
                    | ({"content-type": content_type} if content is not None else {}),
                    params={name: value for name, value in query.items() if value is not None},
                )
            except Exception as exc:
                self.was_reached = self.was_reached or not is_unsent(exc)
                raise
        self.was_reached = True
        if response.status_code < 400 or response.status_code in accept:
            return response.status_code, response.content
        try:
            problem = msgspec.json.decode(response.content)
        except msgspec.MsgspecError:
            problem = None
        if not isinstance(problem, dict) or "code" not in problem:
            raise ConnectionFailed(
                f"{self.address.http} answered {response.status_code} to {method} {path}; is it a Culver site?",
                status=response.status_code,
            )
        raise refusal(problem, response.status_code)

    async def close(self) -> None:
        self._closed = True
        pools, self._pools = self._pools, {}
        for pool in pools.values():
            await pool.close()
        if self._http is not None:
            await self._http.aclose()

    def _pool(self, url: str | None) -> ConnectionPool:
        if self._closed:
            raise ClientError("the client is closed")
        address = self.address if url is None else parse_address(url)
        if address.http not in self._pools:
            self._pools[address.http] = ConnectionPool(address, self._timeout_seconds)
        return self._pools[address.http]

    def _http_client(self) -> "httpx.AsyncClient":
        if self._closed:
            raise ClientError("the client is closed")
        if self._http is None:
            import httpx

            self._http = httpx.AsyncClient(
                base_url=self.address.http,
                timeout=self._timeout_seconds,
                trust_env=not self.address.loopback,
                follow_redirects=True,
            )
        return self._http


def set_path(name: str) -> str:
    return f"/v1/sets/{quote(name, safe='')}"


def subscription_path(subscription: str, tail: str = "") -> str:
    return f"/v1/subscriptions/{quote(subscription, safe='')}{tail}"


def backoff(
    randomness: random.Random, first_seconds: float = 0.1, longest_seconds: float = 15.0
) -> Iterator[float]:
    """How long to wait before each attempt: doubling, with jitter over the upper half, so that clients which
    lost one server at one moment do not come back at one moment."""
    ceiling = first_seconds
    while True:
        yield ceiling * (0.5 + randomness.random() / 2)
        ceiling = min(ceiling * 2, longest_seconds)
