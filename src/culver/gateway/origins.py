"""Pages of other origins: a browser lets them open WebSockets and send some requests, so the gateway refuses.

Only browsers send `Origin`, and a page cannot choose what they send. Other clients are not affected.
"""

from urllib.parse import urlsplit

from starlette.datastructures import Headers

from culver.errors import InvalidRequest

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
"""They change nothing, and a page of another origin cannot read the answer."""

_DEFAULT_PORTS = {"http": 80, "https": 443}


def check_origin(headers: Headers) -> None:
    """Raises InvalidRequest (status 403) where the request comes from a page that another host or port served."""
    origins, hosts = headers.getlist("origin"), headers.getlist("host")
    if origins and not (len(origins) == len(hosts) == 1 and is_same_origin(origins[0], hosts[0])):
        raise InvalidRequest(
            f"the page of {origins[0][:200]!r} may not do this: its host and port are not those of this site; "
            "a proxy in between must pass the Host header on",
            field="origin",
            status=403,
        )


def is_same_origin(origin: str, host: str) -> bool:
    """Whether the values of `Origin` and `Host` name the same host and port. The scheme is the origin's for both:
    behind a proxy that ends TLS, the gateway does not see which one the browser used."""
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
