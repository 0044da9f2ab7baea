"""How many servers a channel needs, and in which groups (Dynamoth, algorithm 1).

The paper compares the ratio of publications to subscribers with thresholds that were found by hand, and falls back
to all-subscribers replication where both are many. Here the number of servers follows from what one server bears,
and the shape from what replication costs: with ``k`` groups of ``m`` servers each publication is sent ``m`` times
and each subscriber subscribes ``k`` times. The cheapest shape is all-subscribers (``m`` = 1) where publications
prevail, all-publishers (``k`` = 1) where subscribers do, and a grid where both are many.
"""

from dataclasses import dataclass

from culver.channels.core.balance.load_estimate import ChannelDemand
from culver.channels.core.balance.server_capacity import LoadThresholds, ServerCapacity
from culver.channels.core.balance.server_groups import Groups

#: The longest time that a server may take to send one publication to all its subscribers; all others wait meanwhile.
_FAN_OUT_SECONDS = 0.05

#: Redis takes 10,000 clients unless it is told otherwise, and a channel must leave room for the clients of others.
_MOST_SUBSCRIBERS = 8_000

#: A channel gives servers back when it needs them no more at this part of the safe load ratio. Far below what made it
#: grow, so that it does not flap.
SHRINK_SHARE = 0.6


@dataclass(frozen=True, slots=True)
class ReplicaShape:
    """``groups`` groups of ``width`` servers each."""

    groups: int
    width: int

    @property
    def servers(self) -> int:
        return self.groups * self.width


ONE_SERVER = ReplicaShape(1, 1)


def shape_of(groups: Groups) -> ReplicaShape:
    """The shape of an entry; groups that lost a server count as wide as the narrowest."""
    return ReplicaShape(len(groups), min(len(group) for group in groups))


class ReplicationChoice:
    """Chooses shapes for servers that bear at least ``capacity``."""

    def __init__(self, capacity: ServerCapacity, thresholds: LoadThresholds, most_servers: int) -> None:
        self._capacity = capacity
        self._thresholds = thresholds
        self._most_servers = most_servers

    def needed(self, demand: ChannelDemand, current: ReplicaShape) -> ReplicaShape:
        """The shape that the channel should have. It is the current one unless that is too small or far too large.

        Where no shape is enough for the servers there are, the one that strains them least.
        """
        if demand.foreign and current.width > 1:
            current = ReplicaShape(current.servers, 1)
        if self._strain(demand, current, self._thresholds.high) > 1:
            return self._grown(demand, current)
        if current.servers == 1:
            return current
        spare = self._thresholds.safe * SHRINK_SHARE
        fewer = [shape for shape in self._shapes(demand) if shape.servers < current.servers]
        enough = [shape for shape in fewer if self._strain(demand, shape, spare) <= 1]
        return min(enough, key=lambda shape: self._order(demand, shape), default=current)

    def _grown(self, demand: ChannelDemand, current: ReplicaShape) -> ReplicaShape:
        """The cheapest shape that is safe; never fewer servers than now."""
        larger = [shape for shape in self._shapes(demand) if shape.servers >= current.servers]
        enough = [shape for shape in larger if self._strain(demand, shape, self._thresholds.safe) <= 1]
        if enough:
            return min(enough, key=lambda shape: self._order(demand, shape))
        return min(
            larger,
            key=lambda shape: (self._strain(demand, shape, 1.0), self._order(demand, shape)),
            default=current,
        )

    def wider(self, demand: ChannelDemand, current: ReplicaShape) -> list[ReplicaShape]:
        """Shapes of more servers, the fewest and cheapest first: for a channel that its servers cannot bear."""
        more = [shape for shape in self._shapes(demand) if shape.servers > current.servers]
        return sorted(more, key=lambda shape: self._order(demand, shape))

    def _shapes(self, demand: ChannelDemand) -> list[ReplicaShape]:
        """All shapes, but without groups of several servers for what a foreign publisher sends to one of them."""
        most = self._most_servers
        return [
            ReplicaShape(groups, width)
            for groups in range(1, most + 1)
            for width in range(1, (1 if demand.foreign else most // groups) + 1)
        ]

    def _order(self, demand: ChannelDemand, shape: ReplicaShape) -> tuple[int, float, int]:
        copies = demand.publications * shape.width + demand.subscribers * shape.groups
        # Equal costs go to all-subscribers replication, as in the paper.
        return shape.servers, copies, shape.width

    def _strain(self, demand: ChannelDemand, shape: ReplicaShape, limit: float) -> float:
        """Above 1, the shape is too small for the limit of the load ratio."""
        share = demand.share(shape.groups, shape.width)
        subscribers = demand.subscribers / shape.width
        return max(
            self._capacity.ratio(share.outgoing_bytes, share.cpu) / limit,
            subscribers * demand.cpu_of_message / _FAN_OUT_SECONDS * self._thresholds.safe / limit,
            subscribers / _MOST_SUBSCRIBERS * self._thresholds.safe / limit,
        )
