"""The gateways of one site: a process each, and what they and the site tell one another."""

from culver.site.directory_locks import gateway_lock, site_lock
from culver.site.gateway_group import Group
from culver.site.gateway_messages import Accepted, Announcement, Merged, Reached, Registered, Report, Welcome
from culver.site.gateway_ports import check_gateways, listeners
from culver.site.live_subscriptions import LiveSubscriptions
from culver.site.peer import Methods, Peer
from culver.site.remote_site import RemoteSite

__all__ = [
    "Accepted",
    "Announcement",
    "Group",
    "LiveSubscriptions",
    "Merged",
    "Methods",
    "Peer",
    "Reached",
    "Registered",
    "RemoteSite",
    "Report",
    "Welcome",
    "check_gateways",
    "gateway_lock",
    "listeners",
    "site_lock",
]
