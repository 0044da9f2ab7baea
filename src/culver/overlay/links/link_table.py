"""The connections of a site and the links among them: one link for each peer and label.

    dialler                                 accepting site
       | -- HELLO ---------------------------> |   checks certificate, name and form
       | <--------------------------- HELLO -- |   or REFUSE, and nothing else
       | -- OPEN --> or <------------- OPEN -- |   the site with the smaller key says which connection is the link

Both sites may dial each other at the same time. The site with the smaller key prefers the connection that it dialled
itself. It does not know to whom its own attempts lead before they are answered; therefore it lets an accepted
connection wait for a moment while an attempt of its own may lead to the same peer. Without that, the first link would
open and close at once.
"""

import asyncio
import itertools
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from culver.overlay.links import refusals
from culver.overlay.links.dialler import Dialler
from culver.overlay.links.frame_format import FrameKind
from culver.overlay.links.hello import Hello, SitePeer, check_peer, encode_hello, read_hello
from culver.overlay.links.link_choice import Contender, replaces
from culver.overlay.links.link_settings import PeerAddress, SiteLinkSettings
from culver.overlay.links.refusals import QUIET, LinkRefusal, RefusalReports
from culver.overlay.links.site_connection import SiteConnection
from culver.overlay.links.site_link import LinkObserver, SiteLink

logger = logging.getLogger(__name__)

_HOLD_SECONDS = 0.5
# Without certificates, anybody can call itself by any number of names.
_MOST_LINKS = 1_024
_MOST_LABELS = 16
_STOPPED = LinkRefusal(refusals.STOPPED, "the site stops")
_DUPLICATE = LinkRefusal(refusals.DUPLICATE, "the sites have another link with this label")

_numbers = itertools.count(1)


@dataclass(slots=True)
class _Held:
    """An accepted connection that waits for our own attempts, which may lead to the same peer."""

    connection: SiteConnection
    rivals: set[Dialler]
    timer: asyncio.TimerHandle


