"""A running site: its roles, its housekeeping and its gateway processes."""

from culver.site.directory_locks import gateway_lock, site_lock
from culver.site.event_flow import EventFlow
from culver.site.gateway_follower import GatewayFollower
from culver.site.gateway_group import GatewayGroup, check_gateways, listeners
from culver.site.gateway_messages import Welcome
from culver.site.remote_site import RemoteSite
from culver.site.running_site import RunningSite, SiteParts
from culver.site.site_server import OnReady, serve, stop_signal

__all__ = [
    "EventFlow",
    "GatewayFollower",
    "GatewayGroup",
    "OnReady",
    "RemoteSite",
    "RunningSite",
    "SiteParts",
    "Welcome",
    "check_gateways",
    "gateway_lock",
    "listeners",
    "serve",
    "site_lock",
    "stop_signal",
]
