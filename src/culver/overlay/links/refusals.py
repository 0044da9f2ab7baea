"""Why a connection ends, and how often somebody hears of it."""

from typing import Final, NamedTuple

import msgspec

_MOST_WORDS = 200


class LinkRefusal(NamedTuple):
    """A reason to end a connection. ``code`` is one of the few below whatever a peer sends, so that reports can be
    counted by it; ``words`` tell a person."""

    code: str
    words: str


GARBAGE: Final = "garbage"
OVERSIZED: Final = "oversized"
DAMAGED: Final = "damaged"
LATE: Final = "late"
CROWDED: Final = "crowded"
WRONG_VERSION: Final = "wrong version"
OWN_KEY: Final = "own key"
NAME_TAKEN: Final = "name taken"
CERTIFICATE: Final = "certificate"
NOT_ALLOWED: Final = "not allowed"
OTHER_ROUTING: Final = "other routing"
OLD_BOOT: Final = "old boot"
DUPLICATE: Final = "duplicate"
REPLACED: Final = "replaced"
SILENT: Final = "silent"
STUCK: Final = "stuck"
CLOSED: Final = "closed"
STOPPED: Final = "stopped"
LOST: Final = "lost"
UNGREETED: Final = "ungreeted"
TLS: Final = "tls"
BY_PEER: Final = "refused by the peer"

#: Ends that belong to the normal life of two sites, of which nobody needs to hear.
QUIET: Final = frozenset((DUPLICATE, REPLACED, STOPPED))


#: What decoding may raise: strings that are no UTF-8 and deep nesting have errors of their own.
UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class _Said(msgspec.Struct, array_like=True):
    code: str
    words: str


_decoder = msgspec.msgpack.Decoder(_Said)


def encode_refusal(refusal: LinkRefusal) -> bytes:
    return msgspec.msgpack.encode(_Said(refusal.code, printable(refusal.words)))


def decode_refusal(content: bytes) -> LinkRefusal:
    """Reads what a peer says before it closes. Its code counts only where that keeps us quiet."""
    try:
        said = _decoder.decode(content)
    except UNREADABLE:
        return LinkRefusal(GARBAGE, "the peer refuses, in a form that cannot be read")
    code = said.code if said.code in QUIET else BY_PEER
    return LinkRefusal(code, f"the peer closed: {printable(said.words)}")


def printable(text: str) -> str:
    """Makes what a stranger sent fit for one line of a log."""
    shown = "".join(character if character.isprintable() else "?" for character in text[:_MOST_WORDS])
    return shown + ("..." if len(text) > _MOST_WORDS else "")


class RefusalReports:
    """Bounds how often the same end is reported: once a minute for each host and code, and for at most
    ``most_hosts_and_codes`` of these in a minute."""

    def __init__(self, window_seconds: float = 60.0, most_hosts_and_codes: int = 1_024) -> None:
        self._window_seconds = window_seconds
        self._most = most_hosts_and_codes
        self._last: dict[tuple[str, str], float] = {}  # oldest first

    def admit(self, host: str, code: str, now: float) -> bool:
        """Tells whether to report it now; ``now`` never runs backwards."""
        while self._last:
            oldest = next(iter(self._last))
            if now - self._last[oldest] < self._window_seconds:
                break
            del self._last[oldest]
        if (host, code) in self._last or len(self._last) >= self._most:
            return False
        self._last[host, code] = now
        return True