class LinkTable:
    """Greets peers, chooses among connections, and tells the observer. ``diallers`` may come and go.
    All methods return at once; the observer is called from within them, except from ``SiteLink``'s own."""

    def __init__(
        self,
        settings: SiteLinkSettings,
        key: str,
        boot: int,
        observer: LinkObserver,
        diallers: Mapping[PeerAddress, Dialler],
    ) -> None:
        self.links: dict[int, SiteLink] = {}
        self._settings = settings
        self._key = key
        self._boot = boot
        self._observer = observer
        self._diallers = diallers
        self._reports = RefusalReports()
        self._connections: set[SiteConnection] = set()
        self._standing: dict[tuple[str, str], SiteConnection] = {}
        self._held: dict[tuple[str, str], _Held] = {}

    def link_with(self, key: str, label: str) -> SiteConnection | None:
        """The connection of the open link with this peer under this label."""
        standing = self._standing.get((key, label))
        return standing if standing is not None and standing.is_open else None

    def attempted(self, dialler: Dialler) -> None:
        """An attempt of ours is over; whoever waited for it alone becomes a link."""
        for held in list(self._held.values()):
            held.rivals.discard(dialler)
            if not held.rivals:
                self._open(held.connection)

    def report(self, address: str, refusal: LinkRefusal) -> None:
        """Tells the observer of a connection that never became a link, unless it has just heard the same."""
        host = address.rpartition(":")[0]
        now = asyncio.get_running_loop().time()
        if refusal.code not in QUIET and self._reports.admit(host, refusal.code, now):
            self._tell(lambda: self._observer.refused(address, refusal.words), f"the refusal of {address}")

    async def close(self) -> None:
        """Ends all connections, and returns when their sockets are closed."""
        connections = list(self._connections)
        for connection in connections:
            connection.end(_STOPPED, say=True)
            self.ended(connection)
        for connection in connections:
            await connection.gone.wait()

    # What connections call.

    def made(self, connection: SiteConnection) -> None:
        self._connections.add(connection)
        if connection.dialled is not None:
            self._say_hello(connection, connection.dialled.label, connection.dialled.cost)

    def greeted(self, connection: SiteConnection, content: bytes) -> None:
        hello = read_hello(content)
        if isinstance(hello, LinkRefusal):
            connection.end(hello, say=True)
            return
        if (objection := self._objection(connection, hello)) is not None:
            connection.end(objection, say=True)
            return
        address = connection.dialled
        if address is None:
            peer = SitePeer(hello.key, hello.boot, hello.label, connection.address, hello.cost, dialled=False)
            self._say_hello(connection, hello.label, hello.cost)
        else:
            peer = SitePeer(
                hello.key, hello.boot, address.label, connection.address, address.cost, dialled=True
            )
            dialler = self._diallers.get(address)
            if dialler is None:
                connection.end(LinkRefusal(refusals.CLOSED, "this site dials no longer"), say=True)
                return
            dialler.key = hello.key
        connection.peer = peer
        connection.most_body_bytes = min(hello.max_frame_bytes, self._settings.max_frame_bytes)
        if self._key < peer.key:
            self._choose(connection, peer)

    def chosen(self, connection: SiteConnection) -> None:
        if connection.peer is None or self._key < connection.peer.key:
            words = "the peer opens a link that is not its choice"
            connection.end(LinkRefusal(refusals.GARBAGE, words), say=True)
        else:
            self._open(connection)

    def received(self, connection: SiteConnection, body: bytes) -> None:
        link = connection.link
        assert link is not None
        if not self._tell(lambda: self._observer.received(link, body), f"a frame of {link.peer.key}"):
            link.close("a frame could not be handled")

    def ended(self, connection: SiteConnection) -> None:
        if connection.over.is_set():
            return
        connection.over.set()
        self._forget(connection)
        refusal, peer, link = connection.refusal, connection.peer, connection.link
        assert refusal is not None
        if peer is not None:
            pair = peer.key, peer.label
            if self._standing.get(pair) is connection:
                del self._standing[pair]
            if pair in self._held and self._held[pair].connection is connection:
                self._held.pop(pair).timer.cancel()
        if link is None:
            self.report(connection.address, refusal)
            return
        del self.links[link.number]
        self._tell(
            lambda: self._observer.closed(link, refusal.words), f"the end of the link to {link.peer.key}"
        )

    def lost(self, connection: SiteConnection) -> None:
        self._forget(connection)

    def _forget(self, connection: SiteConnection) -> None:
        if connection.over.is_set() and connection.gone.is_set():
            self._connections.discard(connection)

    # Greeting and choice.

    def _say_hello(self, connection: SiteConnection, label: str, cost: int) -> None:
        settings = self._settings
        hello = encode_hello(self._key, self._boot, label, cost, settings.max_frame_bytes, settings.routing)
        connection.say(FrameKind.HELLO, hello)

    def _objection(self, connection: SiteConnection, hello: Hello) -> LinkRefusal | None:
        allowed, routing = self._settings.allowed, self._settings.routing
        objection = check_peer(hello, self._key, allowed, connection.certificate_names, routing)
        if objection is not None:
            return objection
        if connection.dialled is not None and hello.label != connection.dialled.label:
            return LinkRefusal(refusals.GARBAGE, "the hello answers with another label")
        standing = [peer for _, peer in self._standing_with(hello.key)]
        newest = max((peer.boot for peer in standing), default=0)
        if hello.boot < newest:
            return LinkRefusal(refusals.OLD_BOOT, f"boot {hello.boot} of {hello.key} is older than {newest}")
        fresh = (hello.key, hello.label) not in self._standing
        if fresh and (len(standing) >= _MOST_LABELS or len(self._standing) >= _MOST_LINKS):
            return LinkRefusal(refusals.CROWDED, "this site has as many links as it bears")
        return None

    def _choose(self, connection: SiteConnection, peer: SitePeer) -> None:
        standing = self.link_with(peer.key, peer.label)
        if standing is not None:
            if replaces(self._contender(connection), self._contender(standing)):
                self._open(connection)
            else:
                connection.end(_DUPLICATE, say=True)
            return
        rivals = set() if peer.dialled else self._rivals_of(peer)
        if rivals:
            self._hold(connection, peer, rivals)
        else:
            self._open(connection)

    def _contender(self, connection: SiteConnection) -> Contender:
        assert connection.peer is not None
        return Contender(connection.peer.boot, connection.peer.dialled, connection.is_silent)

    def _rivals_of(self, peer: SitePeer) -> set[Dialler]:
        return {each for each in self._diallers.values() if each.may_lead_to(peer.key, peer.label)}

    def _hold(self, connection: SiteConnection, peer: SitePeer, rivals: set[Dialler]) -> None:
        pair = peer.key, peer.label
        if (earlier := self._held.pop(pair, None)) is not None:
            # The same site dials again: it has given the earlier connection up.
            earlier.timer.cancel()
            earlier.connection.end(_DUPLICATE, say=True)
        timer = asyncio.get_running_loop().call_later(_HOLD_SECONDS, self._open, connection)
        self._held[pair] = _Held(connection, rivals, timer)
        for rival in rivals:
            rival.hurry()

    def _open(self, connection: SiteConnection) -> None:
        """Makes a connection the link with its peer, and ends those whose place it takes."""
        peer = connection.peer
        assert peer is not None
        pair = peer.key, peer.label
        if (held := self._held.pop(pair, None)) is not None:
            held.timer.cancel()
            if held.connection is not connection:
                held.connection.end(_DUPLICATE, say=True)
        if connection.refusal is not None:
            return
        for standing, before in self._standing_with(peer.key):
            if before.boot < peer.boot:
                self._replace(standing, f"the peer has restarted: boot {peer.boot} follows {before.boot}")
            elif before.label == peer.label:
                self._replace(standing, "another connection takes its place")
        if self._key < peer.key:
            connection.say(FrameKind.OPEN)
        link = SiteLink(next(_numbers), peer, connection.most_body_bytes, connection)
        self.links[link.number] = link
        self._standing[pair] = connection
        connection.open(link)
        if not self._tell(lambda: self._observer.opened(link), f"the new link to {peer.key}"):
            link.close("the link could not be handled")

    def _standing_with(self, key: str) -> list[tuple[SiteConnection, SitePeer]]:
        found = ((each, each.peer) for each in self._standing.values())
        return [(each, peer) for each, peer in found if peer is not None and peer.key == key]

    def _replace(self, connection: SiteConnection, reason: str) -> None:
        """Ends a link now: the observer hears of that before its successor opens."""
        connection.end(LinkRefusal(refusals.REPLACED, reason), say=True)
        self.ended(connection)

    def _tell(self, hear: Callable[[], None], what: str) -> bool:
        """Calls the observer. False: it failed, which harms nobody else."""
        try:
            hear()
        except Exception:
            logger.exception("%s could not be handled", what)
            return False
        return True
