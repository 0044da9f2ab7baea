"""The number of gateways of a site, and the ports that they listen on."""

import socket
from collections.abc import Iterator
from dataclasses import replace

from culver.config import Settings
from culver.errors import InvalidConfiguration
from culver.gateway import bind

_MOST_GATEWAYS = 64


def check_gateways(settings: Settings) -> None:
    """Raises InvalidConfiguration for a number of gateways that the site cannot have."""
    count = settings.gateway.processes
    if not 1 <= count <= _MOST_GATEWAYS:
        raise InvalidConfiguration(
            f"gateway.processes must be from 1 to {_MOST_GATEWAYS}, it is {count}", field="gateway.processes"
        )
    if count > 1 and settings.pipeline.engine == "inline":
        raise InvalidConfiguration(
            "the inline engine hands its results on in memory, to the one gateway in its own process; several "
            "gateways need the spark engine",
            field="gateway.processes",
        )


def listeners(settings: Settings) -> Iterator[socket.socket]:
    """Bind the sockets of the further gateways: on the ports behind the site's own, or on any if the site takes any.
    Raises InvalidConfiguration."""
    gateway = settings.gateway
    for number in range(1, gateway.processes):
        yield bind(replace(gateway, port=gateway.port + number if gateway.port else 0))
