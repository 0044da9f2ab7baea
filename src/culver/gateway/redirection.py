"""Redirection to the gateway that has a subscription's mailbox, at an address that the client can reach."""

from urllib.parse import quote

from starlette.requests import HTTPConnection

from culver.errors import Elsewhere
from culver.gateway.gateway_context import gateway_of

_UNKNOWN_HOST = "127.0.0.1"


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
    """The `Location` of a redirection."""
    query = connection.scope["query_string"].decode("latin-1")
    return f"{error.details['url']}{quote(connection.scope['path'])}" + (f"?{query}" if query else "")
