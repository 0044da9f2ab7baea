"""Which gateway of a site has what a client asks for, and where that gateway is for this client."""

from starlette.requests import HTTPConnection

from culver.errors import Elsewhere
from culver.gateway.context import gateway_of


def check_here(connection: HTTPConnection, subscription: str) -> None:
    """Raises Elsewhere where another gateway has the subscription's mailbox."""
    port = gateway_of(connection).site.elsewhere(subscription)
    if port is not None:
        url = url_of(connection, port)
        raise Elsewhere(f"the gateway at {url} has subscription {subscription!r}; ask there", url=url)


def url_of(connection: HTTPConnection, port: int) -> str:
    """A gateway's address: the host that this client has used for this one, with the port of the other."""
    scheme = {"ws": "http", "wss": "https"}.get(connection.url.scheme, connection.url.scheme)
    host = connection.url.hostname or "127.0.0.1"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def location(connection: HTTPConnection, error: Elsewhere) -> str:
    """What the `Location` of a redirection says."""
    query = connection.url.query
    return f"{error.details['url']}{connection.url.path}" + (f"?{query}" if query else "")
