"""The greeting by which two sites learn of each other, and what makes it unacceptable.

    [magic, version, key, boot, label, cost, max_frame_bytes, routing]      MessagePack

Magic and version are read first, and alone: a later version may change what comes after them. A hello without a
routing comes from a version that knew no other than B-DRP.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from culver.overlay.links.link_settings import DEFAULT_ROUTING, MOST_COST, MOST_LABEL, is_label
from culver.overlay.links.refusals import (
    CERTIFICATE,
    GARBAGE,
    NAME_TAKEN,
    NOT_ALLOWED,
    OTHER_ROUTING,
    OWN_KEY,
    UNREADABLE,
    WRONG_VERSION,
    LinkRefusal,
    printable,
)
from culver.overlay.site_keys import is_site_key, name_of

MAGIC = "culver-overlay"
VERSION = 1

#: A frame may be no longer before the greeting is over.
MOST_HELLO_BYTES = 4_096


class Hello(msgspec.Struct, array_like=True, frozen=True):
    """A site's greeting. Label and cost are the dialler's; the accepting side repeats them."""

    magic: str
    version: int
    key: Annotated[str, Meta(max_length=128)]
    boot: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
    label: Annotated[str, Meta(max_length=MOST_LABEL)]
    cost: Annotated[int, Meta(ge=1, le=MOST_COST)]
    max_frame_bytes: Annotated[int, Meta(ge=MOST_HELLO_BYTES, le=1 << 32)]
    routing: Annotated[str, Meta(max_length=64)] = DEFAULT_ROUTING


@dataclass(frozen=True, slots=True)
class SitePeer:
    """The site at the other end. ``address`` is the configured one if this site dialled, otherwise where the
    connection comes from. Label and cost are the dialler's."""

    key: str
    boot: int
    label: str
    address: str
    cost: int
    dialled: bool


class _Preamble(msgspec.Struct, array_like=True):
    magic: str
    version: int


_preamble = msgspec.msgpack.Decoder(_Preamble)
_hello = msgspec.msgpack.Decoder(Hello)


def encode_hello(
    key: str, boot: int, label: str, cost: int, max_frame_bytes: int, routing: str = DEFAULT_ROUTING
) -> bytes:
    return msgspec.msgpack.encode(Hello(MAGIC, VERSION, key, boot, label, cost, max_frame_bytes, routing))


def read_hello(content: bytes) -> Hello | LinkRefusal:
    """Reads a greeting, and checks its form."""
    try:
        preamble = _preamble.decode(content)
        if preamble.magic != MAGIC:
            return LinkRefusal(GARBAGE, "the hello is not that of a site")
        if preamble.version != VERSION:
            words = f"the sites speak different versions of the protocol, {preamble.version} and {VERSION}"
            return LinkRefusal(WRONG_VERSION, words)
        hello = _hello.decode(content)
    except UNREADABLE:
        return LinkRefusal(GARBAGE, "the hello cannot be read")
    if not is_site_key(hello.key) or not is_label(hello.label):
        return LinkRefusal(GARBAGE, "the hello holds an impossible key or label")
    return hello


def check_peer(
    hello: Hello,
    own_key: str,
    allowed: Collection[str],
    certificate_names: Collection[str] | None,
    routing: str = DEFAULT_ROUTING,
) -> LinkRefusal | None:
    """Says why this peer may not be linked. ``certificate_names`` is None on a connection without TLS; an empty
    ``allowed`` lets every name in."""
    if hello.key == own_key:
        return LinkRefusal(OWN_KEY, f"the peer has this site's own key {own_key}")
    name = name_of(hello.key)
    if certificate_names is not None and name not in certificate_names:
        shown = printable(", ".join(sorted(certificate_names))) or "nobody"
        return LinkRefusal(CERTIFICATE, f"the peer calls itself {name}, and its certificate is for {shown}")
    if name == name_of(own_key):
        return LinkRefusal(NAME_TAKEN, f"the name {name} is taken by this site")
    if allowed and name not in allowed:
        return LinkRefusal(NOT_ALLOWED, f"{name} is not among the sites that are allowed")
    if hello.routing != routing:
        return LinkRefusal(
            OTHER_ROUTING,
            f"{name} routes by {printable(hello.routing)} and {name_of(own_key)} by {routing}: "
            "overlay.routing must be the same at all sites",
        )
    return None


def certificate_names(certificate: Mapping[str, Any]) -> frozenset[str]:
    """The names that a certificate is for, as ``ssl.SSLSocket.getpeercert`` describes it: its common name and the DNS
    names among its alternative ones."""
    common = {
        value for part in certificate.get("subject", ()) for kind, value in part if kind == "commonName"
    }
    alternative = {value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"}
    return frozenset(common | alternative)
