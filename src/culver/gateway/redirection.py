"""Which gateway of a site has what a client asks for, and where that gateway is for this client."""

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
    """A gateway's address: the host that this client has used for this one, with the port of the other."""
    scheme = {"ws": "http", "wss": "https"}.get(connection.scope["scheme"], connection.scope["scheme"])
    try:
        host = connection.url.hostname or _UNKNOWN_HOST
    except ValueError:  # a Host header that is none
        host = _UNKNOWN_HOST
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def location(connection: HTTPConnection, error: Elsewhere) -> str:
    """What the `Location` of a redirection says."""
    query = connection.scope["query_string"].decode("latin-1")
    return f"{error.details['url']}{quote(connection.scope['path'])}" + (f"?{query}" if query else "")
