"""A running site: its roles, its housekeeping and its gateway processes."""

from culver.site.directory_locks import gateway_lock as gateway_lock, site_lock as site_lock
from culver.site.event_flow import EventFlow as EventFlow
from culver.site.gateway_follower import GatewayFollower as GatewayFollower
from culver.site.gateway_group import (
    GatewayGroup as GatewayGroup,
    check_gateways as check_gateways,
    listeners as listeners,
)
from culver.site.gateway_messages import Welcome as Welcome
from culver.site.remote_site import RemoteSite as RemoteSite
from culver.site.roles.site_publications import SitePublications as SitePublications
from culver.site.running_site import (
    OnReady as OnReady,
    RunningSite as RunningSite,
    SiteParts as SiteParts,
    pause_log as pause_log,
    serve as serve,
    stop_signal as stop_signal,
)
from culver.site.site_channels import channels_of as channels_of, check_channels as check_channels
from culver.site.site_overlay import check_overlay as check_overlay
from culver.site.wide_area.routing.routing_strategy import RoutingStrategy as RoutingStrategy
