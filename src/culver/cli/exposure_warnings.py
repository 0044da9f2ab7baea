"""Warnings about servers that other machines can reach, and that ask nobody who they are."""

from collections.abc import Iterator

from culver.config import Settings
from culver.host_names import is_loopback


def warnings_of_site(settings: Settings) -> Iterator[str]:
    gateway, overlay = settings.gateway, settings.overlay
    if not is_loopback(gateway.host):
        yield (
            f"other machines may reach this site at {gateway.host or 'every address'} port {gateway.port}. It has no "
            "passwords and no encryption: whoever reaches it reads and publishes every event and changes every "
            "subscription. Listen on 127.0.0.1, or keep others away with a firewall or an authenticating proxy"
        )
    host = overlay.listen.rpartition(":")[0]
    if overlay.listen and not is_loopback(host) and not overlay.tls_cert:
        yield (
            f"other machines may reach this site's overlay at {overlay.listen} without TLS: whoever reaches it may "
            "pass for a site, and read what it asks for. Give overlay.tls_ca, overlay.tls_cert and overlay.tls_key"
        )


def warnings_of_channels(host: str) -> Iterator[str]:
    if not is_loopback(host):
        yield (
            f"other machines may reach the channel service at {host}, which has no passwords and no encryption: "
            "whoever reaches it reads where the servers are, and the secret that signs the plan. Keep others away "
            "with a firewall"
        )


def warnings_of_cluster(host: str) -> Iterator[str]:
    if not is_loopback(host):
        yield (
            f"other machines may reach this cluster at {host}. It has no passwords and no encryption: whoever "
            "reaches a Master or Worker runs programs as this user. Keep others away with a firewall"
        )
