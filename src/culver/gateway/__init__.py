"""The gateway: HTTP, WebSocket and Server-Sent Events."""

from culver.gateway.app import create_app
from culver.gateway.server.gateway_server import GatewayServer, bind

__all__ = [
    "GatewayServer",
    "bind",
    "create_app",
]
