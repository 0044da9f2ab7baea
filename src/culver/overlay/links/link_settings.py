"""The settings of a site's links, and the form of the addresses in them."""

from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qsl, urlsplit

from culver.errors import InvalidConfiguration
from culver.overlay.site_keys import NAME

MOST_COST = 1_000_000
MOST_LABEL = 64
DEFAULT_ROUTING = "b-drp"

_LEAST_FRAME_BYTES = 4_096
_LARGEST_FRAME_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class SiteLinkSettings:
    """Where a site listens, whom it dials and whom it trusts. An empty ``listen`` only dials; port 0 takes a free
    one. An empty ``allowed`` trusts every name. The three files of TLS are given together or not at all.

    :raises InvalidConfiguration: a value is impossible, or an address has the wrong form.
    """

    listen: str = ""  # HOST:PORT; without HOST, all interfaces
    peers: tuple[str, ...] = ()  # HOST:PORT[?label=L&cost=N]
    allowed: tuple[str, ...] = ()  # names of sites
    tls_ca: str = ""  # file of the authorities that sign the sites' certificates
    tls_cert: str = ""
    tls_key: str = ""
    keep_alive_seconds: float = 1.0
    dead_seconds: float = 3.0  # of silence, after which a link is closed
    hello_seconds: float = 5.0  # for connecting, and again for greeting each other
    max_frame_bytes: int = 4 << 20
    queue_bytes: int = 8 << 20  # of data that waits for one link
    routing: str = DEFAULT_ROUTING  # peers that say anything else are refused

    def __post_init__(self) -> None:
        if self.listen:
            parse_listen(self.listen)
        addresses = [parse_peer(text) for text in self.peers]
        if len({(each.host, each.port, each.label) for each in addresses}) < len(addresses):
            raise _wrong("peers", "names an address twice: several links to it want different labels")
        for name in self.allowed:
            if NAME.fullmatch(name) is None:
                raise _wrong("allowed", f"holds {name!r}, which cannot be the name of a site")
        if len({bool(path) for path in (self.tls_ca, self.tls_cert, self.tls_key)}) > 1:
            raise _wrong("tls_ca", "is one of three: give tls_ca, tls_cert and tls_key together, or none")
        if not 0 < 2 * self.keep_alive_seconds <= self.dead_seconds:
            raise _wrong("dead_seconds", "must be at least twice keep_alive_seconds, which must be above 0")
        if self.hello_seconds <= 0:
            raise _wrong("hello_seconds", "must be above 0")
        if not _LEAST_FRAME_BYTES <= self.max_frame_bytes <= _LARGEST_FRAME_BYTES:
            bounds = f"{_LEAST_FRAME_BYTES} to {_LARGEST_FRAME_BYTES}"
            raise _wrong("max_frame_bytes", f"must be in {bounds}")
        if self.queue_bytes < self.max_frame_bytes:
            raise _wrong("queue_bytes", "must be at least max_frame_bytes")

    @property
    def tls(self) -> bool:
        return bool(self.tls_ca)


class PeerAddress(NamedTuple):
    """A configured address: the dialler sets the label and the cost of the link."""

    text: str
    host: str
    port: int
    label: str
    cost: int


def parse_listen(text: str) -> tuple[str, int]:
    """Reads ``HOST:PORT``; an empty host stands for all interfaces."""
    parts = _split(text)
    if parts is None or parts.query or (port := parts.port) is None:
        raise _wrong("listen", f"is {text!r}; it must be HOST:PORT, such as 0.0.0.0:7400")
    return parts.hostname or "", port


def parse_peer(text: str) -> PeerAddress:
    """Reads ``HOST:PORT[?label=L&cost=N]``; an address in IPv6 stands in brackets."""
    parts = _split(text)
    if parts is None or not parts.port or not parts.hostname:
        raise _wrong("peers", f"holds {text!r}; an address is HOST:PORT, with ?label=L&cost=N if need be")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := sorted(options.keys() - {"label", "cost"}):
        raise _wrong(
            "peers", f"holds {text!r} with the unknown option {unknown[0]!r}; there are label and cost"
        )
    label, cost = options.get("label", ""), options.get("cost", "1")
    if not is_label(label):
        raise _wrong("peers", f"holds {text!r}, whose label has other characters than a site's name may have")
    if not (cost.isascii() and cost.isdecimal() and 1 <= int(cost) <= MOST_COST):
        raise _wrong("peers", f"holds {text!r}, whose cost is not a number from 1 to {MOST_COST}")
    return PeerAddress(text, parts.hostname, parts.port, label, int(cost))


def is_dialable(text: str) -> bool:
    """Tells whether this is an address without options, HOST:PORT."""
    parts = _split(text)
    return parts is not None and bool(parts.port and parts.hostname) and not parts.query


def _split(text: str) -> SplitResult | None:
    """Splits an address of the form HOST:PORT?OPTIONS; None: it has another form."""
    try:
        parts = urlsplit(f"//{text}")
        port = parts.port
    except ValueError:
        return None
    return None if port is None or parts.path or parts.fragment or "@" in parts.netloc else parts


def is_label(text: str) -> bool:
    """Tells whether a link can be called so: the empty label, or the form of a site's name."""
    return not text or NAME.fullmatch(text) is not None


def _wrong(name: str, words: str) -> InvalidConfiguration:
    return InvalidConfiguration(f"overlay.{name} {words}", field=f"overlay.{name}")
