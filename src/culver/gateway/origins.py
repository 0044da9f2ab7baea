"""The check of `Origin`: browsers let pages of other origins open WebSockets and send some requests.

Only browsers send `Origin`, and a page cannot choose its value, so the check does not affect other clients.
"""

from urllib.parse import urlsplit

from starlette.datastructures import Headers

from culver.errors import InvalidRequest

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing; a page of another origin cannot read their answers."""

_DEFAULT_PORTS = {"http": 80, "https": 443}


def check_origin(headers: Headers) -> None:
    """Raises InvalidRequest (status 403) where another host or port served the page that sends the request."""
    origins, hosts = headers.getlist("origin"), headers.getlist("host")
    if origins and not (len(origins) == len(hosts) == 1 and is_same_origin(origins[0], hosts[0])):
        raise InvalidRequest(
            f"the page of {origins[0][:200]!r} may not do this: its host and port are not those of this site; "
            "a proxy in between must pass the Host header on",
            field="origin",
            status=403,
        )


def is_same_origin(origin: str, host: str) -> bool:
    """Tell whether the values of `Origin` and `Host` name the same host and port. Both are read with the origin's
    scheme, because the gateway does not see the browser's behind a proxy that ends TLS."""
    try:
        page = urlsplit(origin)
        default = _DEFAULT_PORTS.get(page.scheme)
        site = urlsplit(f"{page.scheme}://{host}")
        return (
            default is not None
            and bool(page.hostname)
            and page.hostname == site.hostname
            and (page.port or default) == (site.port or default)
        )
    except ValueError:
        return False
