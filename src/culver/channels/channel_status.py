"""What the service tells of itself: the messages of its HTTP interface, declared once for server, client and CLI."""

import base64

import msgspec

from culver.channels.core.balance.channel_balancer import PlanView
from culver.channels.core.balance.load_estimate import BalancedServer
from culver.channels.core.channel_load import ChannelLoad
from culver.channels.core.channel_plan import PlanEntry, Ring
from culver.channels.service_directory import ServiceDirectory

#: Channels in one answer: those with an entry first, then the busiest.
MOST_SHOWN_CHANNELS = 1_000


class ServerStatus(msgspec.Struct, frozen=True):
    """One server. ``load_ratio`` is 1 where it does all that it was seen to bear; rates are per second. ``price`` is
    relative to that of other servers."""

    number: int
    url: str
    state: str
    load_ratio: float
    outgoing_bytes: float
    allowed_bytes: float
    cpu: float
    clients: int
    output_buffer_bytes: int
    saturation: str | None
    price: float = 1.0


class ChannelStatus(msgspec.Struct, frozen=True):
    """One channel: where it is served, since which version of the plan (0: by its home), and its rates per second."""

    channel: str
    mapping: str
    groups: tuple[tuple[int, ...], ...]
    version: int
    moving: bool
    publications: float
    subscribers: int
    outgoing_bytes: float


class DecisionStatus(msgspec.Struct, frozen=True):
    """A decision of the balancer, and why. ``at`` is in seconds since 1970."""

    at: float
    reasons: tuple[str, ...]
    moves: int
    started: int
    stopped: tuple[int, ...]


class ServiceStatus(msgspec.Struct, frozen=True):
    """Who serves what, how loaded everybody is, and what was decided last, the newest first."""

    ring_version: int
    servers: list[ServerStatus]
    channels: list[ChannelStatus]
    channels_with_entry: int
    moves_in_progress: int
    moves: int
    dispatcher_restarts: int
    server_restarts: int
    lost_servers: int
    decisions: list[DecisionStatus]


def directory(ring: Ring, secret: bytes) -> ServiceDirectory:
    return ServiceDirectory(
        ring.version, list(ring.servers), list(ring.homes), base64.b64encode(secret).decode("ascii")
    )


def server_status(server: BalancedServer, url: str, *, up: bool) -> ServerStatus:
    load = server.load
    return ServerStatus(
        server.number,
        url,
        server.state.value if up else "down",
        round(server.load_ratio, 4),
        0.0 if load is None else load.outgoing_bytes,
        server.capacity.allowed_bytes,
        0.0 if load is None else load.cpu,
        0 if load is None else load.clients,
        0 if load is None else load.output_buffer_bytes,
        server.capacity.saturation,
        server.price,
    )


def channel_statuses(plan: PlanView, servers: list[BalancedServer]) -> list[ChannelStatus]:
    """The channels to show: those with an entry, then the busiest of the others."""
    loads: dict[bytes, list[ChannelLoad]] = {}
    for server in servers:
        for load in server.load.channels if server.load is not None else ():
            loads.setdefault(load.channel, []).append(load)
    busiest = sorted(loads, key=lambda name: -sum(load.bytes_out for load in loads[name]))
    names = list(dict.fromkeys([*plan.entries, *busiest]))[:MOST_SHOWN_CHANNELS]
    return [_channel_status(name, plan, loads.get(name, [])) for name in names]


def _channel_status(name: bytes, plan: PlanView, loads: list[ChannelLoad]) -> ChannelStatus:
    entry: PlanEntry = plan.entries.get(name) or plan.ring.home_entry(name)
    return ChannelStatus(
        name.decode(errors="replace"),
        entry.describe() if entry.version else "home",
        entry.groups,
        entry.version,
        name in plan.moving,
        sum(load.publications for load in loads),
        max((load.subscribers for load in loads), default=0),
        sum(load.bytes_out for load in loads),
    )
