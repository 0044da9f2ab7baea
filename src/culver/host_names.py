"""The names under which a server answers, against DNS rebinding.

The owner of `evil.example` may let that name lead to 127.0.0.1 once a browser has loaded a page from it. The browser
then takes a server on this machine for the page's own, and lets the page do and read everything there. All its
requests say `Host: evil.example`, so a server that answers only to its own names is safe.
"""

import ipaddress
import re
from collections.abc import Sequence

from culver.errors import InvalidConfiguration, InvalidRequest

_HOST = re.compile(r"([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{0,5})?")
_ANY = "*"


def split_list(text: str) -> list[str]:
    """The entries of a setting that lists several, with spaces or commas between them."""
    return re.split(r"[\s,]+", text.strip(" ,\t\n")) if text.strip(" ,\t\n") else []


def is_loopback(host: str) -> bool:
    """Whether only programs on this machine reach a server that listens on `host`."""
    name = _normalised(host)
    if name == "localhost" or name.endswith(".localhost"):
        return True
    address = _address(name)
    return address is not None and address.is_loopback


class HostNames:
    """The names of a server that listens on `bound`: those of this machine's loopback, `bound` itself, and the
    `allowed` ones. An allowed `*` stands for all."""

    def __init__(self, bound: str, allowed: Sequence[str] = (), *, setting: str) -> None:
        """Raises InvalidConfiguration for a name that is none; `setting` is where it comes from."""
        for name in allowed:
            if name != _ANY and ((":" in name and _address(_normalised(name)) is None) or not _is_host(name)):
                raise InvalidConfiguration(
                    f"{name[:200]!r} of {setting} must be the name or address of a host, without a scheme or a port",
                    field=setting,
                )
        self._setting = setting
        self._any = _ANY in allowed
        self._names = {_normalised(name) for name in (bound, *allowed)}

    def check(self, hosts: Sequence[str], local_address: str | None) -> None:
        """Take the values of a request's `Host` and the address at which its connection arrived. Raises
        InvalidRequest, with status 403 for a name that is not the server's."""
        if len(hosts) != 1:
            problem = "has no Host header" if not hosts else f"has {len(hosts)} Host headers"
            raise InvalidRequest(f"the request {problem}; send one", field="host")
        match = _HOST.fullmatch(hosts[0])
        if match is not None:
            name = _normalised(match[1])
            own = name in self._names or (local_address is not None and name == _normalised(local_address))
            if self._any or own or is_loopback(name):
                return
        raise InvalidRequest(
            f"this server does not answer to the name {hosts[0][:200]!r}; if it is a name of the server, add it to "
            f"{self._setting}",
            field="host",
            status=403,
        )


def _is_host(name: str) -> bool:
    return _HOST.fullmatch(name) is not None or _address(name) is not None


def _normalised(name: str) -> str:
    text = name.strip("[]").rstrip(".").lower()
    address = _address(text)
    return text if address is None else str(address)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
