"""Whether a site has channels, and the role `channels` of one that has none."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from culver import channels
from culver.config import ChannelSettings, Settings
from culver.delivery import Hub
from culver.errors import InvalidConfiguration, InvalidRequest
from culver.roles import ChannelSession, ChannelsStatus, no_channel_service

if TYPE_CHECKING:
    from culver.site.service_channels import ServiceChannels


def check_channels(settings: ChannelSettings) -> None:
    """Raises InvalidConfiguration for an address that no channel service can have, and for certificate files that
    cannot be used."""
    if settings.url:
        try:
            channels.parse_service_url(settings.url)
        except InvalidRequest as exc:
            raise InvalidConfiguration(f"channels.url: {exc.message}", field="channels.url") from exc
        channel_tls(settings)


def channel_tls(settings: ChannelSettings) -> ssl.SSLContext | None:
    """How the site checks the service's servers over TLS; None for the authorities that the system trusts."""
    given = (settings.tls_ca, settings.tls_cert, settings.tls_key)
    files = channels.TlsFiles(*(Path(name) if name else None for name in given))
    return channels.tls_context(files, "channels.tls_")


def channels_of(settings: Settings, hub: Hub, identity: bytes) -> "ServiceChannels | NoChannels":
    """The channels of a process: they publish what the hub's subscriptions deliver to a channel while they run.
    `identity` is the registry's."""
    if not settings.channels.url:
        return NoChannels()
    # It takes a tenth of a second to load, which a site without channels need not spend.
    from culver.site.service_channels import ServiceChannels

    return ServiceChannels(settings, hub, identity)


class NoChannels:
    """Implements the role `channels` of a site without a channel service."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        yield

    async def publish(self, channel: str, data: bytes) -> int:
        raise no_channel_service("channel")

    async def subscribe(self, channel: str) -> ChannelSession:
        raise no_channel_service("channel")

    def status(self) -> ChannelsStatus:
        return ChannelsStatus()
