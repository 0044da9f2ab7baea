"""Whether a site is in an overlay, and the role `overlay` of one that is in none."""

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from culver.config import OverlaySettings, Settings
from culver.control import Catalogue
from culver.delivery import Hub
from culver.errors import InvalidConfiguration
from culver.log import Committer, PublicationLog
from culver.messages import ForgottenSite, OverlayStatus
from culver.overlay import is_dialable, site_key
from culver.registry import Registration
from culver.roles import no_overlay
from culver.site.event_flow import EventFlow

if TYPE_CHECKING:
    from culver.overlay import LinkSettings
    from culver.site.wide_area.overlay_runner import OverlayRunner

_SEPARATORS = re.compile(r"[\s,]+")


def check_overlay(settings: OverlaySettings) -> None:
    """Raises InvalidConfiguration for a name that no site can have, and for addresses that lead nowhere."""
    if not settings.is_on:
        if settings.name:
            raise InvalidConfiguration(
                f"the site has the name {settings.name!r} and no place in an overlay: give overlay.listen "
                "(--overlay HOST:PORT), overlay.peers (--peer HOST:PORT), or both",
                field="overlay.listen",
            )
        return
    if not settings.name:
        raise InvalidConfiguration(
            "a site of an overlay needs a name that no other site has: give overlay.name (--name NAME)",
            field="overlay.name",
        )
    site_key(settings.name, bytes(8))
    link_settings(settings)
    if settings.address and not is_dialable(settings.address):
        raise InvalidConfiguration(
            f"overlay.address is {settings.address!r}; it must be HOST:PORT, as other sites dial it",
            field="overlay.address",
        )
    if not 0 < settings.false_positive_rate < 1:
        raise InvalidConfiguration(
            f"overlay.false_positive_rate must be between 0 and 1, it is {settings.false_positive_rate}",
            field="overlay.false_positive_rate",
        )
    for name in ("max_vectors", "most_sites"):
        if not getattr(settings, name):
            raise InvalidConfiguration(f"overlay.{name} must be at least 1", field=f"overlay.{name}")


def link_settings(settings: OverlaySettings) -> "LinkSettings":
    # A site that is in no overlay need not load it.
    from culver.overlay import LinkSettings

    return LinkSettings(
        listen=settings.listen,
        peers=_split(settings.peers),
        allowed=_split(settings.allowed),
        tls_ca=settings.tls_ca,
        tls_cert=settings.tls_cert,
        tls_key=settings.tls_key,
        routing=settings.routing,
    )


def overlay_of(
    settings: Settings,
    log: PublicationLog,
    committer: Committer,
    catalogue: Catalogue,
    hub: Hub,
    identity: bytes,
) -> "OverlayRunner | NoOverlay":
    """The overlay of a site: it runs beside the parts that it is given. `identity` is the registry's."""
    if not settings.overlay.is_on:
        return NoOverlay()
    from culver.site.wide_area.overlay_runner import OverlayRunner

    return OverlayRunner(settings, link_settings(settings.overlay), log, committer, catalogue, hub, identity)


class NoOverlay:
    """Implements the role `overlay` of a site that is in none."""

    description: str | None = None
    mailboxes = 0

    @asynccontextmanager
    async def running(self, flow: EventFlow) -> AsyncIterator[None]:
        yield

    def needed_from(self, position: int) -> int:
        return position

    def status(self) -> OverlayStatus | None:
        return None

    async def positions(self, registrations: Sequence[Registration]) -> list[dict[str, int | None]]:
        return [{} for _ in registrations]

    async def wait(self, registrations: Sequence[Registration], timeout_seconds: float) -> bool:
        return True

    async def forget(self, name: str) -> ForgottenSite:
        raise no_overlay()


def _split(text: str) -> tuple[str, ...]:
    return tuple(part for part in _SEPARATORS.split(text) if part)
