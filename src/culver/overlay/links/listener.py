"""Accepts the connections of other sites.

Sockets are accepted here and not by ``asyncio.Server``, because each connection gets the TLS context of its moment:
the certificates may have changed since the last one.
"""

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Any

from culver.errors import InvalidConfiguration
from culver.overlay.links import refusals
from culver.overlay.links.link_settings import SiteLinkSettings, parse_listen
from culver.overlay.links.refusals import LinkRefusal
from culver.overlay.links.site_connection import LINGER_SECONDS, SiteConnection
from culver.overlay.links.tls_contexts import tls_words

logger = logging.getLogger(__name__)

_BACKLOG = 128
_NO_SUCH_FAMILY = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
_PAUSE_SECONDS = 0.1
_WARNING_SECONDS = 60.0
#: Connections that may wait for the end of their greeting. The oldest goes when there are more, so that whoever opens
#: many and says nothing keeps nobody else out.
MOST_WAITING = 128


class Listener:
    """Listens between ``open`` and ``close``. ``connection`` makes the connection for an accepted socket, given where
    it comes from; ``failed`` hears of sockets that did not get as far as that."""

    def __init__(
        self,
        settings: SiteLinkSettings,
        connection: Callable[[str], SiteConnection],
        context: Callable[[], ssl.SSLContext | None],
        failed: Callable[[str, LinkRefusal], None],
    ) -> None:
        self.port = 0
        self._settings = settings
        self._connection = connection
        self._context = context
        self._failed = failed
        self._sockets: list[socket.socket] = []
        self._next_warning = 0.0
        self._waiting: dict[SiteConnection, asyncio.Task[None]] = {}  # oldest first

    async def open(self) -> None:
        """:raises InvalidConfiguration: the address cannot be listened at."""
        host, self.port = parse_listen(self._settings.listen)
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(
                host or None, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            for family, _, _, _, address in dict.fromkeys(found):
                try:
                    self._sockets.append(
                        self._listening_socket(family, (address[0], self.port, *address[2:]))
                    )
                except OSError as error:
                    # A host without IPv6 may still resolve its names to it.
                    if error.errno not in _NO_SUCH_FAMILY or len(found) == 1:
                        raise
            if not self._sockets:
                raise OSError(errno.EADDRNOTAVAIL, "this machine has no such address")
        except OSError as error:
            self._close_sockets()
            words = f"overlay.listen {self._settings.listen} cannot be used: {error.strerror or error}"
            raise InvalidConfiguration(words, field="overlay.listen") from error

    def start(self, group: asyncio.TaskGroup) -> None:
        """Begins to accept; the group holds the tasks of greetings until ``close``."""
        self._group = group
        self._loop = asyncio.get_running_loop()
        for sock in self._sockets:
            self._loop.add_reader(sock, self._accept, sock)

    async def close(self) -> None:
        """Accepts nothing more, and drops sockets that have not become connections."""
        for sock in self._sockets:
            self._loop.remove_reader(sock)
        self._close_sockets()
        tasks = list(self._waiting.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _close_sockets(self) -> None:
        for sock in self._sockets:
            sock.close()
        self._sockets.clear()

    def _listening_socket(self, family: int, address: tuple[Any, ...]) -> socket.socket:
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind(address)
            sock.listen(_BACKLOG)
        except OSError:
            sock.close()
            raise
        self.port = sock.getsockname()[1]
        return sock

    def _accept(self, sock: socket.socket) -> None:
        # `sock_accept` would lose a connection when it is cancelled at the wrong moment.
        try:
            accepted, address = sock.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:
            if self._loop.time() >= self._next_warning:
                self._next_warning = self._loop.time() + _WARNING_SECONDS
                logger.warning("cannot accept a connection of another site, and tries again: %s", error)
            self._loop.remove_reader(sock)
            self._loop.call_later(_PAUSE_SECONDS, self._accept_again, sock)
            return
        host = f"[{address[0]}]" if ":" in address[0] else address[0]
        connection = self._connection(f"{host}:{address[1]}")
        if len(self._waiting) >= MOST_WAITING:
            self._drop_oldest()
        task = self._waiting[connection] = self._group.create_task(self._admit(connection, accepted))
        task.add_done_callback(lambda _: self._admitted(connection, accepted))

    def _accept_again(self, sock: socket.socket) -> None:
        if sock in self._sockets:
            self._loop.add_reader(sock, self._accept, sock)

    async def _admit(self, connection: SiteConnection, accepted: socket.socket) -> None:
        """Lives until the greeting is over, one way or another."""
        options: dict[str, Any] = {}
        if (context := self._context()) is not None:
            options = {
                "ssl": context,
                "ssl_handshake_timeout": self._settings.hello_seconds,
                "ssl_shutdown_timeout": LINGER_SECONDS,
            }
        connected = False
        try:
            accepted.setblocking(False)
            # asyncio does that for sockets that it has opened itself.
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.connect_accepted_socket(lambda: connection, accepted, **options)
            connected = True
            await connection.settled.wait()
        except OSError as error:
            if isinstance(error, ssl.SSLError):
                refusal = LinkRefusal(refusals.TLS, f"TLS failed: {tls_words(error)}")
            else:
                refusal = LinkRefusal(refusals.LOST, f"no connection came about: {error.strerror or error}")
            self._failed(connection.address, refusal)
        finally:
            if not connected:
                connection.abandon()

    def _admitted(self, connection: SiteConnection, accepted: socket.socket) -> None:
        """The greeting is over, or its task was cancelled, even before it began."""
        self._waiting.pop(connection, None)
        if not connection.is_made:
            accepted.close()

    def _drop_oldest(self) -> None:
        connection, task = next(iter(self._waiting.items()))
        del self._waiting[connection]
        refusal = LinkRefusal(refusals.CROWDED, f"more than {MOST_WAITING} connections wait for their hello")
        if connection.is_made:
            connection.end(refusal, say=False)
        else:
            task.cancel()
            self._failed(connection.address, refusal)
