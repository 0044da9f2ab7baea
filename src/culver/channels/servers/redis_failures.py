"""What goes wrong on a connection to a Redis server, as errors of ours: nothing above sees an error of a library."""

import ssl

from culver.errors import (
    CommandRefused,
    ServerAccessDenied,
    ServerBusy,
    ServerError,
    ServerTlsFailed,
    ServerUnreachable,
    ServerUnsuitable,
)

_DENIED = frozenset(("WRONGPASS", "NOAUTH", "NOPERM", "DENIED"))
_BUSY = frozenset(("LOADING", "BUSY", "OOM", "MISCONF", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "READONLY"))
_TOO_MANY_CLIENTS = "ERR max number of clients"
_MOST_SHOWN = 200

# OpenSSL's codes for a certificate whose authority is not among the trusted ones.
_UNKNOWN_AUTHORITY = frozenset((18, 19, 20, 21))
_GIVE_AUTHORITY = "give the authority that signed it (--tls-ca, or ssl= in Python)"
_WANTS_CERTIFICATE = "wants a certificate of its clients (--tls-cert and --tls-key, or ssl= in Python)"
_TLS_HINTS = {
    "WRONG_VERSION_NUMBER": "it does not speak TLS: write redis:// instead of rediss://",
    "CERTIFICATE_REQUIRED": f"it {_WANTS_CERTIFICATE}",
    "ALERT_UNKNOWN_CA": "it does not trust the certificate of this client",
    "ALERT_BAD_CERTIFICATE": "it does not accept the certificate of this client",
}


def refusal(url: str, text: str) -> ServerError:
    """The error for an error reply, by the word that it begins with."""
    code, shown = text.partition(" ")[0], _shortened(text)
    if code == "NOAUTH":
        return ServerAccessDenied(f"{url} wants a password: give a user name and password ({shown})", url=url)
    if code == "WRONGPASS":
        return ServerAccessDenied(f"{url} refuses the user name or password ({shown})", url=url)
    if code in _DENIED:
        return ServerAccessDenied(f"{url} does not allow this user to do that ({shown})", url=url)
    if code in _BUSY or text.startswith(_TOO_MANY_CLIENTS):
        return ServerBusy(f"{url} cannot do this now, try again ({shown})", url=url)
    return CommandRefused(f"{url} refuses the command ({shown})", url=url, reply=shown)


def greeting_refusal(url: str, text: str) -> ServerError:
    """The error for an error reply to HELLO: here an unknown command or protocol means a server that is too old."""
    if text.startswith(("NOPROTO", "ERR unknown command")):
        return ServerUnsuitable(
            f"{url} does not speak RESP3: it needs to be Redis 6, Valkey 7.2 or newer ({_shortened(text)})",
            url=url,
        )
    return refusal(url, text)


def wrong_greeting(url: str, greeting: object) -> ServerUnsuitable:
    return ServerUnsuitable(
        f"{url} is not a Redis server: it answers HELLO with {_shortened(repr(greeting))}", url=url
    )


def garbage(url: str, data: bytes) -> ServerUnsuitable:
    """The error for bytes that are not of the Redis protocol; ``data`` is the chunk that holds them."""
    if data.startswith(b"HTTP/"):
        return ServerUnsuitable(f"{url} is not a Redis server: it speaks HTTP", url=url)
    if data.startswith((b"\x15\x03", b"\x16\x03")):
        return ServerUnsuitable(f"{url} speaks TLS: write rediss:// instead of redis://", url=url)
    return ServerUnsuitable(f"{url} is not a Redis server: it sends {_shortened(repr(data[:60]))}", url=url)


def failed_connection(url: str, error: OSError) -> ServerError:
    """The error for a connection that did not come about, or that broke."""
    if isinstance(error, ssl.SSLCertVerificationError):
        hint = f"; {_GIVE_AUTHORITY}" if error.verify_code in _UNKNOWN_AUTHORITY else ""
        return ServerTlsFailed(
            f"the certificate of {url} is not trusted: {error.verify_message}{hint}", url=url
        )
    if isinstance(error, ssl.SSLError):
        reason = getattr(error, "reason", None) or str(error)
        told = reason.lower().replace("_", " ")
        for sign, hint in _TLS_HINTS.items():
            if sign in reason:
                return ServerTlsFailed(f"no encrypted connection to {url}: {hint} ({told})", url=url)
        return ServerTlsFailed(
            f"no encrypted connection to {url}: {told}; check that it speaks TLS, and the certificates",
            url=url,
        )
    return ServerUnreachable(f"no connection to {url}: {error.strerror or error}", url=url)


def no_greeting(url: str, seconds: float, *, tls: bool) -> ServerUnreachable:
    doubt = ", or does not speak TLS" if tls else ", expects TLS, or is not a Redis server"
    return ServerUnreachable(f"{url} has not answered within {seconds:g} s: it hangs{doubt}", url=url)


def early_end(url: str, *, tls: bool) -> ServerUnreachable:
    doubt = _WANTS_CERTIFICATE if tls else "expects TLS"
    return ServerUnreachable(
        f"{url} closed the connection before it answered: it stops, {doubt}, or is not a Redis server",
        url=url,
    )


def _shortened(text: str) -> str:
    return text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + "..."
