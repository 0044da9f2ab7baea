"""The gateway: HTTP, WebSocket and Server-Sent Events."""

from culver.gateway.app import create_app as create_app
from culver.gateway.origin_policy import OriginPolicy as OriginPolicy
from culver.gateway.server.gateway_server import GatewayServer as GatewayServer, bind as bind
