"""Channels over many unmodified Redis servers (Dynamoth): a client, dispatchers, a balancer and a pool of servers.

channel_client       the client in the shape of redis-py; channel_pubsub what one reader subscribes to; sync_channels
                     both without asyncio
channel_connections  the connections that the clients of a process share; service_directory where the servers are
core_runner          carries out the instructions of a core with real connections
channel_service      the pool, the plan and the balancer at work; channel_api and channel_status its HTTP interface
server_control       the service's connection to one server
dispatcher_process   the process beside each server, with its load_analyser; dispatcher_children starts them

core/                what decides, without any input or output
servers/             connections to Redis servers, and who runs the servers
"""

from typing import TYPE_CHECKING

from culver.lazy import lazy_names

if TYPE_CHECKING:
    from culver.channels.channel_api import run_channel_service as run_channel_service
    from culver.channels.channel_client import Channels as Channels
    from culver.channels.channel_names import check_channel_name as check_channel_name
    from culver.channels.channel_pubsub import (
        SLOW_READER as SLOW_READER,
        ChannelSubscription as ChannelSubscription,
        PubSub as PubSub,
        QueueLimits as QueueLimits,
    )
    from culver.channels.channel_status import (
        ChannelStatus as ChannelStatus,
        ServerStatus as ServerStatus,
        ServiceStatus as ServiceStatus,
    )
    from culver.channels.core.message_order import LostMessages as LostMessages
    from culver.channels.servers.tls_files import TlsFiles as TlsFiles, tls_context as tls_context
    from culver.channels.service_directory import (
        DEFAULT_URL as DEFAULT_URL,
        URL_VARIABLE as URL_VARIABLE,
        parse_service_url as parse_service_url,
    )
    from culver.channels.sync_channels import SyncChannels as SyncChannels, SyncPubSub as SyncPubSub
else:
    __getattr__ = lazy_names(__name__, extra="channels")
