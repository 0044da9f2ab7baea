"""Which pages may use the gateway: those that it serves itself, and those of the setting `gateway.allowed_origins`.

Browsers let pages of other origins open WebSockets and send some requests, with the page's address as `Origin`. Only
browsers send that header, and a page cannot choose its value, so other programs are not affected.
"""

import re
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from culver.config import GatewaySettings
from culver.errors import InvalidConfiguration, InvalidRequest
from culver.host_names import HostNames, split_list

ALLOWED_HOSTS, ALLOWED_ORIGINS = "gateway.allowed_hosts", "gateway.allowed_origins"

# Methods that change nothing; a page of another origin cannot read their answers.
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_DEFAULT_PORTS = {"http": 80, "https": 443}
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s?#@]+")
_ANY = "*"
_PREFLIGHT_SECONDS = 600


class OriginPolicy:
    """Raises InvalidConfiguration for settings that name no hosts or origins."""

    def __init__(self, settings: GatewaySettings) -> None:
        self.hosts = HostNames(settings.host, split_list(settings.allowed_hosts), setting=ALLOWED_HOSTS)
        origins = split_list(settings.allowed_origins)
        self._any = _ANY in origins
        self._allowed = {_normalised(origin) for origin in origins if origin != _ANY}

    def foreign_origin(self, headers: Headers) -> str | None:
        """The other origin, one of the allowed, whose page sends the request; None for every other request."""
        origins, hosts = headers.getlist("origin"), headers.getlist("host")
        if len(origins) != 1 or len(hosts) != 1 or is_same_origin(origins[0], hosts[0]):
            return None
        return origins[0] if self._any or origins[0] in self._allowed else None

    def check(self, headers: Headers, method: str | None) -> None:
        """Take the method of a request, or None for a WebSocket. Raises InvalidRequest (status 403) where a page of
        an origin that is not allowed might change something."""
        origins, hosts = headers.getlist("origin"), headers.getlist("host")
        if not origins or method in _SAFE_METHODS or self.foreign_origin(headers) is not None:
            return
        if len(origins) != 1 or len(hosts) != 1 or not is_same_origin(origins[0], hosts[0]):
            raise InvalidRequest(
                f"the page of {origins[0][:200]!r} may not do this: its host and port are not those of this site, "
                f"and {ALLOWED_ORIGINS} does not name it; a proxy in between must pass the Host header on",
                field="origin",
                status=403,
            )

    def answer_headers(self, origin: str | None) -> list[tuple[bytes, bytes]]:
        """Headers of every answer to a page of that foreign origin, or to anybody else where it is None."""
        if not self._any and not self._allowed:
            return []
        headers = [(b"vary", b"Origin")]
        if origin is not None:
            headers.append((b"access-control-allow-origin", origin.encode("latin-1")))
            headers.append((b"access-control-expose-headers", b"Location, Retry-After, Allow"))
        return headers


def preflight_headers(headers: Headers) -> dict[str, str] | None:
    """Headers that grant what a browser asks for before a page's request; None where it does not ask."""
    if "access-control-request-method" not in headers:
        return None
    return {
        "Access-Control-Allow-Methods": "GET, POST, PUT, DELETE",
        "Access-Control-Allow-Headers": headers.get("access-control-request-headers", "Content-Type"),
        "Access-Control-Max-Age": str(_PREFLIGHT_SECONDS),
    }


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


def _normalised(origin: str) -> str:
    """The origin as browsers write it. Raises InvalidConfiguration."""
    text = origin.lower()
    if not _ORIGIN.fullmatch(text):
        raise InvalidConfiguration(
            f"{origin[:200]!r} of {ALLOWED_ORIGINS} must be an origin such as https://app.example or "
            "http://localhost:5173, without a path",
            field=ALLOWED_ORIGINS,
        )
    scheme = text.partition(":")[0]
    return text.removesuffix(f":{_DEFAULT_PORTS[scheme]}") if scheme in _DEFAULT_PORTS else text
