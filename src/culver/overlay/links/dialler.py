"""Dials one address again and again, whenever no link leads to the site that was found there."""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from culver.overlay.links import refusals
from culver.overlay.links.link_settings import PeerAddress, SiteLinkSettings
from culver.overlay.links.refusals import LinkRefusal
from culver.overlay.links.site_connection import LINGER_SECONDS, SiteConnection
from culver.overlay.links.tls_contexts import tls_words

_SHORTEST_SECONDS = 0.1
_LONGEST_SECONDS = 5.0
_STEADY_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class PeerState:
    """An address at the moment: ``state`` is ``connected``, ``connecting`` or ``refused: ...``, ``key`` the
    site that was last found there, ``failure`` why the last attempt came to nothing. A link that the peer dialled
    connects the address, too."""

    address: str
    state: str
    attempts: int
    key: str
    failure: str


class DialPauses:
    """Pauses between attempts: they double from 0.1 s to 5 s, less a random part of up to a half, so that sites that
    lose one another together do not come back together. A link that stood for a while resets them."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._longest = _SHORTEST_SECONDS

    def next_seconds(self) -> float:
        longest = self._longest
        self._longest = min(_LONGEST_SECONDS, 2 * longest)
        return max(_SHORTEST_SECONDS, longest * self._random.uniform(0.5, 1.0))

    def link_stood(self, seconds: float) -> None:
        if seconds >= _STEADY_SECONDS:
            self._longest = _SHORTEST_SECONDS


class Dialler:
    """``connection`` makes the connection of an attempt; ``context`` the TLS of it, or None. ``standing`` finds the
    connection of the link with a site under this address's label. ``attempted`` is called at the end of each attempt,
    successful or not, with a reason if no connection came about."""

    def __init__(
        self,
        address: PeerAddress,
        settings: SiteLinkSettings,
        random: Random,
        connection: Callable[[PeerAddress], SiteConnection],
        context: Callable[[], ssl.SSLContext | None],
        standing: Callable[[str, str], SiteConnection | None],
        attempted: Callable[["Dialler", LinkRefusal | None], None],
    ) -> None:
        self.address = address
        self.key = ""
        self._settings = settings
        self._pauses = DialPauses(random)
        self._connection = connection
        self._context = context
        self._standing = standing
        self._attempted = attempted
        self._attempts = 0
        self._last_attempt = -_LONGEST_SECONDS
        self._failure = LinkRefusal("", "")
        self._hurried = asyncio.Event()

    @property
    def state(self) -> PeerState:
        if self._linked() is not None:
            return PeerState(self.address.text, "connected", self._attempts, self.key, "")
        code, words = self._failure
        state = f"refused: {words}" if code not in ("", refusals.LOST) else "connecting"
        return PeerState(self.address.text, state, self._attempts, self.key, words)

    def may_lead_to(self, key: str, label: str) -> bool:
        return self.address.label == label and self.key in ("", key)

    def hurry(self) -> None:
        """Ends the pause, because somebody who may live at this address has just shown up."""
        if asyncio.get_running_loop().time() - self._last_attempt >= _SHORTEST_SECONDS:
            self._hurried.set()

    async def run(self) -> None:
        """Dials until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            if (linked := self._linked()) is not None:
                began = loop.time()
                await linked.over.wait()
                self._failure = LinkRefusal("", "")
                self._pauses.link_stood(loop.time() - began)
            else:
                await self._attempt()
            if self._linked() is None:
                await self._pause()

    async def _attempt(self) -> None:
        self._attempts += 1
        self._last_attempt = asyncio.get_running_loop().time()
        connection = self._connection(self.address)
        failure = await self._connect(connection)
        if failure is None:
            await connection.settled.wait()
        self._failure = failure or connection.refusal or LinkRefusal("", "")
        self._attempted(self, failure)

    async def _connect(self, connection: SiteConnection) -> LinkRefusal | None:
        loop = asyncio.get_running_loop()
        host, port = self.address.host, self.address.port
        connected = False
        try:
            async with asyncio.timeout(self._settings.hello_seconds):
                if (context := self._context()) is None:
                    await loop.create_connection(lambda: connection, host, port)
                else:
                    await loop.create_connection(
                        lambda: connection, host, port, ssl=context, ssl_shutdown_timeout=LINGER_SECONDS
                    )
                connected = True
        except ssl.SSLError as error:
            return LinkRefusal(refusals.TLS, f"TLS failed: {tls_words(error)}")
        except TimeoutError:
            words = f"no connection came about within {self._settings.hello_seconds:g} s"
            return LinkRefusal(refusals.LOST, words)
        except OSError as error:
            return LinkRefusal(refusals.LOST, f"cannot connect: {error.strerror or error}")
        finally:
            if not connected:
                connection.abandon()
        return None

    async def _pause(self) -> None:
        self._hurried.clear()
        try:
            async with asyncio.timeout(self._pauses.next_seconds()):
                await self._hurried.wait()
        except TimeoutError:
            pass

    def _linked(self) -> SiteConnection | None:
        return self._standing(self.key, self.address.label) if self.key else None
