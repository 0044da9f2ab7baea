"""The URL of a Redis server, and how a program identifies itself there.

    redis://[user[:password]@]host[:port][/0]
    rediss://...                                 the same over TLS
    unix://[user[:password]@]/path/of/socket

The user may be left empty before a password: it is ``default`` then.
"""

import ssl
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import unquote, urlsplit

from culver.channels.servers.tls_files import TlsFiles, tls_context
from culver.errors import InvalidConfiguration

DEFAULT_PORT = 6379
_FORMS = "redis://host:port, rediss://host:port or unix:///path"


@dataclass(frozen=True, slots=True)
class ServerAccess:
    """How a program identifies itself to servers, and how it checks whom it talks to. Without ``tls``, a ``rediss``
    URL is checked against the authorities that the system trusts. ``tls_files`` are those that ``tls`` was made of: a
    context cannot be given to another process."""

    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    tls_files: TlsFiles = field(default_factory=TlsFiles)

    @classmethod
    def with_files(cls, username: str | None, password: str | None, files: TlsFiles) -> Self:
        """
        :raises InvalidConfiguration: a file cannot be used.
        """
        return cls(username, password, tls_context(files), files)


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """Where a server listens: a host and a port, or the path of a socket. ``url`` holds no user and no password, and
    is the same for all spellings of an address."""

    url: str
    host: str
    port: int
    path: str
    tls: bool
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)


def parse_redis_url(url: str) -> RedisAddress:
    """
    :raises InvalidConfiguration: the URL has none of the forms above. The message does not repeat its password.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise _invalid(f"a server's URL cannot be read: {error}") from error
    shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    if parts.query or parts.fragment:
        raise _invalid(f"{shown!r}: the URL of a server takes no parameters; write {_FORMS}")
    username = unquote(parts.username) if parts.username else None
    password = unquote(parts.password) if parts.password is not None else None
    if parts.scheme == "unix":
        path = unquote(parts.path)
        if host or not path.strip("/"):
            raise _invalid(f"{shown!r} names no socket; write unix:///path")
        return RedisAddress(f"unix://{parts.path}", "", 0, path, False, username, password)
    if parts.scheme not in ("redis", "rediss") or not host or port == 0:
        raise _invalid(f"{shown!r} is not the address of a server; write {_FORMS}")
    if parts.path not in ("", "/", "/0"):
        raise _invalid(f"{shown!r}: channels use database 0; leave out {parts.path!r}")
    port = DEFAULT_PORT if port is None else port
    shown_host = f"[{host}]" if ":" in host else host
    tls = parts.scheme == "rediss"
    return RedisAddress(f"{parts.scheme}://{shown_host}:{port}", host, port, "", tls, username, password)


def _invalid(message: str) -> InvalidConfiguration:
    return InvalidConfiguration(message, field="url")
