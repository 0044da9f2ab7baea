"""Where the site is: a base URL, and the two forms of it that the transports want."""

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from culver.errors import InvalidRequest

DEFAULT_URL = "http://127.0.0.1:8080"
VARIABLE = "CULVER_URL"
_SCHEMES = {"http": ("http", "ws"), "ws": ("http", "ws"), "https": ("https", "wss"), "wss": ("https", "wss")}


@dataclass(frozen=True, slots=True)
class Address:
    """`http` has no slash at its end; `loopback` means that no proxy can lie between."""

    http: str
    web_socket: str
    loopback: bool


def default_url(environment: Mapping[str, str] | None = None) -> str:
    """CULVER_URL where it is set, else a site on this machine."""
    return (os.environ if environment is None else environment).get(VARIABLE) or DEFAULT_URL


def parse_address(url: str) -> Address:
    """Raises InvalidRequest (`field="url"`) for anything but http, https, ws or wss with a host."""
    try:
        parts = urlsplit(url.strip())
        host, schemes, port = parts.hostname, _SCHEMES.get(parts.scheme), parts.port
    except ValueError as exc:
        raise InvalidRequest(f"{url!r} is not a URL: {exc}", field="url") from exc
    if host is None or schemes is None or parts.query or parts.fragment or port == 0:
        raise InvalidRequest(
            f"{url!r} is not the address of a site; write it as {DEFAULT_URL} or https://host/path",
            field="url",
        )
    rest = f"://{parts.netloc}{parts.path.rstrip('/')}"
    return Address(schemes[0] + rest, schemes[1] + rest + "/v1/ws", _is_loopback(host))


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
