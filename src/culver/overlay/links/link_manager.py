"""All links of a site: one listener, one dialler for each address, and the table of their connections."""

import asyncio
import ssl
from collections.abc import Mapping
from random import Random
from types import MappingProxyType, TracebackType
from typing import Self

from culver.overlay.links.dialler import Dialler, PeerState
from culver.overlay.links.link_settings import PeerAddress, SiteLinkSettings, parse_peer
from culver.overlay.links.link_table import LinkTable
from culver.overlay.links.listener import Listener
from culver.overlay.links.refusals import LOST, LinkRefusal
from culver.overlay.links.site_connection import SiteConnection
from culver.overlay.links.site_link import LinkObserver, SiteLink
from culver.overlay.links.tls_contexts import TlsContexts
from culver.overlay.site_keys import is_site_key


class LinkManager:
    """An async context manager, entered once: links come and go between entering and leaving. Leaving closes them,
    calls ``closed`` for each, and returns when the sockets are closed, after about a second at most.

    :raises InvalidConfiguration: on entering, if the site cannot listen or the files of TLS cannot be used.
    """

    def __init__(
        self, settings: SiteLinkSettings, key: str, boot: int, observer: LinkObserver, random: Random
    ) -> None:
        """``boot`` is higher in each life of the site than in the one before."""
        if not is_site_key(key):
            raise ValueError(f"{key!r} is not the key of a site")
        self._settings = settings
        self._random = random
        self._diallers: dict[PeerAddress, Dialler] = {}
        self._table = LinkTable(settings, key, boot, observer, self._diallers)
        self._links = MappingProxyType(self._table.links)
        self._listener: Listener | None = None
        self._tls: TlsContexts | None = None
        self._dialling: dict[PeerAddress, asyncio.Task[None]] = {}

    async def __aenter__(self) -> Self:
        settings = self._settings
        if settings.tls:
            self._tls = TlsContexts(settings.tls_ca, settings.tls_cert, settings.tls_key)
        if settings.listen:
            self._listener = Listener(settings, self._accepted, self._accepting_context, self._table.report)
            await self._listener.open()
        self._group = await asyncio.TaskGroup().__aenter__()
        for peer in settings.peers:
            self.dial(peer)
        if self._listener is not None:
            self._listener.start(self._group)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._dialling.values():
            task.cancel()
        if self._listener is not None:
            await self._listener.close()
        try:
            # The group does not get the body's error, which it would wrap.
            await self._group.__aexit__(None, None, None)
        finally:
            await self._table.close()

    @property
    def port(self) -> int:
        """The port that the site listens at; 0 if it does not."""
        return self._listener.port if self._listener is not None else 0

    @property
    def links(self) -> Mapping[int, SiteLink]:
        """The open links by number, always up to date."""
        return self._links

    @property
    def peers(self) -> tuple[PeerState, ...]:
        """The addresses that are dialled, the configured ones first."""
        return tuple(dialler.state for dialler in self._diallers.values())

    def dial(self, peer: str) -> None:
        """Dials an address (``HOST:PORT[?label=L&cost=N]``) from now on. One that is dialled already stays as it is.

        :raises InvalidConfiguration: the address has the wrong form.
        """
        address = parse_peer(peer)
        if address in self._diallers:
            return
        self._diallers[address] = dialler = Dialler(
            address,
            self._settings,
            self._random,
            self._dialled,
            self._dialling_context,
            self._table.link_with,
            self._attempted,
        )
        self._dialling[address] = self._group.create_task(dialler.run())

    def hang_up(self, peer: str, reason: str) -> None:
        """Dials an address no longer, and closes the link that was dialled there."""
        address = parse_peer(peer)
        task = self._dialling.pop(address, None)
        if task is None:
            return
        task.cancel()
        dialler = self._diallers.pop(address)
        self._table.attempted(dialler)
        for link in list(self._links.values()):
            if link.peer.dialled and link.peer.address == address.text.partition("?")[0]:
                link.close(reason)

    def _accepted(self, address: str) -> SiteConnection:
        return SiteConnection(self._table, self._settings, address, None)

    def _dialled(self, address: PeerAddress) -> SiteConnection:
        return SiteConnection(self._table, self._settings, address.text.partition("?")[0], address)

    def _accepting_context(self) -> ssl.SSLContext | None:
        return self._tls.current().accepting if self._tls is not None else None

    def _dialling_context(self) -> ssl.SSLContext | None:
        return self._tls.current().dialling if self._tls is not None else None

    def _attempted(self, dialler: Dialler, failure: LinkRefusal | None) -> None:
        # An address where nobody answers is the business of `peers`: no connection was refused.
        if failure is not None and failure.code != LOST:
            self._table.report(dialler.address.text.partition("?")[0], failure)
        self._table.attempted(dialler)
