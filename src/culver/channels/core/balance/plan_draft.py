"""A new plan while it is worked out: new places of channels, the load that would follow, and the reasons."""

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Sequence

from culver.channels.core.balance.load_estimate import BalancedServer, LoadEstimate, ServerState
from culver.channels.core.balance.replication_choice import (
    SHRINK_SHARE,
    ReplicaShape,
    ReplicationChoice,
    shape_of,
)
from culver.channels.core.balance.server_capacity import LoadThresholds
from culver.channels.core.balance.server_groups import Groups, replaced, servers_of, show, without

#: A new server takes, and a server that is being emptied gives, at most this part of the total load in one plan.
STEP = 0.1

#: A move must lower the highest load ratio by this much; less is not worth a move.
_LEAST_GAIN = 0.02

#: Channels that make no load, which one plan moves at most.
_MOST_SILENT_MOVES = 500

_MOST_MOVES = 200


class PlanDraft:
    """Changes each channel at most once. Channels that are ``moving`` already stay as they are."""

    def __init__(
        self,
        servers: Sequence[BalancedServer],
        groups_of: Callable[[bytes], Groups],
        thresholds: LoadThresholds,
        *,
        moving: Container[bytes] = (),
        filling: Container[int] = (),
        barred: Container[int] = (),
    ) -> None:
        self.estimate = LoadEstimate(servers, groups_of)
        #: Servers that may get channels.
        self.usable = [
            server.number
            for server in servers
            if server.state is ServerState.UP and server.load is not None and server.number not in barred
        ]
        self._prices = {server.number: server.price for server in servers}
        self._dead = {server.number for server in servers if server.state is ServerState.DEAD}
        self.total = sum(
            self.estimate.ratio(server.number) for server in servers if server.number not in self._dead
        )
        self.entries: dict[bytes, Groups] = {}
        self.reasons: list[str] = []
        #: A new server could have taken more, had its step not been full.
        self.step_was_full = False
        self._groups_of = groups_of
        self._thresholds = thresholds
        self._moving = moving
        self._filling = filling
        self._filled: dict[int, float] = defaultdict(float)
        self._silent: Counter[int] = Counter()

    def may_change(self, channel: bytes) -> bool:
        return channel not in self.entries and channel not in self._moving

    def mean_ratio(self) -> float:
        return sum(map(self.estimate.ratio, self.usable)) / len(self.usable) if self.usable else 0.0

    def replicate(self, choice: ReplicationChoice) -> list[bytes]:
        """Algorithm 1: spreads channels that one server cannot bear, and gathers those that need it no more.

        Returns the channels that need more than the servers can give.
        """
        lacking = []
        for channel, demand in sorted(self.estimate.demands.items()):
            groups = self.estimate.groups[channel]
            if not self.may_change(channel):
                continue
            current = shape_of(groups)
            wanted = choice.needed(demand, current)
            if wanted == current:
                continue
            if wanted.servers < current.servers:
                if self._all_usable(groups):
                    self._shrink(channel, wanted)
            elif not self._grow(channel, [wanted, *choice.wider(demand, wanted)], self._thresholds.high):
                lacking.append(channel)
        return lacking

    def widen(self, server: int, choice: ReplicationChoice, limit: float) -> bool:
        """Spreads the busiest channel of a server that may change over more servers, because no other server can take
        a channel whole. No server that is added gets above ``limit``."""
        for channel in self.estimate.busiest_channels(server):
            groups = self.estimate.groups[channel]
            if self.may_change(channel) and self._all_usable(groups):
                wider = choice.wider(self.estimate.demands[channel], shape_of(groups))
                return self._grow(channel, wider, limit)
        return False

    def relieve(self, limit: float) -> list[int]:
        """Algorithm 2: moves the busiest channels of overloaded servers to the least loaded ones.

        No receiver gets above ``limit``, nor as high as the server that is relieved was. Returns the servers that are
        still overloaded.
        """
        left, stuck = set(self.usable), []
        while left:
            worst = max(left, key=lambda server: (self.estimate.ratio(server), -server))
            if self.estimate.ratio(worst) < self._thresholds.high:
                break
            left.discard(worst)
            self._relieve_server(worst, limit)
            if self.estimate.ratio(worst) >= self._thresholds.high:
                stuck.append(worst)
        return stuck

    def _relieve_server(self, worst: int, limit: float) -> None:
        for channel in self.estimate.busiest_channels(worst):
            before = self.estimate.ratio(worst)
            if before < self._thresholds.safe or len(self.entries) >= _MOST_MOVES:
                return
            groups = self.estimate.groups[channel]
            if not self.may_change(channel) or not self._all_usable(groups):
                continue
            receiver = self._receiver(channel, groups, worst, min(limit, before - _LEAST_GAIN))
            if receiver is not None:
                self._move(channel, replaced(groups, worst, receiver), f"relieves server {worst}")

    def abandon(self, channels: Iterable[bytes]) -> None:
        """Takes these channels from dead servers at once, whatever the load of the others."""
        for channel in channels:
            if not self.may_change(channel):
                continue
            groups = self.current_groups(channel)
            dead = self._dead.intersection(servers_of(groups))
            rest = without(groups, dead)
            if not rest and self.usable:
                rest = ((min(self.usable, key=self._silent_preference),),)
            if rest and dead:
                self._silent[rest[0][0]] += channel not in self.estimate.demands
                self._move(channel, rest, f"server {min(dead)} is dead")

    def evacuate(self, server: int, channels: Iterable[bytes], limit: float, step: float, why: str) -> bool:
        """Takes channels from a server, the busiest first, until about ``step`` of its load ratio has moved.

        No receiver gets above ``limit``. ``channels`` are those without load. Returns whether all that remains can be
        taken later: False if some channel has nowhere to go.
        """
        moved, possible = 0.0, True
        receivers = [other for other in self.usable if other != server]
        for channel in self.estimate.busiest_channels(server):
            if not self.may_change(channel):
                continue
            part = self.estimate.part(channel, server)
            if moved and moved + part > step:
                continue
            groups = self.estimate.groups[channel]
            receiver = self._receiver(channel, groups, server, limit)
            target = without(groups, {server}) if receiver is None else replaced(groups, server, receiver)
            if not target or any(
                self.estimate.ratio_if(channel, target, one) > limit for one in servers_of(target)
            ):
                possible = False
                continue
            self._move(channel, target, why)
            moved += part
        silent = [
            channel
            for channel in channels
            if self.may_change(channel) and channel not in self.estimate.demands
        ]
        for channel in silent[:_MOST_SILENT_MOVES]:
            groups = self.current_groups(channel)
            others = [other for other in receivers if other not in servers_of(groups)]
            receiver = min(others, key=self._silent_preference, default=None)
            target = without(groups, {server}) if receiver is None else replaced(groups, server, receiver)
            if not target:
                possible = False
                continue
            if receiver is not None:
                self._silent[receiver] += 1
            self._move(channel, target, why)
        return possible

    def current_groups(self, channel: bytes) -> Groups:
        """The draft's groups, or those of the plan."""
        return self.entries.get(channel) or self._groups_of(channel)

    def _ratio(self, server: int) -> float:
        return self.estimate.ratio(server)

    def _preference(self, server: int) -> tuple[float, float, int]:
        """Orders receivers: the cheapest first, and of these the least loaded."""
        return self._prices[server], self._ratio(server), server

    def _silent_preference(self, server: int) -> tuple[int, float, float, int]:
        """Orders receivers of channels without load, which are spread evenly."""
        return self._silent[server], *self._preference(server)

    def _all_usable(self, groups: Groups) -> bool:
        return all(server in self.usable for server in servers_of(groups))

    def _receiver(self, channel: bytes, groups: Groups, leaves: int, limit: float) -> int | None:
        """The cheapest server that can take the place of one that the channel leaves; of these the least loaded."""
        taken = servers_of(groups)
        for server in sorted(self.usable, key=self._preference):
            if server in taken:
                continue
            after = self.estimate.ratio_if(channel, replaced(groups, leaves, server), server)
            if after <= limit and self._step_allows(channel, groups, server):
                return server
        return None

    def _step_allows(self, channel: bytes, groups: Groups, server: int) -> bool:
        """A new server takes a tenth of the load in one plan, or one channel if that is more by itself."""
        filled = self._filled[server]
        if server not in self._filling or not filled:
            return True
        share = self.estimate.demands[channel].share(len(groups), min(map(len, groups)))
        allowed = filled + self.estimate.ratio_of(server, share) <= STEP * self.total
        self.step_was_full = self.step_was_full or not allowed
        return allowed

    def _grow(self, channel: bytes, shapes: Sequence[ReplicaShape], limit: float) -> bool:
        """Takes the first shape that leaves every server safe, else the one that lowers the highest ratio most. No
        server that is added gets above ``limit``."""
        old = self.estimate.groups[channel]
        before = max(map(self._ratio, servers_of(old)))
        best: tuple[float, Groups] | None = None
        for shape in shapes:
            target = self._spread(old, shape)
            if target is None or target == old:
                continue
            ratios = {
                server: self.estimate.ratio_if(channel, target, server) for server in servers_of(target)
            }
            added = [server for server in ratios if server not in servers_of(old)]
            if any(ratios[server] > limit for server in added):
                continue
            if not all(self._step_allows(channel, target, server) for server in added):
                continue
            worst = max(ratios.values())
            if worst <= self._thresholds.safe:
                best = worst, target
                break
            if worst < before - _LEAST_GAIN and (best is None or worst < best[0] - _LEAST_GAIN):
                best = worst, target
        if best is None:
            return False
        self._move(channel, best[1], f"needs {len(servers_of(best[1]))} servers")
        return True

    def _shrink(self, channel: bytes, shape: ReplicaShape) -> None:
        """Frees the busiest servers first."""
        old = self.estimate.groups[channel]
        kept = sorted(servers_of(old), key=lambda server: (self._ratio(server), server))[: shape.servers]
        target = _grouped([server for server in servers_of(old) if server in kept], shape)
        limit = self._thresholds.safe * SHRINK_SHARE
        if all(self.estimate.ratio_if(channel, target, server) <= limit for server in kept):
            self._move(channel, target, f"needs only {shape.servers} of its {len(servers_of(old))} servers")

    def _spread(self, old: Groups, shape: ReplicaShape) -> Groups | None:
        """The old servers that stay and the least loaded others in this shape; None if there are too few."""
        kept = [server for server in servers_of(old) if server in self.usable][: shape.servers]
        others = sorted(
            (server for server in self.usable if server not in servers_of(old)),
            key=lambda server: (self._ratio(server), server),
        )
        chosen = kept + others[: shape.servers - len(kept)]
        return _grouped(chosen, shape) if len(chosen) == shape.servers else None

    def _move(self, channel: bytes, groups: Groups, why: str) -> None:
        old = self.current_groups(channel)
        text = f"{_name(channel)} {show(old)} -> {show(groups)}: {why}"
        demand = self.estimate.demands.get(channel)
        if demand is not None:
            before = {server: self._ratio(server) for server in {*servers_of(old), *servers_of(groups)}}
            self.estimate.place(channel, groups)
            for server in set(servers_of(groups)) - set(servers_of(old)):
                self._filled[server] += self.estimate.part(channel, server)
            changes = ", ".join(
                f"server {server} {ratio:.2f} -> {self._ratio(server):.2f}"
                for server, ratio in sorted(before.items())
            )
            text += (
                f" ({demand.publications:.0f} publications/s, {demand.subscribers} subscribers, "
                f"{demand.outgoing_bytes / 1e6:.2f} MB/s; {changes})"
            )
        self.entries[channel] = groups
        self.reasons.append(text)


def _grouped(servers: list[int], shape: ReplicaShape) -> Groups:
    return tuple(
        tuple(servers[place : place + shape.width]) for place in range(0, shape.servers, shape.width)
    )


def _name(channel: bytes) -> str:
    text = channel.decode(errors="backslashreplace")
    return text if len(text) <= 40 else text[:37] + "..."
