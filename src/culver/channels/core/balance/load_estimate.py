"""Load ratios as they are, and as they would be if channels were placed elsewhere."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from culver.channels.core.balance.server_capacity import ServerCapacity
from culver.channels.core.balance.server_groups import Groups
from culver.channels.core.channel_load import ChannelLoad, ServerLoad

#: Redis reads, parses and answers a publication in about the time in which it writes it to two subscribers.
_PUBLICATION_WEIGHT = 2.0

#: Redis sends some 650,000 messages per second and core; a slow machine needs a few times longer.
_MOST_CPU_OF_MESSAGE = 10e-6

#: The bytes of a channel are estimated, and may be this many times too large.
_FRAME_ERROR = 1.1


class ServerState(StrEnum):
    """``DRAINING`` and ``DEAD`` servers get nothing new, and their channels get new places."""

    UP = "up"
    DRAINING = "draining"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class BalancedServer:
    """A server as the balancer sees it. ``load`` is None until its analyser has reported.

    ``subscribed_channels`` have subscribers, whether or not anybody publishes. They are listed while the server is
    being emptied; None says that they have not been, so that nobody knows whether it is empty.
    """

    number: int
    capacity: ServerCapacity
    load: ServerLoad | None
    state: ServerState = ServerState.UP
    price: float = 1.0
    subscribed_channels: tuple[bytes, ...] | None = None

    @property
    def outgoing_bytes(self) -> float:
        """What the server sends, or should send: a saturated one sends less than its channels ask for."""
        if self.load is None:
            return 0.0
        asked = sum(channel.bytes_out for channel in self.load.channels)
        return max(self.load.outgoing_bytes, asked / _FRAME_ERROR)

    @property
    def load_ratio(self) -> float:
        return 0.0 if self.load is None else self.capacity.ratio(self.outgoing_bytes, self.load.cpu)


@dataclass(frozen=True, slots=True)
class ServerShare:
    """What a channel takes of one server, per second."""

    outgoing_bytes: float
    cpu: float


_NOTHING = ServerShare(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class ChannelDemand:
    """What a channel takes of all its servers together, per second.

    Every server of a group handles all publications of the group (``cpu_in``), and its part of the subscribers.
    """

    publications: float
    subscribers: int
    sent: float
    outgoing_bytes: float
    cpu_in: float
    cpu_out: float
    #: Whether somebody publishes to one server of the channel without our client.
    foreign: bool = False

    def share(self, groups: int, width: int) -> ServerShare:
        """What each of ``width`` servers of a group bears, if there are so many groups."""
        servers = groups * width
        return ServerShare(self.outgoing_bytes / servers, self.cpu_in / groups + self.cpu_out / servers)

    @property
    def cpu_of_message(self) -> float:
        """CPU seconds that a server needs to send one message to one subscriber.

        Bounded, because a server with few messages spends its time on other things.
        """
        return min(self.cpu_out / self.sent, _MOST_CPU_OF_MESSAGE) if self.sent else 0.0


class LoadEstimate:
    """Begins with what was measured; ``place`` changes it as a move would.

    A channel whose groups are unknown is at the server that reported it. Load that no channel explains stays where
    it is.
    """

    def __init__(
        self, servers: Iterable[BalancedServer], groups_of: Callable[[bytes], Groups | None]
    ) -> None:
        # An entry may name a server that is not among these; it counts as an idle one.
        self._capacity: dict[int, ServerCapacity] = defaultdict(ServerCapacity)
        self._bytes: dict[int, float] = defaultdict(float)
        self._cpu: dict[int, float] = defaultdict(float)
        self.demands: dict[bytes, ChannelDemand] = {}
        self.groups: dict[bytes, Groups] = {}
        self._shares: dict[bytes, dict[int, ServerShare]] = defaultdict(dict)
        self._channels: dict[int, set[bytes]] = defaultdict(set)
        measured: dict[bytes, dict[int, tuple[ChannelLoad, float]]] = defaultdict(dict)
        for server in servers:
            load = server.load or ServerLoad(server.number, 0.0)
            self._capacity[server.number] = server.capacity
            self._bytes[server.number] = server.outgoing_bytes
            self._cpu[server.number] = load.cpu
            weights = sum(_weight(channel) for channel in load.channels)
            for channel in load.channels:
                measured[channel.channel][server.number] = channel, load.cpu / weights if weights else 0.0
        for name, parts in measured.items():
            groups = groups_of(name) or (tuple(sorted(parts)),)
            self._measure(name, groups, parts)

    def _measure(self, name: bytes, groups: Groups, parts: dict[int, tuple[ChannelLoad, float]]) -> None:
        """A channel that moves is still seen on servers that it leaves: only those of its entry count."""
        by_group = [[parts[server] for server in group if server in parts] for group in groups]
        seen = [part for group in by_group for part in group]
        if not seen:
            return
        self.demands[name] = ChannelDemand(
            publications=sum(
                max((load.publications for load, _ in group), default=0.0) for group in by_group
            ),
            subscribers=max(sum(load.subscribers for load, _ in group) for group in by_group),
            sent=sum(load.sent for load, _ in seen),
            outgoing_bytes=sum(load.bytes_out for load, _ in seen),
            cpu_in=sum(
                max((load.publications * unit for load, unit in group), default=0.0) for group in by_group
            )
            * _PUBLICATION_WEIGHT,
            cpu_out=sum(load.sent * unit for load, unit in seen),
            foreign=any(load.foreign > 0 for load, _ in seen),
        )
        self.groups[name] = groups
        for group in groups:
            for server in group:
                if server in parts:
                    load, unit = parts[server]
                    self._add(name, server, ServerShare(load.bytes_out, _weight(load) * unit))

    def ratio(self, server: int) -> float:
        return self._capacity[server].ratio(max(self._bytes[server], 0.0), max(self._cpu[server], 0.0))

    def ratio_with(self, server: int, share: ServerShare) -> float:
        """The load ratio of a server that bears this share besides what it has."""
        return self._capacity[server].ratio(
            max(self._bytes[server] + share.outgoing_bytes, 0.0), max(self._cpu[server] + share.cpu, 0.0)
        )

    def ratio_if(self, channel: bytes, groups: Groups, server: int) -> float:
        """The load ratio of a server if the channel were on these groups."""
        old = self._shares[channel].get(server, _NOTHING)
        new = _NOTHING
        for group in groups:
            if server in group:
                new = self.demands[channel].share(len(groups), len(group))
        change = ServerShare(new.outgoing_bytes - old.outgoing_bytes, new.cpu - old.cpu)
        return self.ratio_with(server, change)

    def part(self, channel: bytes, server: int) -> float:
        """The part of a server's load ratio that a channel makes."""
        share = self._shares[channel].get(server)
        return 0.0 if share is None else self.ratio_of(server, share)

    def ratio_of(self, server: int, share: ServerShare) -> float:
        """The load ratio that a share makes by itself."""
        return self._capacity[server].ratio(share.outgoing_bytes, share.cpu)

    def busiest_channels(self, server: int) -> list[bytes]:
        """The channels of a server that make load, the busiest first."""
        parts = {channel: self.part(channel, server) for channel in self._channels[server]}
        return sorted((name for name in parts if parts[name] > 0), key=lambda name: (-parts[name], name))

    def place(self, channel: bytes, groups: Groups) -> None:
        """Takes the channel from where it is and puts it on these groups."""
        for server, share in self._shares.pop(channel, {}).items():
            self._bytes[server] -= share.outgoing_bytes
            self._cpu[server] -= share.cpu
            self._channels[server].discard(channel)
        self.groups[channel] = groups
        for group in groups:
            share = self.demands[channel].share(len(groups), len(group))
            for server in group:
                self._bytes[server] += share.outgoing_bytes
                self._cpu[server] += share.cpu
                self._add(channel, server, share)

    def describe(self, server: int) -> str:
        return (
            f"server {server} at {self.ratio(server):.2f} "
            f"({max(self._bytes[server], 0.0) / 1e6:.2f} MB/s, CPU {max(self._cpu[server], 0.0):.0%})"
        )

    def _add(self, channel: bytes, server: int, share: ServerShare) -> None:
        self._shares[channel][server] = share
        self._channels[server].add(channel)


def _weight(load: ChannelLoad) -> float:
    return load.sent + _PUBLICATION_WEIGHT * load.publications
