"""Where channels are served: entries of the plan, the ring of servers, and routes of channels that move.

An entry lists groups of servers. **A publication goes to every server of one group, a subscription to one server of
every group**, so each subscriber meets each publication exactly once. This one rule covers all of Dynamoth's mappings
(section II-B) and both replications at once:

    one server                     [[1]]
    all-subscribers replication    [[1], [2], [3]]       publishers choose a server, subscribers use all
    all-publishers replication     [[1, 2, 3]]           publishers use all, subscribers choose one
    both                           [[1, 2], [3, 4]]      publishers choose a pair, subscribers one of each pair

Without an entry, a channel is served by its home: the server that consistent hashing gives it.
"""

from bisect import bisect_right
from functools import cached_property, lru_cache
from hashlib import blake2b

import msgspec

#: Messages in a row that a publisher sends to the same group, so that order is seldom for the subscriber to restore.
_RUN = 64

_POINTS_OF_SERVER = 128


class PlanEntry(msgspec.Struct, frozen=True, array_like=True):
    """The servers of one channel since ``version`` of the plan. Groups are disjoint and not empty."""

    version: int
    groups: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        servers = [server for group in self.groups for server in group]
        if not self.groups or not all(self.groups) or len(set(servers)) != len(servers):
            raise ValueError(f"groups of servers must be disjoint and not empty, not {self.groups}")

    @property
    def servers(self) -> frozenset[int]:
        return _servers_of(self.groups)

    def publish_group(self, publisher: int, sequence: int) -> tuple[int, ...]:
        """The servers that get this publication."""
        if len(self.groups) == 1:
            return self.groups[0]
        return self.groups[(publisher + sequence // _RUN) % len(self.groups)]

    def subscribe_servers(self, client: int) -> frozenset[int]:
        """The servers on which this client subscribes; clients spread evenly over the servers of a group."""
        return frozenset(group[client % len(group)] for group in self.groups)

    def group_with(self, server: int, publisher: int) -> tuple[int, ...]:
        """The group to which the dispatcher of a server forwards: its own if it is in one, else the publisher's."""
        for group in self.groups:
            if server in group:
                return group
        return self.groups[publisher % len(self.groups)]

    def describe(self) -> str:
        """The mapping in the paper's words, as ``culver channels plan`` shows it."""
        if len(self.servers) == 1:
            return "one server"
        if len(self.groups) == 1:
            return "all publishers"
        return "all subscribers" if all(len(group) == 1 for group in self.groups) else "both"


def single(version: int, server: int) -> PlanEntry:
    return PlanEntry(version, ((server,),))


class ServerAddress(msgspec.Struct, frozen=True):
    """A server of the pool. Its number is never given to another; the address holds no password."""

    number: int
    url: str


class Ring(msgspec.Struct, frozen=True, dict=True):
    """All servers, and which of them are homes of channels without an entry. Clients keep one, and only a newer
    version replaces it."""

    version: int
    servers: tuple[ServerAddress, ...]
    homes: tuple[int, ...]

    @cached_property
    def _points(self) -> tuple[list[int], list[int]]:
        points = sorted(
            (_hash(b"%d:%d" % (home, point)), home)
            for home in self.homes
            for point in range(_POINTS_OF_SERVER)
        )
        return [point for point, _ in points], [home for _, home in points]

    @cached_property
    def numbers(self) -> frozenset[int]:
        return frozenset(server.number for server in self.servers)

    def home(self, channel: bytes) -> int:
        """The server of a channel without an entry, by consistent hashing."""
        points, homes = self._points
        return homes[bisect_right(points, _hash(channel)) % len(homes)]

    def home_entry(self, channel: bytes) -> PlanEntry:
        """The entry of a channel that the plan says nothing about: its home, at version 0."""
        return single(0, self.home(channel))


class MoveRoute(msgspec.Struct, frozen=True):
    """What a dispatcher knows of a channel that moves, or that has moved lately.

    ``previous`` holds the older entries, oldest first, that subscribers or publishers may still obey. Until a route
    is ``active``, dispatchers forward between all entries and tell nobody; from then on they tell the clients.
    ``empty`` lists the versions of ``previous`` without subscribers: nothing is forwarded to these any more.
    """

    channel: bytes
    current: PlanEntry
    previous: tuple[PlanEntry, ...]
    active: bool
    empty: tuple[int, ...] = ()

    @property
    def servers(self) -> frozenset[int]:
        """All servers whose dispatchers take part."""
        return self.current.servers.union(*(entry.servers for entry in self.previous))

    def entry_of(self, version: int) -> PlanEntry | None:
        return next((entry for entry in (self.current, *self.previous) if entry.version == version), None)


@lru_cache(maxsize=65_536)
def _servers_of(groups: tuple[tuple[int, ...], ...]) -> frozenset[int]:
    return frozenset(server for group in groups for server in group)


def _hash(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big")
